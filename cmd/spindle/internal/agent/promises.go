package agent

import (
	"maps"
	"sync"
	"time"

	"github.com/spindle-lock/spindle/internal/elect"
)

// promises maps the names of locks to the holds whose programs may still act. The agent has promised each program a
// time until which it may act. Until that time has passed, or the program can no longer act, no other program of this
// agent gets the lock. Usually the lease already ensures this. However, if an operator releases the lock or deletes
// its rows, other programs may see that the lock is free before the agent finds out that the first program has lost it.
type promises struct {
	clock elect.Clock
	mu    sync.Mutex
	to    map[string]map[*hold]bool
}

// promise records when a program was promised that it may act (made), and for how long (left).
type promise struct {
	made elect.Instant
	left time.Duration
}

// over returns how much longer the promise lasts. The result is zero or negative once the promise is over.
func (p promise) over(now elect.Instant) time.Duration { return p.left - now.Since(p.made) }

func (ps *promises) keep(h *hold) {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	for _, name := range h.term.names {
		if ps.to[name] == nil {
			ps.to[name] = map[*hold]bool{}
		}
		ps.to[name][h] = true
	}
}

func (ps *promises) lift(h *hold) {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	for _, name := range h.term.names {
		if delete(ps.to[name], h); len(ps.to[name]) == 0 {
			delete(ps.to, name)
		}
	}
}

// left returns the time until all promises about a lock are over.
func (ps *promises) left(name string) (left time.Duration) {
	ps.mu.Lock()
	holds := maps.Clone(ps.to[name])
	ps.mu.Unlock()
	now := ps.clock.Now()
	for h := range holds {
		left = max(left, h.status().promised.over(now))
	}
	return left
}

// promise records p, unless an earlier promise lasts longer or the program can no longer act.
func (h *hold) promise(p promise) {
	now := h.agent.clock.Now()
	h.change(func(s *status) {
		if !s.lifted && p.over(now) > s.promised.over(now) {
			s.promised = p
		}
	})
}

// lift ends the promises to a program that no longer acts.
func (h *hold) lift() {
	h.change(func(s *status) { s.lifted, s.promised = true, promise{} })
	h.agent.promises.lift(h)
}

// liftOnceOver lifts the promises to the program once they are over, because the program may act until then.
func (h *hold) liftOnceOver() {
	clock := h.agent.clock
	if left := h.status().promised.over(clock.Now()); left > 0 {
		clock.AfterFunc(left, h.liftOnceOver)
		return
	}
	h.lift()
}
