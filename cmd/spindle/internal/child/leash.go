package child

import (
	"sync"
	"time"
)

// leash is a child's connection to its watchdog.
type leash struct {
	mu     sync.Mutex
	dog    *Watchdog                                // nil if there is none, or the child has exited
	again  func(until time.Time) (*Watchdog, error) // starts a new watchdog; nil unless the watchdog is only for this child
	until  func() time.Time                         // the current deadline, for the start; nil if others call the watchdog's Allow
	leader string                                   // the start time of the program, which the watchdog knows; see born
}

// Watched starts a watchdog for this child alone, and ends the watchdog when the child has exited. The function until
// returns the watchdog's deadline. Start calls it again just before the program begins, because starting the processes
// can take long. From then on, Allow can extend the deadline. For env and args, see StartWatchdog.
func Watched(until func() time.Time, env []string, args ...string) Option {
	return func(c *Child) (err error) {
		c.leash.again = func(until time.Time) (*Watchdog, error) { return StartWatchdog(until, env, args) }
		c.leash.until = until
		c.leash.dog, err = c.leash.again(until())
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

// Allow sets the time at which the watchdog kills the group. A later call can extend it.
func (c *Child) Allow(until time.Time) {
	c.leash.mu.Lock()
	defer c.leash.mu.Unlock()
	if c.leash.dog != nil {
		c.leash.dog.Allow(until)
	}
}

// Unwatched returns a channel that is closed when the child's watchdog exits. If the child is still running at that
// time, something has killed the watchdog. The channel is nil if the child was not started with Watched.
func (c *Child) Unwatched() <-chan struct{} {
	c.leash.mu.Lock()
	defer c.leash.mu.Unlock()
	if c.leash.dog == nil || c.leash.again == nil {
		return nil
	}
	return c.leash.dog.Gone()
}

// Rewatch replaces the watchdog of a child that was started with Watched. The new watchdog has the same deadline as the
// old one. Rewatch returns false if the child has exited.
func (c *Child) Rewatch() (bool, error) {
	l := &c.leash
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.dog == nil {
		return false, nil
	}
	dog, err := l.again(*l.dog.until.Load())
	if err != nil {
		return false, err
	}
	_ = l.dog.pipe.Close()
	go func(last *Watchdog) { _ = last.ended() }(l.dog)
	dog.watch(c.Pid(), l.leader)
	l.dog = dog
	return true, nil
}

// drop makes the watchdog forget the child.
func (l *leash) drop() {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.dog == nil:
	case l.again != nil:
		l.dog.dismiss()
	default:
		l.dog.watch(0, "")
	}
	l.dog = nil
}
