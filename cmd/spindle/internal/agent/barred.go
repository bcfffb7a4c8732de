package agent

import (
	"slices"
	"sync"
	"time"

	"github.com/spindle-lock/spindle/internal/elect"
)

// barred remembers what programs of this agent were promised. Until a program can no longer act, or its promise is over,
// no other program of this agent gets the lock. Usually the lease already ensures that. But if an operator releases the
// lock or deletes its rows, the other programs see that the lock is free, and they may see it before the agent finds out
// that the first program has lost it.
type barred struct {
	clock elect.Clock
	mu    sync.Mutex
	names map[string][]bar // of locks; the promises that may not be over
	prune int              // how many names there may be before promises that are over are forgotten
}

// bar is a promise to the program of a hold.
type bar struct {
	promise
	hold string // its id
}

// promise records that a program was told, at the time made, that it will hold a lock for at least as long as left.
type promise struct {
	made elect.Instant
	left time.Duration
}

// over returns how much longer the promise lasts. The result is not positive once the promise is over.
func (p promise) over(now elect.Instant) time.Duration { return p.left - now.Since(p.made) }

// until bars the names until the promise to a hold is over. It replaces earlier promises to that hold.
func (b *barred) until(p promise, hold string, names []string) {
	now := b.clock.Now()
	b.mu.Lock()
	defer b.mu.Unlock()
	b.tidy(now)
	for _, name := range names {
		b.names[name] = append(b.without(name, func(o bar) bool { return o.hold == hold || o.over(now) <= 0 }), bar{p, hold})
	}
}

// lift forgets the promises to a hold, whose program can no longer act.
func (b *barred) lift(hold string, names []string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, name := range names {
		b.keep(name, b.without(name, func(o bar) bool { return o.hold == hold }))
	}
}

// tidy forgets promises that are over, if there are twice as many names as after the last time. It then costs no more than
// a constant for each promise. b.mu is held.
func (b *barred) tidy(now elect.Instant) {
	if len(b.names) < b.prune {
		return
	}
	for name := range b.names {
		b.keep(name, b.without(name, func(o bar) bool { return o.over(now) <= 0 }))
	}
	b.prune = 2*len(b.names) + 100
}

func (b *barred) without(name string, gone func(bar) bool) []bar {
	return slices.DeleteFunc(b.names[name], gone)
}

func (b *barred) keep(name string, left []bar) {
	if b.names[name] = left; len(left) == 0 {
		delete(b.names, name)
	}
}

// left returns how long it takes until a name is no longer barred.
func (b *barred) left(name string) (left time.Duration) {
	now := b.clock.Now()
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, bar := range b.names[name] {
		left = max(left, bar.over(now))
	}
	return left
}
