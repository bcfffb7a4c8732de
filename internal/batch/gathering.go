package batch

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/spindle-lock/spindle/internal/table"
)

// gathering collects requests of one kind, and sends them together.
type gathering[R any] struct {
	mu      sync.Mutex
	waiting []R
	timer   *time.Timer
	ends    time.Time // when the first window ends
	sent    time.Time // when requests were last sent
	size    int       // how many requests were last sent
	busy    int       // how many sends have not been answered yet

	answered func() // called when all sends have been answered
}

// add queues a request and returns immediately. When the window of any queued request ends, the function send is called
// with all queued requests, in its own goroutine.
//
// While earlier requests are in progress, the request waits for their answers instead, for at most window or busy,
// whichever is longer.
func (g *gathering[R]) add(r R, window, busy time.Duration, send func([]R)) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.busy > 0 {
		window = max(window, busy)
		g.answered = func() { g.flush(send) }
	}
	g.gather(r, time.Now().Add(window), send)
}

// addPromptly is like add, but sends a request immediately if two conditions are met. First, no other request is in
// progress or waiting. Second, the previous request was sent alone or more than one window ago. Otherwise, the request
// waits until one window after the previous one was sent.
func (g *gathering[R]) addPromptly(r R, window time.Duration, send func([]R)) {
	g.mu.Lock()
	defer g.mu.Unlock()
	ends := g.sent.Add(window)
	if g.busy == 0 && len(g.waiting) == 0 && (g.size <= 1 || !ends.After(time.Now())) {
		g.send([]R{r}, send)
		return
	}
	g.gather(r, ends, send)
}

// gather queues a request to be sent at the given time, or earlier together with others.
func (g *gathering[R]) gather(r R, ends time.Time, send func([]R)) {
	g.waiting = append(g.waiting, r)
	if len(g.waiting) > 1 && !ends.Before(g.ends) {
		return
	}
	if g.timer != nil {
		g.timer.Stop() // if it has already fired, the requests are sent early, which does no harm
	}
	g.ends = ends
	g.timer = time.AfterFunc(time.Until(ends), func() { g.flush(send) })
}

func (g *gathering[R]) flush(send func([]R)) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.waiting) > 0 {
		g.send(g.waiting, send)
		g.waiting = nil
	}
}

func (g *gathering[R]) send(all []R, send func([]R)) {
	g.sent, g.size, g.busy = time.Now(), len(all), g.busy+1
	go func() {
		send(all)
		g.mu.Lock()
		g.busy--
		answered := g.answered
		if g.busy > 0 {
			answered = nil
		}
		g.mu.Unlock()
		if answered != nil {
			answered()
		}
	}()
}

// parts divides requests into parts of one class each. The size of a part is at most the maximum for its class, unless
// a single request is larger.
func parts[R any](all []R, class, size func(R) int, most func(class int) int) (parts [][]R) {
	slices.SortStableFunc(all, func(a, b R) int { return class(a) - class(b) })
	sum := 0
	for i, r := range all {
		if sum += size(r); i == 0 || class(r) != class(all[i-1]) || sum > most(class(r)) {
			parts, sum = append(parts, nil), size(r)
		}
		last := &parts[len(parts)-1]
		*last = append(*last, r)
	}
	return parts
}

// together returns a context that ends once all of the given contexts have ended. Until then, at least one caller is
// still waiting for the reply.
func together(all []context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(table.ListenFor(context.WithoutCancel(all[0]), all))
	var left atomic.Int64
	left.Store(int64(len(all)))
	forget := make([]func() bool, len(all))
	for i, one := range all {
		forget[i] = context.AfterFunc(one, func() {
			if left.Add(-1) == 0 {
				cancel()
			}
		})
	}
	return ctx, func() {
		for _, f := range forget {
			f()
		}
		cancel()
	}
}
