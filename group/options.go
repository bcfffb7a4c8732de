package group

import (
	"context"
	"time"

	"github.com/spindle-lock/spindle/internal/fence"
	"github.com/spindle-lock/spindle/internal/loop"
	"github.com/spindle-lock/spindle/internal/options"
	"github.com/spindle-lock/spindle/internal/table"
)

// An Option changes one setting of a Group. Options come from this package, and from the functions of package spindle
// that return a GroupOption or a CommonOption.
type Option interface{ forGroups }

type forGroups interface{ options.ForGroups }

// WithWork sets the function that does the work on a partition. The group calls it in a new goroutine for each
// partition that this member owns. The call's ctx is canceled when the work must end. context.Cause(ctx) then returns
// one of these errors, which may be wrapped:
//
//   - ErrMoved, ErrPaused or ErrLetGo.
//   - spindle.ErrSuperseded or spindle.ErrExpired, if the member has lost the partition.
//   - spindle.ErrStalled, if the work has made no progress (spindle.WithStall).
//   - The cause of the ctx that was passed to Run, if that ctx has ended.
//   - An error that says that this member is leaving the group for a while because it could not claim or release any
//     partition.
//
// If a method of the Partition returns spindle.ErrFenced, ctx is canceled. A transaction of your own can fail because
// of the fence before ctx is canceled. The work should then wait until ctx is canceled before it returns.
//
// A Group begins work on a partition only after its own previous work on that partition has returned. Work that does
// not return is logged, and does not prevent other partitions from moving. The group waits for it until LetGo is
// called. After Run's ctx has ended, the group waits for at most one lease duration, or two with WithHandover.
//
// If the work returns before its ctx is canceled, the group logs this, with the error if there is one, and does what
// WithEarlyReturn says. If the work panics, the process crashes, as with any other goroutine.
func WithWork(work func(ctx context.Context, p Partition) error) Option {
	return options.Option(func(c *options.Config) {
		c.Require(c.Work == nil, "WithWork is given twice; pass one function that does both")
		if c.Require(work != nil, "WithWork(nil): pass a function or omit the option") {
			c.Work = func(ctx context.Context, name string, f fence.Fence, s *loop.Stall) error {
				return work(ctx, Partition{name, f, s})
			}
		}
	})
}

// EarlyReturn determines what happens when work returns before its context has ended.
type EarlyReturn int

const (
	// BeginAgain is the default. It calls the work again under the same token, after a pause. The first pause is 1/30
	// of the lease, but at most 1 s. The pause doubles with each further call, up to one lease duration or 10 s,
	// whichever is shorter. A call that lasts for at least one lease duration resets the pause.
	BeginAgain EarlyReturn = EarlyReturn(options.BeginAgain)
	// KeepIdle keeps the partition without work until it moves. It is for work that is done only once.
	KeepIdle EarlyReturn = EarlyReturn(options.KeepIdle)
	// Release releases the partition and claims it again under a new token. The pause before the claim starts at a
	// tenth of the lease and doubles up to three lease durations. A call that lasts for at least one lease duration
	// resets the pause.
	Release EarlyReturn = EarlyReturn(options.Release)
)

// WithEarlyReturn sets what happens when work returns before its context has ended.
func WithEarlyReturn(do EarlyReturn) Option {
	return options.Option(func(c *options.Config) {
		if c.Require(do >= BeginAgain && do <= Release, "WithEarlyReturn(%d): want BeginAgain, KeepIdle or Release", do) {
			c.OnReturn = options.OnReturn(do)
		}
	})
}

// WithInitialDelay sets how long the first members of a group wait for more members before they claim any partitions.
// They wait until no member has joined for the duration d. In total, they wait for at most d or one lease duration,
// whichever is longer. The default for d is a third of the lease.
//
// If d is 0, the first member claims all partitions, and later releases the other members' shares. If a group loses all
// its members, it waits in the same way when it starts again.
func WithInitialDelay(d time.Duration) Option {
	return options.Option(func(c *options.Config) {
		if c.Require(d >= 0 && d <= table.MaxLease, "WithInitialDelay(%v): want 0 to %v", d, table.MaxLease) {
			c.InitialDelay = d
		}
	})
}

// WithWeight gives this member n times the share of a member with weight 1. The default weight is 1, and the maximum is
// 1000. Group.SetWeight changes the weight later.
func WithWeight(n int) Option {
	return options.Option(func(c *options.Config) {
		if c.Require(n >= 1 && n <= table.MaxWeight, "WithWeight(%d): want 1 to %d", n, table.MaxWeight) {
			c.Weight = n
		}
	})
}

// WithIdentity makes the group remember this member's partitions for the duration d after the member has left or died.
// If a member with the same ID joins within that time, it gets these partitions back, up to its share, and no other
// partitions have to move. WithIdentity requires spindle.WithID.
//
// With spindle.WithReclaim, the default is ten lease durations. Without WithReclaim, the default is zero, so the group
// remembers nothing. The maximum is seven days.
func WithIdentity(d time.Duration) Option {
	return options.Option(func(c *options.Config) {
		if c.Require(d >= 0 && d <= table.MaxKeep, "WithIdentity(%v): want 0 to %v", d, table.MaxKeep) {
			c.Identity = d
		}
	})
}
