package spindle_test

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spindle-lock/spindle"
	"github.com/spindle-lock/spindle/group"
	"github.com/spindle-lock/spindle/internal/testkit/fleet"
	"github.com/spindle-lock/spindle/lock"
)

const stallsIn = 2 * fleet.Lease

// worker is a leader function that makes progress until it hangs. It ignores its ctx until it is let go.
type worker struct {
	step                  time.Duration // between two signs of progress
	hangs, free, returned chan struct{}
	term                  spindle.Term
	told                  error // the cause of its ctx, and when that was canceled
	at                    time.Time
}

func newWorker() *worker {
	return &worker{step: stallsIn * 4 / 9, hangs: make(chan struct{}), free: make(chan struct{}), returned: make(chan struct{})}
}

func (w *worker) lead(ctx context.Context, term spindle.Term) {
	w.term = term
	defer close(w.returned)
	defer context.AfterFunc(ctx, func() { w.told, w.at = context.Cause(ctx), time.Now() })()
	tick := time.NewTicker(w.step)
	defer tick.Stop()
	for {
		select {
		case <-w.hangs:
			term.Progress()
			<-w.free
			term.Progress() // too late
			return
		case <-tick.C:
			term.Progress()
		}
	}
}

// stalled starts a leader, whose work stalls, and a follower.
func stalled(b *fleet.Fleet, opts ...spindle.Option) (w *worker, a, c *fleet.Machine, log *fleet.Log) {
	to, log := logging()
	w = newWorker()
	first := true
	a = b.Start("a", append(opts, to, spindle.WithStall(stallsIn), spindle.WithLeader(func(ctx context.Context, term spindle.Term) {
		if first {
			first = false
			w.lead(ctx, term)
			return
		}
		<-ctx.Done() // it never makes progress
	}))...)
	c = b.Start("c")
	time.Sleep(100 * stallsIn)
	require.True(b.T, a.Has(), "it has always made progress")
	require.NotContains(b.T, log.String(), "progress")
	close(w.hangs)
	return w, a, c, log
}

// A leader whose work makes no progress says so in time. Then it does not hold the lock, and its work is told so at that very
// instant, but the lock is released only once the work has returned.
func TestALeaderWhoseWorkStallsDoesNotHoldTheLock(t *testing.T) {
	fleet.InVirtualTime(t, func(b *fleet.Fleet) {
		r := fleet.NewReports()
		w, a, c, log := stalled(b, r.Options())
		began, token := time.Now(), a.Token()
		assert.InDelta(t, stallsIn/2, b.Until(stallsIn, func() bool { return strings.Contains(log.String(), "has made no progress") }), float64(2*time.Millisecond))
		assert.Contains(t, log.String(), "for=10s left=10s")
		b.Until(stallsIn, func() bool { return !a.Has() })
		assert.InDelta(t, stallsIn, time.Since(began), float64(2*time.Millisecond))
		assert.ErrorIs(t, w.told, spindle.ErrStalled)
		assert.LessOrEqual(t, w.term.Left(), time.Duration(0))
		assert.ErrorIs(t, a.StepDown(context.Background()), spindle.ErrNotLeader)
		events := a.Seen.All()
		for i, kind := range []spindle.EventKind{spindle.Stalled, spindle.Lost} {
			e := events[len(events)-2+i]
			assert.Equal(t, kind, e.Kind)
			assert.Equal(t, token, e.Token)
			assert.ErrorIs(t, e.Err, spindle.ErrStalled)
		}
		time.Sleep(fleet.Lease - time.Millisecond)
		assert.False(t, c.Has(), "the work has not returned")
		close(w.free)
		took := b.Until(fleet.Lease, c.Has)
		assert.LessOrEqual(t, took, fleet.Lease/3+time.Millisecond, "it was released")
		metrics := r.Metrics(t)
		assert.Equal(t, 1.0, metrics["stalls{lock=mylock}"])
		assert.Equal(t, 1.0, metrics["terms{lock=mylock,reason=stalled}"])
		assert.Len(t, a.Seen.All(), len(events), "the term is over once")
		assert.NoError(t, a.Health())
		b.End(c)
		b.Until(fleet.Lease, a.Has)
		b.End(a)
	})
}

