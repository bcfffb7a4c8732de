package group

import (
	"context"
	"time"

	"github.com/spindle-lock/spindle"
	"github.com/spindle-lock/spindle/internal/fence"
	"github.com/spindle-lock/spindle/internal/options"
	"github.com/spindle-lock/spindle/internal/table"
)

// WithWork runs work for each partition that this member has, in a goroutine of its own. Its ctx ends the instant the
// partition is lost or is to move. context.Cause is ErrMoved, ErrPaused, ErrLetGo, spindle.ErrSuperseded,
// spindle.ErrExpired, the cause of Run's ctx, or says that this member leaves for a while because it could claim
// nothing. Don't return at spindle.ErrFenced, which may come earlier: wait for the end of ctx.
//
// As long as the member keeps its term, a partition moves only after its work has returned. Work that does not return
// is logged, and keeps only its own partition from moving, until Run's ctx has ended, or until LetGo. If the member
// loses its term because it can't reach Spanner for a lease, others have its partitions a lease later, whether the work
// has returned or not: fenced writes are refused from then on. A Group does not begin work on a partition before its
// last work on it has returned; another Group in the same process does not know of that work.
//
// Work that returns before its ctx has ended, with an error or without, begins again under the same token, at once at
// first and then with a pause that doubles up to a lease, unless WithEarlyReturn says otherwise. An error is logged. A
// panic of work ends the process, as anywhere.
func WithWork(work func(ctx context.Context, p Partition) error) spindle.Option {
	return option("WithWork", func(c *options.Config) {
		switch {
		case work == nil:
			c.Refuse("WithWork(nil): give it a function, or leave it out")
		case c.Work != nil:
			c.Refuse("WithWork is given twice: give it one function that does both")
		default:
			c.Work = func(ctx context.Context, name string, f fence.Fence) error { return work(ctx, Partition{name, f}) }
		}
	})
}

// option is an option of this package. The constructors of others refuse it by its name.
func option(name string, apply func(*options.Config)) spindle.Option {
	return func(c *options.Config) {
		c.ForGroup = append(c.ForGroup, name)
		apply(c)
	}
}

// EarlyReturn says what happens when work returns before its context has ended.
type EarlyReturn int

const (
	// BeginAgain begins the work again under the same token, with a pause that grows if it returns soon. It is the
	// default.
	BeginAgain EarlyReturn = EarlyReturn(options.BeginAgain)
	// KeepIdle keeps the partition without work until it moves: for work that is done once.
	KeepIdle EarlyReturn = EarlyReturn(options.KeepIdle)
	// Release releases the partition and claims it again under a new token, a tenth of a lease later at first and then
	// with a pause that doubles up to three leases.
	Release EarlyReturn = EarlyReturn(options.Release)
)

// WithEarlyReturn says what happens when work returns before its context has ended.
func WithEarlyReturn(do EarlyReturn) spindle.Option {
	return option("WithEarlyReturn", func(c *options.Config) {
		if do < BeginAgain || do > Release {
			c.Refuse("WithEarlyReturn(%d): want BeginAgain, KeepIdle or Release", do)
			return
		}
		c.OnReturn = options.OnReturn(do)
	})
}

// WithInitialDelay sets how long the first members of a group wait for more members before they claim anything: until
// none has joined for d, and for a lease at most, or for d if that is longer. The default is a third of the lease. With
// 0 the first member claims everything, and then gives the others their shares. A group whose members were all lost
// waits likewise.
func WithInitialDelay(d time.Duration) spindle.Option {
	return option("WithInitialDelay", func(c *options.Config) {
		if d < 0 || d > table.MaxLease {
			c.Refuse("WithInitialDelay(%v): want 0 to %v", d, table.MaxLease)
			return
		}
		c.InitialDelay = d
	})
}

// WithWeight gives this member n times the share of a member of weight 1, which is the default. The most is 1000.
func WithWeight(n int) spindle.Option {
	return option("WithWeight", func(c *options.Config) {
		if n < 1 || n > table.MaxWeight {
			c.Refuse("WithWeight(%d): want 1 to %d", n, table.MaxWeight)
			return
		}
		c.Weight = n
	})
}

// WithIdentity makes the group remember for d which partitions this member had, once it is gone. If a member comes back
// under its id by then, it gets these again, as far as its share goes, and no others move for it. It needs
// spindle.WithID. With spindle.WithReclaim the default is ten leases; without it nothing is remembered. The most is
// seven days.
func WithIdentity(d time.Duration) spindle.Option {
	return option("WithIdentity", func(c *options.Config) {
		if d < 0 || d > table.MaxKeep {
			c.Refuse("WithIdentity(%v): want 0 to %v", d, table.MaxKeep)
			return
		}
		c.Identity = d
	})
}
