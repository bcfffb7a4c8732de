package agent

import (
	"sync"
	"time"

	"github.com/spindle-lock/spindle/internal/elect"
)

// barred remembers the locks that programs of this agent have lost. A program that has lost a lock may go on acting
// until the last time it was promised, so no other program of this agent gets the lock before then. Usually the lease
// already ensures that. But if an operator releases the lock or deletes its rows, this agent would immediately see that
// the lock is free.
type barred struct {
	clock elect.Clock
	mu    sync.Mutex
	names map[string]promise
}

// promise records that a program was told, at the time made, that it will hold a lock for at least as long as left.
type promise struct {
	made elect.Instant
	left time.Duration
}

// over returns how much longer the promise lasts. The result is not positive once the promise is over.
func (p promise) over(now elect.Instant) time.Duration { return p.left - now.Since(p.made) }

// until bars the names until the promise is over.
func (b *barred) until(p promise, names []string) {
	now := b.clock.Now()
	b.mu.Lock()
	defer b.mu.Unlock()
	for name, earlier := range b.names {
		if earlier.over(now) <= 0 {
			delete(b.names, name)
		}
	}
	for _, name := range names {
		if earlier, ok := b.names[name]; !ok || earlier.over(now) < p.over(now) {
			b.names[name] = p
		}
	}
}

// left returns how long it takes until none of the names is barred.
func (b *barred) left(names []string) (left time.Duration) {
	now := b.clock.Now()
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, name := range names {
		if p, ok := b.names[name]; ok {
			left = max(left, p.over(now))
		}
	}
	return left
}