// Work that still hangs a lease after it has stalled keeps the lock from nobody. Its process does not compete meanwhile.
func TestWorkThatHangsKeepsTheLockForOneMoreLease(t *testing.T) {
	fleet.InVirtualTime(t, func(b *fleet.Fleet) {
		w, a, c, log := stalled(b)
		b.Until(stallsIn+time.Millisecond, func() bool { return !a.Has() })
		took := b.Until(3*fleet.Lease, c.Has)
		assert.Greater(t, took, fleet.Lease+fleet.Lease/2, "heartbeats ended a lease after the stall")
		assert.LessOrEqual(t, took, 2*fleet.Lease+fleet.Lease/50+time.Millisecond)
		b.End(c)
		time.Sleep(4 * fleet.Lease)
		assert.False(t, a.Has(), "its work still hangs")
		assert.ErrorContains(t, a.Health(), "the leader function has not returned since its term ended")
		assert.Equal(t, 1, strings.Count(log.String(), "msg=lost"))
		close(w.free)
		b.Until(2*fleet.Lease, a.Has)
		assert.NoError(t, a.Health())
		b.End(a)
	})
}

// The rule holds until the work has returned: also for work that was told to stop.
func TestWorkThatHangsAfterAStepDownStalls(t *testing.T) {
	fleet.InVirtualTime(t, func(b *fleet.Fleet) {
		w, a, c, _ := stalled(b)
		hung := stepDown(context.Background(), a)
		assert.ErrorContains(t, <-hung, "has not returned within one lease")
		b.Until(stallsIn, func() bool { return !a.Has() })
		assert.ErrorIs(t, w.told, spindle.ErrSteppedDown)
		b.Until(2*fleet.Lease+fleet.Lease/50, c.Has)
		assert.ErrorIs(t, a.Seen.All()[len(a.Seen.All())-2].Err, spindle.ErrStalled)
		a.Stop()
		assert.ErrorContains(t, <-a.Done, "has not returned")
		close(w.free)
		synctest.Wait()
		b.End(c)
	})
}

// A process that was stopped with its work hanging is left to its grace period, and not waited for longer.
func TestAStopOfWorkThatHasStalledEnds(t *testing.T) {
	fleet.InVirtualTime(t, func(b *fleet.Fleet) {
		w, a, c, _ := stalled(b)
		b.Until(stallsIn+time.Millisecond, func() bool { return !a.Has() })
		a.Stop()
		began := time.Now()
		assert.ErrorContains(t, <-a.Done, "has not returned")
		assert.LessOrEqual(t, time.Since(began), fleet.Lease)
		close(w.free)
		<-w.returned
		b.End(c)
	})
}

// Work that makes progress in time, but late, is said each time, and keeps the lock.
func TestSlowProgressIsSaidAndEnough(t *testing.T) {
	fleet.InVirtualTime(t, func(b *fleet.Fleet) {
		to, log := logging()
		w := newWorker()
		w.step = stallsIn * 9 / 10
		a := b.Start("a", to, spindle.WithStall(stallsIn), spindle.WithLeader(w.lead))
		time.Sleep(10*w.step + time.Millisecond)
		assert.True(t, a.Has())
		assert.Equal(t, 10, strings.Count(log.String(), "has made no progress"))
		close(w.free)
		close(w.hangs)
		b.End(a)
	})
}

// Progress of no work is an error. After the end of the work's context, it is the cause, also without the option.
func TestProgressSaysWhyTheWorkMustEnd(t *testing.T) {
	assert.Error(t, spindle.Term{}.Progress())
	assert.Error(t, group.Partition{}.Progress())
	assert.Error(t, lock.Progress(t.Context()))
	fleet.InVirtualTime(t, func(b *fleet.Fleet) {
		a := b.Start("a", spindle.WithLeader(func(ctx context.Context, term spindle.Term) {
			assert.NoError(t, term.Progress())
			<-ctx.Done()
			assert.ErrorIs(t, term.Progress(), context.Cause(ctx))
		}))
		time.Sleep(time.Hour)
		assert.True(t, a.Has())
		b.End(a)
	})
}
