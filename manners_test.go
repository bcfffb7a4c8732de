package spindle_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spindle-lock/spindle"
	"github.com/spindle-lock/spindle/internal/elect"
	"github.com/spindle-lock/spindle/internal/options"
	"github.com/spindle-lock/spindle/internal/table"
	"github.com/spindle-lock/spindle/internal/testkit/fleet"
)

// Candidates for one lock are considerate. These tests count which candidates look, which send requests, and which
// becomes the successor. Each count has a lower and an upper bound.

// StepDown waits for a release that takes long, because a release is sure to end, and returns its outcome.
func TestAReleaseThatHangsIsNotTakenForWorkThatHangs(t *testing.T) {
	fleet.InVirtualTime(t, func(b *fleet.Fleet) {
		var returned time.Time
		a := b.Start("a", spindle.WithLeader(func(ctx context.Context, _ spindle.Term) {
			<-ctx.Done()
			time.Sleep(fleet.Lease / 2)
			returned = time.Now()
		}))
		a.Link.Lose(func(step string) bool { return step == "release" }, nil)
		err := a.StepDown(context.Background())
		assert.ErrorContains(t, err, "left to expire")
		assert.NotContains(t, err.Error(), "has not returned")
		assert.GreaterOrEqual(t, time.Since(returned), fleet.Lease/2, "it was to hang for long enough")
		assert.LessOrEqual(t, time.Since(returned), fleet.Lease)
		b.End(a)
	})
}

// stalling is a clock that stalls the goroutine that reads it for the nth time, as if this goroutine were not
// scheduled.
type stalling struct {
	elect.SystemClock
	until atomic.Int64 // n; none if it is not positive
	stall time.Duration
}

func (c *stalling) Now() elect.Instant {
	if c.until.Add(-1) == 0 {
		time.Sleep(c.stall)
	}
	return c.SystemClock.Now()
}

// Whichever goroutine is slow, a lost term is not announced as leaving afterwards.
func TestATermThatWasLostIsNotSaidToBeLeaving(t *testing.T) {
	said, unsaid := 0, 0
	for n := range 12 {
		fleet.InVirtualTime(t, func(b *fleet.Fleet) {
			clock := &stalling{stall: 2 * fleet.Lease}
			a := b.Start("a", options.Option(func(c *options.Config) { c.Clock = clock }))
			b.Until(fleet.Lease, a.Has)
			token := a.Token()
			clock.until.Store(int64(n))
			done := stepDown(context.Background(), a)
			synctest.Wait()
			b.Operator(table.Write{Kind: table.Delete, Name: fleet.Key(token)})
			assert.Error(t, <-done)
			time.Sleep(3 * fleet.Lease)
			lost, leaving := false, false
			for _, ev := range a.Seen.All() {
				if ev.Token != token {
					continue
				}
				lost = lost || ev.Kind == spindle.Lost
				if ev.Kind == spindle.Leaving {
					leaving = true
					assert.False(t, lost, "reading %d: %s", n, a.Seen.Kinds())
				}
			}
			assert.True(t, lost)
			if leaving {
				said++
			} else {
				unsaid++
			}
			b.End(a)
		})
	}
	assert.NotZero(t, said)
	assert.NotZero(t, unsaid, "no goroutine was slow enough")
}

// The loop of a holder that was suspended has not yet noticed that its deadline has passed.
func TestNobodyIsElectedPastItsDeadline(t *testing.T) {
	fleet.InVirtualTime(t, func(b *fleet.Fleet) {
		a := b.Start("a")
		first := a.Token()
		soon, cancel := context.WithTimeout(context.Background(), time.Millisecond)
		defer cancel()
		token, err := a.WaitElected(soon)
		require.NoError(t, err)
		assert.Equal(t, first, token)

		a.Clock.Mono.Add(int64(fleet.Lease)) // the machine was suspended
		_, _, ok := a.Lock.Seen()
		assert.False(t, ok, "nor does it know a leader")
		token, err = a.WaitElected(soon)
		if soon.Err() == nil {
			token, err = a.WaitElected(soon)
		}
		assert.ErrorIs(t, err, context.DeadlineExceeded)
		assert.Zero(t, token)
		token, err = a.WaitElected(context.Background())
		require.NoError(t, err)
		assert.Greater(t, token, first)
		assert.Equal(t, a.Token(), token)
		b.End(a)
	})
}

// An operator's request does not affect requests of higher priority, which are accepted as before.
func TestAPreferenceIsAcceptedAfterAnOperatorsRequest(t *testing.T) {
	for range 5 {
		fleet.InVirtualTime(t, func(b *fleet.Fleet) {
			a := b.Start("a", spindle.WithHandover(), spindle.WithPriority(1))
			h, err := b.Machine("operator").RequestHandover(context.Background(), a.Token())
			require.NoError(t, err)
			require.Equal(t, "a", h.To.ID, "nobody else is there")
			c := b.Start("c", spindle.WithHandover())
			took := b.Until(20*fleet.Lease, c.Has)
			assert.GreaterOrEqual(t, took, 3*fleet.Lease, "it asks once it is known to be well")
			assert.LessOrEqual(t, took, 5*fleet.Lease, "a poll, a look for requests, and an announcement later")
			b.End(a, c)
		})
	}
}

