package group

import (
	"context"
	"time"

	"github.com/spindle-lock/spindle"
	"github.com/spindle-lock/spindle/internal/fence"
	"github.com/spindle-lock/spindle/internal/options"
	"github.com/spindle-lock/spindle/internal/table"
)

// WithWork sets the function that does the work on a partition. It runs in its own goroutine for each partition that
// this member has. Its ctx ends the instant the partition is lost or must move. context.Cause then returns ErrMoved,
// ErrPaused, ErrLetGo, spindle.ErrSuperseded, spindle.ErrExpired, the cause of the ctx passed to Run, or an error that
// says that this member is leaving for a while because it could not claim anything. A fenced write can fail with
// spindle.ErrFenced before ctx ends. Do not return at that point, but wait for the end of ctx.
//
// As long as the member keeps its term, a partition moves only after its work has returned. Work that does not return
// is logged, and keeps only its own partition from moving, until Run's ctx has ended or LetGo is called. If the member
// loses its term because it cannot reach Spanner for one lease duration, other members get its partitions one lease
// duration later, whether or not the work has returned. From then on, the old work's fenced writes are refused. A Group
// begins work on a partition only after its own previous work on that partition has returned. It does not wait for the
// work of another Group in the same process.
//
// If the work returns before its ctx has ended, with or without an error, it begins again under the same token, unless
// WithEarlyReturn changes this. The first time, it begins again immediately. After that, there is a pause, which
// doubles up to one lease duration. An error is logged. A panic in the work ends the process, as in any other
// goroutine.
func WithWork(work func(ctx context.Context, p Partition) error) spindle.Option {
	return option("WithWork", func(c *options.Config) {
		switch {
		case work == nil:
			c.Refuse("WithWork(nil): pass a function or omit the option")
		case c.Work != nil:
			c.Refuse("WithWork is given twice; pass one function that does both")
		default:
			c.Work = func(ctx context.Context, name string, f fence.Fence) error { return work(ctx, Partition{name, f}) }
		}
	})
}

// option returns an option of this package. The constructors of other packages refuse it by its name.
func option(name string, apply func(*options.Config)) spindle.Option {
	return func(c *options.Config) {
		c.ForGroup = append(c.ForGroup, name)
		apply(c)
	}
}

// EarlyReturn determines what happens when work returns before its context has ended.
type EarlyReturn int

const (
	// BeginAgain runs the work again under the same token, after a pause that grows if the work keeps returning early.
	// It is the default.
	BeginAgain EarlyReturn = EarlyReturn(options.BeginAgain)
	// KeepIdle keeps the partition without work until it moves. It is for work that is done only once.
	KeepIdle EarlyReturn = EarlyReturn(options.KeepIdle)
	// Release releases the partition and claims it again under a new token. The pause before the claim starts at a
	// tenth of the lease and doubles up to three lease durations.
	Release EarlyReturn = EarlyReturn(options.Release)
)

// WithEarlyReturn sets what happens when work returns before its context has ended.
func WithEarlyReturn(do EarlyReturn) spindle.Option {
	return option("WithEarlyReturn", func(c *options.Config) {
		if do < BeginAgain || do > Release {
			c.Refuse("WithEarlyReturn(%d): want BeginAgain, KeepIdle or Release", do)
			return
		}
		c.OnReturn = options.OnReturn(do)
	})
}

// WithInitialDelay sets how long the first members of a group wait for more members before they claim any partition.
// They wait until no member has joined for d, but at most for the longer of d and one lease duration. The default for d
// is a third of the lease. If d is 0, the first member claims everything, and later hands the other members their
// shares. A group that has lost all its members waits in the same way when it begins again.
func WithInitialDelay(d time.Duration) spindle.Option {
	return option("WithInitialDelay", func(c *options.Config) {
		if d < 0 || d > table.MaxLease {
			c.Refuse("WithInitialDelay(%v): want 0 to %v", d, table.MaxLease)
			return
		}
		c.InitialDelay = d
	})
}

// WithWeight gives this member n times the share of a member with weight 1, which is the default. The maximum is 1000.
func WithWeight(n int) spindle.Option {
	return option("WithWeight", func(c *options.Config) {
		if n < 1 || n > table.MaxWeight {
			c.Refuse("WithWeight(%d): want 1 to %d", n, table.MaxWeight)
			return
		}
		c.Weight = n
	})
}

// WithIdentity makes the group remember, for the duration d after this member has left, which partitions it had. If a
// member with the same id joins within that time, it gets these partitions back, up to its share, and no other
// partitions move because of it. WithIdentity requires spindle.WithID. With spindle.WithReclaim, the default is ten
// lease durations. Otherwise the group remembers nothing by default. The maximum is seven days.
func WithIdentity(d time.Duration) spindle.Option {
	return option("WithIdentity", func(c *options.Config) {
		if d < 0 || d > table.MaxKeep {
			c.Refuse("WithIdentity(%v): want 0 to %v", d, table.MaxKeep)
			return
		}
		c.Identity = d
	})
}
