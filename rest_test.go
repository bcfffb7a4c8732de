package spindle_test

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spindle-lock/spindle"
	"github.com/spindle-lock/spindle/internal/table"
	"github.com/spindle-lock/spindle/internal/testkit/fleet"
)

// A process whose leader function can't start gives the lock up, so that a healthy candidate leads. It is not unhealthy,
// because a restart would not help more than its own next try.
func TestALeaderFunctionThatReturnsGivesTheLockToAHealthyCandidate(t *testing.T) {
	fleet.InVirtualTime(t, func(b *fleet.Fleet) {
		to, log := logging()
		var tries atomic.Int32
		a := b.Start("a", to, spindle.WithLeader(func(context.Context, spindle.Term) { tries.Add(1) }))
		c := b.Start("c", spindle.WithLeader(func(ctx context.Context, _ spindle.Term) { <-ctx.Done() }))
		b.Until(fleet.Lease/3+fleet.Lease/50, c.Has)
		token := c.Token()
		for range 100 {
			time.Sleep(fleet.Lease / 10)
			require.NoError(t, a.Live(nil))
			require.True(t, c.Has())
		}
		assert.Equal(t, token, c.Token())
		assert.EqualValues(t, 1, tries.Load())
		assert.Equal(t, 1, strings.Count(log.String(), "WARN"), log.String())
		lost := a.Seen.All()[1]
		assert.Equal(t, spindle.Lost, lost.Kind)
		require.ErrorIs(t, lost.Err, spindle.ErrSteppedDown)
		assert.EqualError(t, lost.Err, "stepped down: the leader function returned")
		b.End(a, c)
	})
}

// elections returns how many leases passed between a machine's elections.
func elections(m *fleet.Machine) (gaps []float64) {
	var last time.Time
	for _, e := range m.Seen.All() {
		if e.Kind != spindle.Elected {
			continue
		}
		if !last.IsZero() {
			gaps = append(gaps, e.At.Sub(last).Seconds()/fleet.Lease.Seconds())
		}
		last = e.At
	}
	return gaps
}

// The pauses of a leader function that keeps returning double up to three leases. A term of three leases begins anew,
// however it ends. In the meantime, the process is healthy, and one warning is enough.
func TestALeaderFunctionThatKeepsReturningLeadsEverMoreSeldom(t *testing.T) {
	stepDown := func(a *fleet.Machine) error { return a.StepDown(context.Background()) }
	for name, c := range map[string]struct {
		end  func(*fleet.Machine) error
		then []float64 // how many leases pass from election to election
	}{
		"by returning": {nil, []float64{3 + 1./3, 2. / 3, 4. / 3}},
		"by StepDown":  {stepDown, []float64{3 + 2./3, 1. / 3, 2. / 3}},
	} {
		end := c.end
		t.Run(name, func(t *testing.T) {
			fleet.InVirtualTime(t, func(b *fleet.Fleet) {
				to, log := logging()
				var works atomic.Bool
				a := b.Start("a", to, spindle.WithLeader(func(ctx context.Context, _ spindle.Term) {
					if !works.Load() {
						return
					}
					if end != nil {
						<-ctx.Done()
						return
					}
					time.Sleep(3 * fleet.Lease)
				}))
				for range 2000 {
					time.Sleep(fleet.Lease / 100)
					require.NoError(t, a.Health())
					require.NoError(t, a.Live(nil))
				}
				want := []float64{1. / 3, 2. / 3, 4. / 3, 8. / 3, 3, 3, 3, 3}
				gaps := elections(a)
				require.InDeltaSlice(t, want, gaps[:len(want)], 0.05)
				assert.Equal(t, 1, strings.Count(log.String(), "WARN"), log.String())

				works.Store(true)
				b.Until(3*fleet.Lease+fleet.Lease/10, a.Has)
				last := len(elections(a))
				works.Store(false)
				if end != nil {
					time.Sleep(3 * fleet.Lease)
					require.NoError(t, end(a))
				}
				time.Sleep(10 * fleet.Lease)
				gaps = elections(a)[last:]
				assert.InDeltaSlice(t, c.then, gaps[:len(c.then)], 0.1)
				b.End(a)
			})
		})
	}
}