// A release is found immediately if it comes soon. Followers of a leader whose work hangs look less and less often.
func TestFollowersOfALeaderThatLeavesForLongLookEverMoreSeldom(t *testing.T) {
	fleet.InVirtualTime(t, func(b *fleet.Fleet) {
		finish := make(chan struct{})
		a := b.Start("a", spindle.WithLeader(func(context.Context, spindle.Term) { <-finish }))
		followers := []*fleet.Machine{b.Start("c"), b.Start("d"), b.Start("e")}
		looks := func() (fewest, most int) {
			fewest = 1 << 30
			for _, m := range followers {
				n := m.Link.Counts()["observe"]
				fewest, most = min(fewest, n), max(most, n)
			}
			return fewest, most
		}
		done := stepDown(context.Background(), a)
		time.Sleep(fleet.Lease / 3)
		looks()
		time.Sleep(2 * fleet.Lease / 3)
		fewest, most := looks()
		assert.GreaterOrEqual(t, most, 60, "the successor, each hundredth of the lease")
		assert.LessOrEqual(t, most, 80)
		assert.GreaterOrEqual(t, fewest, 6, "the others, each tenth")
		assert.LessOrEqual(t, fewest, 16)
		time.Sleep(fleet.Lease)
		looks()
		time.Sleep(10 * fleet.Lease)
		fewest, most = looks()
		assert.LessOrEqual(t, most, 60, "each twentieth of how long it has left, and then each poll")
		assert.GreaterOrEqual(t, fewest, 30, "each poll at least")
		assert.Error(t, <-done)
		close(finish)
		b.End(append(followers, a)...)
	})
}

// successor returns the id of the successor that the leaving holder names, or "".
func successor(b *fleet.Fleet) string {
	seen, err := table.Table{Store: b.Store}.Observe(context.Background(), fleet.Name)
	require.NoError(b.T, err)
	if id, named := seen[0].Successor(); named {
		return id
	}
	return ""
}

// The successor looks most often, so it gets the lock. Among several priorities, it has the highest.
func TestTheSuccessorOfALeavingLeaderHasTheHighestPriority(t *testing.T) {
	won := 0
	const rounds = 20
	for range rounds {
		fleet.InVirtualTime(t, func(b *fleet.Fleet) {
			a := b.Start("a")
			lows := []*fleet.Machine{b.Start("l1", spindle.WithPriority(0)), b.Start("l2", spindle.WithPriority(5)), b.Start("l3", spindle.WithPriority(8))}
			high := b.Start("high")
			time.Sleep(time.Minute + rand.N(fleet.Lease))
			done := stepDown(context.Background(), a)
			named := map[string]bool{}
			b.Until(fleet.Lease, func() bool { named[successor(b)] = true; return !a.Has() })
			assert.Equal(t, map[string]bool{"": true, "high": true}, named, "nobody before the first look, and high from then on")
			require.NoError(t, <-done)
			b.Until(fleet.Lease/3, func() bool { return high.Has() || lows[0].Has() || lows[1].Has() || lows[2].Has() })
			if high.Has() {
				won++
			}
			b.End(append(lows, a, high)...)
		})
	}
	assert.GreaterOrEqual(t, won, 14, "of %d: it looks ten times as often", rounds)
	fleet.InVirtualTime(t, func(b *fleet.Fleet) { // without a high priority, the lock is claimed just as soon
		a, low := b.Start("a"), b.Start("low", spindle.WithPriority(0))
		done := stepDown(context.Background(), a)
		b.Until(fleet.Lease, func() bool { assert.Empty(t, successor(b)); return !a.Has() })
		require.NoError(t, <-done)
		b.Until(2*fleet.Lease/50+time.Millisecond, low.Has)
		b.End(a, low)
	})
}

// A candidate that could not confirm does not ask a leader to give up the lock until it has been healthy for three
// leases.
func TestACandidateThatCanNotConfirmDoesNotAsk(t *testing.T) {
	fleet.InVirtualTime(t, func(b *fleet.Fleet) {
		c := b.Machine("c", spindle.WithHandover())
		var failed atomic.Int64
		c.Link.Refuse(func(step string) error {
			if step != "confirm" {
				return nil
			}
			failed.Store(time.Now().UnixNano())
			return errors.New("no space")
		})
		b.Run(c)
		time.Sleep(time.Minute) // the candidate looks, claims and cools down again and again
		a := b.Start("a", spindle.WithHandover(), spindle.WithPriority(1))
		b.Until(3*fleet.Lease, a.Has)
		c.Link.Counts()
		b.Until(10*fleet.Lease, func() bool { return c.Link.Counts()["ask"] > 0 })
		since := time.Since(time.Unix(0, failed.Load()))
		assert.GreaterOrEqual(t, since, 3*fleet.Lease)
		assert.LessOrEqual(t, since, 4*fleet.Lease)
		time.Sleep(time.Hour)
		c.Link.Counts()
		time.Sleep(5 * time.Hour)
		asked := c.Link.Counts()["ask"]
		assert.GreaterOrEqual(t, asked, 3, "once in a term, and a ignores them for up to an hour")
		assert.LessOrEqual(t, asked, 15)
		b.End(a, c)
	})
}

