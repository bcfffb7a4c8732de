package memstore

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"cloud.google.com/go/spanner"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/spindle-lock/spindle/internal/table"
)

// ErrCut is an error that a caller can get when its ctx ends, if its request or the reply was lost. See Link.Wait.
var ErrCut = spanner.ToSpannerError(status.Error(codes.DeadlineExceeded, "network is cut"))

// Link is a process's connection to a table, and implements table.Store. A test can make the link lose, hold, refuse
// and repeat requests. The link also counts requests. Its methods are safe for concurrent use.
type Link struct {
	table.Store

	mu     sync.Mutex
	lose   func(step string) bool  // loses the request, so nothing happens
	reply  func(step string) bool  // loses the reply to a step that took effect
	refuse func(step string) error // returns the answer to a step that has no effect, or nil
	after  func(step string)       // called before the caller sees the answer
	held   chan struct{}           // closed by Mend; created by Hold, in the caller's bubble
	again  func(step string) bool  // repeats a call that succeeded
	waits  int                     // how many requests were not answered
	ill    illness
	count  map[string]int
}

// Sickness is a fault that affects every call of one step until it is healed.
type Sickness string

// Sicknesses lists all kinds of sickness.
var Sicknesses = []Sickness{Refused, Lost, Silent, Slow}

// If a step is refused, it has no effect and returns an error. If it is lost, its request does not arrive. If it is
// silent, it takes effect, but its reply does not arrive. If it is slow, it is applied late, even if its ctx has ended
// by then.
const (
	Refused Sickness = "refused"
	Lost    Sickness = "lost"
	Silent  Sickness = "silent"
	Slow    Sickness = "slow"
)

type illness struct {
	step string
	how  Sickness
	late time.Duration
}

var errRefused = spanner.ToSpannerError(status.Error(codes.Unavailable, "refused"))

func (i illness) pass(ctx context.Context, l *Link, call func(context.Context) error) error {
	switch i.how {
	case Refused:
		return errRefused
	case Slow:
		time.Sleep(i.late)
		return errors.Join(call(context.WithoutCancel(ctx)), ctx.Err())
	case Silent:
		_ = call(ctx)
	}
	return l.Wait(ctx)
}

// Sicken gives one step the given sickness from now on. The argument late is the delay if the sickness is Slow.
func (l *Link) Sicken(step string, how Sickness, late time.Duration) {
	l.change(func() { l.ill = illness{step, how, late} })
}

// Heal undoes Sicken.
func (l *Link) Heal() { l.change(func() { l.ill = illness{} }) }

// Lose makes the link lose requests and replies from now on. The two functions decide, for each step, whether the
// request or the reply is lost. A nil function loses nothing. A caller whose message is lost waits until its ctx ends.
func (l *Link) Lose(request, reply func(step string) bool) {
	l.change(func() { l.lose, l.reply = request, reply })
}

// Cut makes the link lose all requests until Mend is called.
func (l *Link) Cut() { l.Lose(func(string) bool { return true }, nil) }

// Hold makes all calls wait until Mend is called or their ctx ends, like the calls of a Spanner client that has no
// connection.
func (l *Link) Hold() {
	l.change(func() {
		if l.held == nil {
			l.held = make(chan struct{})
		}
	})
}

// Mend undoes Lose, Cut and Hold.
func (l *Link) Mend() {
	l.change(func() {
		l.lose, l.reply = nil, nil
		if l.held != nil {
			close(l.held)
			l.held = nil
		}
	})
}

// Refuse makes the link refuse each step for which answer returns an error. The caller gets that error.
func (l *Link) Refuse(answer func(step string) error) { l.change(func() { l.refuse = answer }) }

// After makes the link call f when the table has answered a step, before the caller gets the answer. The link does not
// call f for a sick step or a lost reply.
func (l *Link) After(f func(step string)) { l.change(func() { l.after = f }) }

// Again makes the link repeat a successful call if f returns true for the call's step, as Spanner's client does when a
// reply is lost.
func (l *Link) Again(f func(step string) bool) { l.change(func() { l.again = f }) }

// Counts returns how often each step was sent since the previous call to Counts.
func (l *Link) Counts() map[string]int {
	counts := map[string]int{}
	l.change(func() { counts, l.count = l.count, counts })
	return counts
}

// Once returns a function that returns true only for the first call with that step.
func Once(step string) func(string) bool {
	var done atomic.Bool
	return func(s string) bool { return s == step && done.CompareAndSwap(false, true) }
}

// Wait waits until ctx has ended, like a request that is not answered. Successive calls alternate between two errors of
// Spanner's client: ErrCut, as for a request that was sent, and ctx's error, as for a request that was not sent.
func (l *Link) Wait(ctx context.Context) error {
	<-ctx.Done()
	sent := false
	l.change(func() { l.waits++; sent = l.waits%2 > 0 })
	if sent {
		return ErrCut
	}
	return ended(ctx)
}

func (l *Link) change(f func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	f()
}

func (l *Link) pass(ctx context.Context, step string, call func(context.Context, table.Store) error) error {
	var lost, silent bool
	var refused error
	var after func(string)
	var ill illness
	var held chan struct{}
	l.change(func() {
		if l.count == nil {
			l.count = map[string]int{}
		}
		l.count[step]++
		lost, silent = l.lose != nil && l.lose(step), l.reply != nil && l.reply(step)
		if l.refuse != nil {
			refused = l.refuse(step)
		}
		after, ill, held = l.after, l.ill, l.held
	})
	if held != nil {
		select {
		case <-held:
		case <-ctx.Done():
			return fmt.Errorf("the test has cut this process off: %w", ctx.Err())
		}
	}
	switch {
	case ill.how != "" && ill.step == step:
		return ill.pass(ctx, l, func(ctx context.Context) error { return call(ctx, l.Store) })
	case lost:
		return l.Wait(ctx)
	case refused != nil:
		return refused
	}
	err := call(ctx, l.Store)
	if err == nil && l.runsAgain(step) {
		err = call(ctx, l.Store)
	}
	if silent {
		return l.Wait(ctx)
	}
	if after != nil {
		after(step)
	}
	return err
}

// Read implements table.Store.
func (l *Link) Read(ctx context.Context, step string, bound table.Bound, keys table.Keys) ([]table.Row, time.Time, error) {
	return table.Via(l.pass).Read(ctx, step, bound, keys)
}

// Commit implements table.Store.
func (l *Link) Commit(ctx context.Context, step string, writes []table.Write) error {
	return table.Via(l.pass).Commit(ctx, step, writes)
}

// Transact implements table.Store.
func (l *Link) Transact(ctx context.Context, step string, fn func(context.Context, table.Reader) ([]table.Write, error)) (time.Time, error) {
	return table.Via(l.pass).Transact(ctx, step, fn)
}

func (l *Link) runsAgain(step string) (again bool) {
	l.change(func() { again = l.again != nil && l.again(step) })
	return again
}
