package agent

import (
	"sync"
	"time"

	"github.com/spindle-lock/spindle/internal/elect"
)

// barred has the names of locks that programs of this agent lost. A program may still act until the last time that it was
// promised, so no other program of this agent gets the lock before. Elsewhere the lease ensures that. Here too, unless an
// operator released the lock, or somebody deleted its rows: then this agent would know first that it is free.
type barred struct {
	clock elect.Clock
	mu    sync.Mutex
	names map[string]promise
}

// promise is how long a program was told that it holds a lock.
type promise struct {
	made elect.Instant
	left time.Duration
}

// over returns how long the promise is kept. It is not positive once it is over.
func (p promise) over(now elect.Instant) time.Duration { return p.left - now.Since(p.made) }

// until bars the names until the promise is over.
func (b *barred) until(p promise, names []string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := b.clock.Now()
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

// left returns for how long one of the names is still barred.
func (b *barred) left(names []string) (left time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := b.clock.Now()
	for _, name := range names {
		if p, ok := b.names[name]; ok {
			left = max(left, p.over(now))
		}
	}
	return left
}
