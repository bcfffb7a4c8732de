package child

import (
	"sync"
	"time"
)

// leash is a child's connection to its watchdog.
type leash struct {
	mu     sync.Mutex
	dog    *Watchdog // nil if there is none, or the child has exited
	leader string    // the start time of the program, which the watchdog knows; see born
}

// Allow sets the time at which the watchdog kills the group. A later call can extend it.
func (c *Child) Allow(until time.Time) {
	c.leash.mu.Lock()
	defer c.leash.mu.Unlock()
	if c.leash.dog != nil {
		c.leash.dog.Allow(until)
	}
}

// Unwatched returns a channel that is closed when the child's own watchdog exits. If the child is still running at that
// time, the watchdog was killed or has crashed. If the child has exited or has no watchdog of its own, the channel is
// nil.
func (c *Child) Unwatched() <-chan struct{} {
	c.leash.mu.Lock()
	defer c.leash.mu.Unlock()
	if c.leash.dog == nil || c.Watch == nil {
		return nil
	}
	return c.leash.dog.Gone()
}

// Rewatch replaces the child's own watchdog, which has exited. The new watchdog has the same deadline as the old one.
// If the child has exited, Rewatch returns false and no error.
func (c *Child) Rewatch() (bool, error) {
	l := &c.leash
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.dog == nil {
		return false, nil
	}
	dog, err := c.Watch(*l.dog.until.Load())
	if err != nil {
		return false, err
	}
	_ = l.dog.pipe.Close()
	dog.watch(c.Pid(), l.leader)
	l.dog = dog
	return true, nil
}

// unleash makes the watchdog forget the child.
func (c *Child) unleash() {
	l := &c.leash
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.dog == nil:
	case c.Watch != nil:
		l.dog.dismiss()
	default:
		l.dog.watch(0, "")
	}
	l.dog = nil
}
