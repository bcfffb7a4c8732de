package child

import (
	"sync"
	"time"
)

// leash is a child's connection to its watchdog.
type leash struct {
	mu      sync.Mutex
	dog     *Watchdog                                // nil: none
	again   func(until time.Time) (*Watchdog, error) // starts another one, if the watchdog is the child's alone
	dropped bool
}

// Watched puts the child under a watchdog of its own, which is dismissed when the child has ended: see StartWatchdog. The
// watchdog kills the child at until, unless Allow extends that.
func Watched(until time.Time, env []string, args ...string) Option {
	return func(c *Child) (err error) {
		c.leash.again = func(until time.Time) (*Watchdog, error) { return StartWatchdog(until, env, args) }
		c.leash.dog, err = c.leash.again(until)
		return err
	}
}

// WatchedBy puts the child under a watchdog that outlives it.
func WatchedBy(dog *Watchdog) Option {
	return func(c *Child) error {
		c.leash.dog = dog
		return nil
	}
}

// Allow lets the watchdog kill the group at that time, unless another call extends it before.
func (c *Child) Allow(until time.Time) {
	c.leash.mu.Lock()
	defer c.leash.mu.Unlock()
	if c.leash.dog != nil {
		c.leash.dog.Allow(until)
	}
}

// Unwatched returns a channel that is closed when the watchdog ends before the child: somebody killed it. It returns nil
// without a watchdog.
func (c *Child) Unwatched() <-chan struct{} {
	c.leash.mu.Lock()
	defer c.leash.mu.Unlock()
	if c.leash.dog == nil || c.leash.again == nil {
		return nil
	}
	return c.leash.dog.Gone()
}

// Rewatch puts a child of Watched under another watchdog, with the same deadline. It returns false if the child has ended.
func (c *Child) Rewatch() (bool, error) {
	l := &c.leash
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.dropped {
		return false, nil
	}
	dog, err := l.again(*l.dog.until.Load())
	if err != nil {
		return false, err
	}
	_ = l.dog.pipe.Close()
	go func(last *Watchdog) { _ = last.ended() }(l.dog)
	dog.watch(c.Pid())
	l.dog = dog
	return true, nil
}

// drop makes the watchdog forget the child.
func (l *leash) drop() {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.dropped || l.dog == nil:
	case l.again != nil:
		l.dog.dismiss()
	default:
		l.dog.watch(0)
	}
	l.dropped = true
}