// If the leader functions of all processes return, the lock does not go round and round.
func TestTwoProcessesWhoseLeaderFunctionsReturnTakeTurnsSlowly(t *testing.T) {
	for _, term := range []time.Duration{0, fleet.Lease / 2} { // the other one can see a term of half a lease
		fleet.InVirtualTime(t, func(b *fleet.Fleet) {
			lead := spindle.WithLeader(func(context.Context, spindle.Term) { time.Sleep(term) })
			a, c := b.Start("a", lead), b.Start("c", lead)
			for range 100 {
				time.Sleep(fleet.Lease)
				require.NoError(t, a.Health())
				require.NoError(t, c.Health())
			}
			for _, m := range []*fleet.Machine{a, c} {
				terms := strings.Count(m.Seen.Kinds(), "elected")
				assert.LessOrEqual(t, terms, 40)
				assert.Greater(t, terms, 25, "it tries again")
			}
			b.End(a, c)
		})
	}
}

// Nothing complains about a leader function that is meant to return.
func TestATermGoesOnWithoutItsLeaderFunctionIfItIsTo(t *testing.T) {
	fleet.InVirtualTime(t, func(b *fleet.Fleet) {
		to, log := logging()
		var terms atomic.Int32
		lead := spindle.WithLeader(func(context.Context, spindle.Term) { terms.Add(1) })
		a := b.Start("a", to, spindle.WithKeepOnReturn(), spindle.WithHandover(), lead)
		c := b.Start("c")
		for range 100 {
			time.Sleep(fleet.Lease / 10)
			require.True(t, a.Has())
			require.NoError(t, a.Health())
		}
		assert.EqualValues(t, 1, terms.Load())
		assert.NotContains(t, log.String(), "WARN")
		require.NoError(t, a.StepDown(context.Background()))
		b.Until(fleet.Lease/10, c.Has)
		b.End(a, c)
	})
}

// A function that returns because its term is over has not given the lock up, although the event for the loss may come
// after it. It competes again like any other candidate.
func TestALeaderFunctionThatReturnsAtALossIsNoReasonToRest(t *testing.T) {
	fleet.InVirtualTime(t, func(b *fleet.Fleet) {
		to, log := logging()
		a := b.Start("a", to, spindle.WithLeader(func(ctx context.Context, _ spindle.Term) { <-ctx.Done() }))
		for range 5 {
			b.Operator(table.Write{Kind: table.Delete, Name: fleet.Key(a.Token())})
			b.Until(fleet.Lease, func() bool { return !a.Has() })
			synctest.Wait()
			b.Until(fleet.Lease/3+fleet.Lease+fleet.Lease/25, a.Has)
		}
		assert.NotContains(t, log.String(), "the leader function returned before")
		b.End(a)
	})
}

// A candidate that rests does not become the successor of a leader that is leaving, because it could not claim the lock.
func TestACandidateThatRestsIsNobodysSuccessor(t *testing.T) {
	fleet.InVirtualTime(t, func(b *fleet.Fleet) {
		a := b.Start("a", spindle.WithLeader(func(context.Context, spindle.Term) {}))
		time.Sleep(6 * fleet.Lease) // from the fifth to the eighth lease, it rests
		c := b.Start("c")
		b.Until(fleet.Lease, c.Has)
		d := b.Start("d", spindle.WithPriority(8)) // only the highest priority can be a successor
		require.NoError(t, c.StepDown(context.Background()))
		b.Until(fleet.Lease/50+fleet.Lease/100, d.Has)
		assert.Zero(t, a.Link.Counts()["succeed"])
		b.End(a, c, d)
	})
}