// A preferred machine that has lost the lead is treated as one that has just been started.
func TestAPreferredCandidateWaitsThreeLeasesAfterItsOwnTerm(t *testing.T) {
	for _, end := range []string{"StepDown", "frozen"} {
		t.Run(end, func(t *testing.T) {
			fleet.InVirtualTime(t, func(b *fleet.Fleet) {
				c := b.Machine("c", spindle.WithHandover())
				var frozen atomic.Pointer[chan struct{}] // the machine's calls neither get through nor fail
				well := c.Link.Store
				c.Link.Store = table.Via(func(ctx context.Context, _ string, call func(context.Context, table.Store) error) error {
					if thawed := frozen.Load(); thawed != nil {
						<-*thawed
						ctx = context.WithoutCancel(ctx)
					}
					return call(ctx, well)
				})
				b.Run(c)
				b.Until(fleet.Lease, c.Has)
				a := b.Start("a", spindle.WithHandover(), spindle.WithPriority(1))
				time.Sleep(time.Hour)
				require.True(t, c.Has())
				thawed := make(chan struct{})
				if end == "frozen" {
					frozen.Store(&thawed)
				} else {
					require.NoError(t, c.StepDown(context.Background()))
				}
				b.Until(3*fleet.Lease, a.Has)
				c.Link.Counts()
				close(thawed)
				took := b.Until(10*fleet.Lease, func() bool { return c.Link.Counts()["ask"] > 0 })
				assert.GreaterOrEqual(t, took, 3*fleet.Lease-fleet.Lease/3, "three leases from its first look")
				assert.LessOrEqual(t, took, 4*fleet.Lease)
				b.End(a, c)
			})
		})
	}
}

// Three leases after its last failed poll, a preferred candidate has proved itself.
func TestAPreferredCandidateAsksThreeLeasesAfterAFailedPoll(t *testing.T) {
	fleet.InVirtualTime(t, func(b *fleet.Fleet) {
		a := b.Start("a", spindle.WithHandover(), spindle.WithPriority(1))
		c := b.Start("c", spindle.WithHandover())
		time.Sleep(2 * fleet.Lease)
		c.Link.Refuse(fleet.Refusing("observe", errors.New("unavailable")))
		time.Sleep(fleet.Lease)
		c.Link.Refuse(nil)
		took := b.Until(4*fleet.Lease, func() bool { return c.Link.Counts()["ask"] > 0 })
		assert.GreaterOrEqual(t, took, 3*fleet.Lease)
		b.Until(2*fleet.Lease, c.Has)
		b.End(a, c)
	})
}

// The time for which a low priority lets higher ones claim first does not depend on the lease, because short leases
// would otherwise win.
func TestTheBetterOfTwoFollowersLeadsWhateverTheirLeases(t *testing.T) {
	for _, lease := range []time.Duration{time.Second, time.Minute} {
		fleet.InVirtualTime(t, func(b *fleet.Fleet) {
			low := b.Start("low", spindle.WithLease(10*time.Second), spindle.WithPriority(2))
			worst := b.Start("worst", spindle.WithLease(time.Second), spindle.WithPriority(0))
			best := b.Start("best", spindle.WithLease(lease), spindle.WithPriority(5))
			time.Sleep(time.Minute)
			won := 0
			for range 20 {
				done := stepDown(context.Background(), low)
				b.Until(time.Minute, func() bool { return !low.Has() })
				b.Until(time.Minute, func() bool { return best.Has() || worst.Has() })
				require.NoError(t, <-done)
				first, other := worst, best
				if best.Has() {
					won++
					first, other = best, worst
				}
				other.Link.Cut()
				time.Sleep(fleet.Lease) // until low has seen the leader
				require.NoError(t, first.StepDown(context.Background()))
				b.Until(10*time.Minute, low.Has)
				other.Link.Mend()
				time.Sleep(time.Minute + fleet.Lease) // until all machines have seen it
			}
			assert.GreaterOrEqual(t, won, 16, "of 20, with a lease of %v: half would be chance", lease)
			b.End(low, worst, best)
		})
	}
}

// Even with a lease of hours, the priority delay is at most one second.
func TestThePriorityDelayIsASecondAtMost(t *testing.T) {
	fleet.InVirtualTime(t, func(b *fleet.Fleet) {
		a := b.Start("a", spindle.WithLease(24*time.Hour), spindle.WithPriority(0))
		time.Sleep(time.Minute)
		b.End(a)
		b.Run(a)
		took := b.Until(time.Minute, a.Has)
		assert.LessOrEqual(t, took, 2*time.Second, "and a random pause of another at most")
		b.End(a)
	})
}
