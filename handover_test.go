package spindle_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/spindle-lock/spindle"
	"github.com/spindle-lock/spindle/internal/elect"
	"github.com/spindle-lock/spindle/internal/options"
	"github.com/spindle-lock/spindle/internal/table"
	"github.com/spindle-lock/spindle/internal/testkit/fleet"
	"github.com/spindle-lock/spindle/internal/testkit/memstore"
)

// stepDown calls StepDown in the background.
func stepDown(ctx context.Context, m *fleet.Machine) <-chan error {
	done := make(chan error, 1)
	go func() { done <- m.StepDown(ctx) }()
	return done
}

// gap returns how long no machine holds the lock, from the time at which the given machine loses it.
func gap(b *fleet.Fleet, from *fleet.Machine, to ...*fleet.Machine) time.Duration {
	b.T.Helper()
	b.Until(3*fleet.Lease, func() bool { return !from.Has() })
	return b.Until(3*fleet.Lease, func() bool {
		for _, m := range to {
			if m.Has() {
				return true
			}
		}
		return false
	})
}

func TestAnAnnouncedLeaderIsReplacedWithinAFiftiethOfALease(t *testing.T) {
	stops := map[string]func(*fleet.Machine){
		"StepDown":       func(m *fleet.Machine) { stepDown(context.Background(), m) },
		"the end of Run": func(m *fleet.Machine) { m.Stop() },
	}
	for name, stop := range stops {
		t.Run(name, func(t *testing.T) {
			for range 4 { // a follower that happens to look at that time is just as fast
				fleet.InVirtualTime(t, func(b *fleet.Fleet) {
					a := b.Start("a", spindle.WithHandover())
					others := []*fleet.Machine{b.Start("c"), b.Start("d"), b.Start("e")}
					time.Sleep(time.Minute)
					began := time.Now()
					stop(a)
					assert.LessOrEqual(t, gap(b, a, others...), fleet.Lease/50+time.Millisecond)
					assert.LessOrEqual(t, time.Since(began), fleet.Lease/3+fleet.Lease/50+10*time.Millisecond)
					assert.GreaterOrEqual(t, time.Since(began), fleet.Lease/3)
					a.Stop()
					b.End(others...)
				})
			}
		})
	}
}

// Run can end while the work of a leader that has stepped down is still returning. The reason of the Lost event is the
// same as that of the work's context.
func TestATermEndsForTheReasonThatItsWorkWasCanceledFor(t *testing.T) {
	fleet.InVirtualTime(t, func(b *fleet.Fleet) {
		var cause error
		a := b.Start("a", spindle.WithLeader(func(ctx context.Context, _ spindle.Term) {
			<-ctx.Done()
			cause = context.Cause(ctx)
			time.Sleep(fleet.Lease / 2)
		}))
		done := stepDown(context.Background(), a)
		time.Sleep(fleet.Lease/3 + time.Second) // the term has been announced
		a.Stop()
		require.NoError(t, <-done)
		require.ErrorIs(t, cause, spindle.ErrSteppedDown)
		assert.Equal(t, spindle.Lost, a.Seen.Last().Kind)
		assert.ErrorIs(t, a.Seen.Last().Err, spindle.ErrSteppedDown)
	})
}

// A leader continues to work while its followers learn that it is leaving, and only then stops.
func TestALeaderThatStepsDownWorksUntilItsFollowersKnow(t *testing.T) {
	fleet.InVirtualTime(t, func(b *fleet.Fleet) {
		var told, returned time.Time
		var cause error
		a := b.Start("a", spindle.WithLeader(func(ctx context.Context, _ spindle.Term) {
			<-ctx.Done()
			told, cause = time.Now(), context.Cause(ctx)
			time.Sleep(fleet.Lease / 2)
			returned = time.Now()
		}), spindle.WithHeartbeat(9*time.Second)) // rare heartbeats do not make the announcement longer
		c := b.Start("c")
		first := a.Token()
		began := time.Now()
		require.NoError(t, a.StepDown(context.Background()))
		assert.GreaterOrEqual(t, told.Sub(began), fleet.Lease/3)
		assert.Less(t, told.Sub(began), fleet.Lease/3+fleet.Lease/50)
		assert.ErrorIs(t, cause, spindle.ErrSteppedDown)
		assert.False(t, returned.IsZero(), "released while the work went on")
		assert.False(t, a.Has())
		b.Until(fleet.Lease/50+time.Millisecond, c.Has)
		assert.Greater(t, c.Token(), first)
		assert.Equal(t, "elected, leaving, lost", a.Seen.Kinds())
		assert.ErrorIs(t, a.Seen.Last().Err, spindle.ErrSteppedDown)
		assert.Equal(t, "leader seen, leaving, leader gone, elected", c.Seen.Kinds())
		time.Sleep(fleet.Lease)
		assert.Equal(t, "elected, leaving, lost, leader seen", a.Seen.Kinds(), "it is a candidate again")
		b.End(a, c)
	})
}

// A follower says of each leader that it is leaving, even of one that was leaving when the follower first saw it, as in a
// rolling update.
func TestEachLeaderThatIsLeavingIsSaidToBe(t *testing.T) {
	fleet.InVirtualTime(t, func(b *fleet.Fleet) {
		slow := spindle.WithLeader(func(ctx context.Context, _ spindle.Term) { <-ctx.Done(); time.Sleep(fleet.Lease / 2) })
		a, d := b.Start("a"), b.Start("d", slow)
		c := b.Start("c", spindle.WithPriority(0))
		first := stepDown(context.Background(), a)
		b.Until(fleet.Lease, func() bool { return strings.HasSuffix(c.Seen.Kinds(), "leader seen, leaving") })
		c.Link.Refuse(fleet.Refusing("observe", errors.New("unavailable")))
		b.Until(fleet.Lease, d.Has)
		second := stepDown(context.Background(), d)
		synctest.Wait()
		c.Link.Refuse(nil)
		b.Until(fleet.Lease, func() bool { return strings.HasSuffix(c.Seen.Kinds(), "leaving, leader gone, leader seen, leaving") })
		require.NoError(t, <-first)
		require.NoError(t, <-second)
		b.End(a, d, c)
	})
}

func TestWhoIsLeavingIsStillSaid(t *testing.T) {
	fleet.InVirtualTime(t, func(b *fleet.Fleet) {
		a := b.Start("a", spindle.WithValue("http://a"))
		c := b.Start("c", spindle.WithPoll(fleet.Lease/10)) // by default, it may read in the announcement's last millisecond
		done := stepDown(context.Background(), a)
		time.Sleep(fleet.Lease/3 - time.Millisecond)
		synctest.Wait()
		require.True(t, a.Has())
		leader, err := b.Machine("reader").Leader(context.Background())
		require.NoError(t, err)
		assert.Equal(t, spindle.Leader{ID: "a", Value: "http://a", Token: a.Token(), Lease: fleet.Lease, Leaving: true, Heartbeat: leader.Heartbeat}, leader)
		for _, m := range []*fleet.Machine{a, c} {
			seen, _, ok := m.Lock.Seen()
			assert.True(t, ok)
			assert.True(t, seen.Leaving)
			assert.Equal(t, "a", seen.ID)
		}
		require.NoError(t, <-done)
		b.End(a, c)
	})
}

// A candidate may immediately claim a lock that it sees without a holder, but not the lock that it has just given up.
func TestWhoStepsDownLetsOthersGoFirst(t *testing.T) {
	for _, opts := range [][]spindle.Option{nil, {spindle.WithReclaim()}} {
		fleet.InVirtualTime(t, func(b *fleet.Fleet) {
			a := b.Start("a", opts...)
			c := b.Start("c", spindle.WithPoll(fleet.Lease/4))
			c.Link.Lose(nil, nil)
			require.NoError(t, a.StepDown(context.Background()))
			b.Until(fleet.Lease/2, c.Has)
			synctest.Wait()
			assert.Equal(t, 1, strings.Count(a.Seen.Kinds(), "elected"))
			b.End(a, c)
		})
		fleet.InVirtualTime(t, func(b *fleet.Fleet) { // there are no other candidates
			a := b.Start("a", opts...)
			require.NoError(t, a.StepDown(context.Background()))
			again := b.Until(fleet.Lease, a.Has)
			assert.GreaterOrEqual(t, again, fleet.Lease/3-time.Millisecond)
			assert.Less(t, again, 2*fleet.Lease/3+time.Second)
			b.End(a)
		})
		fleet.InVirtualTime(t, func(b *fleet.Fleet) { // it is unknown whether the lock was released
			a := b.Start("a", opts...)
			last := b.Store.Rows()[fleet.Name].Heartbeat
			a.Link.Refuse(fleet.Refusing("release", errors.New("refused")))
			assert.ErrorContains(t, a.StepDown(context.Background()), "refused")
			a.Link.Refuse(nil)
			again := b.Until(3*fleet.Lease, a.Has)
			assert.False(t, a.Token().Time().Before(last.Add(fleet.Lease)))
			assert.GreaterOrEqual(t, again, fleet.Lease-time.Millisecond, "the others may have to wait for its lease to expire")
			assert.Less(t, again, 4*fleet.Lease/3+time.Second)
			b.End(a)
		})
	}
}

// A leader that was told to step down leaves the lock to others for a lease, even if it loses the lock before its work has
// returned. If it took the lock back as soon as it could, the step-down would have changed nothing.
func TestWhoLosesTheLockWhileItStepsDownLetsOthersGoFirst(t *testing.T) {
	for name, lose := range map[string]func(*fleet.Machine){
		"its heartbeats fail":      func(a *fleet.Machine) { a.Link.Refuse(func(string) error { return errors.New("refused") }) },
		"its machine is suspended": func(a *fleet.Machine) { a.Clock.Wall.Add(int64(fleet.Lease)) },
	} {
		t.Run(name, func(t *testing.T) {
			fleet.InVirtualTime(t, func(b *fleet.Fleet) {
				work := make(chan struct{})
				a := b.Start("a", spindle.WithLeader(func(ctx context.Context, _ spindle.Term) { <-ctx.Done(); <-work }))
				stepDown(context.Background(), a)
				time.Sleep(fleet.Lease / 2) // the work has been told to stop
				lose(a)
				b.Until(2*fleet.Lease, func() bool { return strings.HasSuffix(a.Seen.Kinds(), "lost") })
				assert.ErrorIs(t, a.Seen.Last().Err, spindle.ErrExpired)
				a.Link.Refuse(nil)
				close(work)
				again := b.Until(3*fleet.Lease, a.Has)
				assert.GreaterOrEqual(t, again, fleet.Lease-time.Millisecond)
				assert.Less(t, again, 4*fleet.Lease/3+time.Second)
				b.End(a)
			})
		})
	}
}

// An operator who breaks a lock wants it to have a different holder.
func TestABrokenLockGoesToAnother(t *testing.T) {
	for range 20 {
		fleet.InVirtualTime(t, func(b *fleet.Fleet) {
			a, c := b.Start("a"), b.Start("c")
			time.Sleep(time.Minute)
			require.NoError(t, table.Table{Store: b.Store}.Release(b.T.Context(), table.Token(a.Token()), fleet.Name))
			b.Until(fleet.Lease, c.Has)
			assert.NotContains(t, a.Seen.Kinds(), "lost, elected")
			b.End(a, c)
		})
	}
	fleet.InVirtualTime(t, func(b *fleet.Fleet) { // there is no other candidate
		a := b.Start("a")
		require.NoError(t, table.Table{Store: b.Store}.Release(b.T.Context(), table.Token(a.Token()), fleet.Name))
		b.Until(fleet.Lease, func() bool { return !a.Has() })
		again := b.Until(fleet.Lease, a.Has)
		assert.Less(t, again, fleet.Lease/2)
		assert.GreaterOrEqual(t, again, fleet.Lease/3-time.Millisecond)
		b.End(a)
	})
}

func TestStepDownSaysWhatHolds(t *testing.T) {
	fleet.InVirtualTime(t, func(b *fleet.Fleet) {
		release := make(chan struct{})
		a := b.Start("a", spindle.WithLeader(func(ctx context.Context, _ spindle.Term) { <-ctx.Done(); <-release }))
		c := b.Start("c")
		assert.ErrorIs(t, c.StepDown(context.Background()), spindle.ErrNotLeader)

		limited, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		err := a.StepDown(limited)
		assert.ErrorIs(t, err, context.DeadlineExceeded)
		assert.ErrorContains(t, err, "still held")
		assert.True(t, a.Has())

		err = a.StepDown(context.Background())
		assert.ErrorContains(t, err, "has not returned within one lease duration")
		time.Sleep(10 * fleet.Lease)
		assert.True(t, a.Has(), "work that goes on keeps the lock")
		began := time.Now()
		err = a.StepDown(context.Background())
		assert.ErrorContains(t, err, "has not returned within one lease duration")
		assert.Zero(t, time.Since(began), "this is known by now")
		seen, _, _ := a.Lock.Seen()
		assert.True(t, seen.Leaving)
		close(release)
		b.Until(fleet.Lease, c.Has)
		b.End(a, c)
	})
	fleet.InVirtualTime(t, func(b *fleet.Fleet) {
		a := b.Start("a")
		done := stepDown(context.Background(), a)
		synctest.Wait()
		b.Operator(table.Write{Kind: table.Delete, Name: fleet.Key(a.Token())})
		assert.ErrorIs(t, <-done, spindle.ErrSuperseded)
		b.End(a)
	})
	fleet.InVirtualTime(t, func(b *fleet.Fleet) {
		a := b.Start("a")
		b.Operator(table.Write{Kind: table.Delete, Name: fleet.Key(a.Token())})
		began := time.Now()
		assert.ErrorIs(t, a.StepDown(context.Background()), spindle.ErrSuperseded)
		assert.Zero(t, time.Since(began), "the announcement was refused")
		b.End(a)
	})
	fleet.InVirtualTime(t, func(b *fleet.Fleet) {
		a := b.Start("a")
		a.Link.Cut()
		began := time.Now()
		err := a.StepDown(context.Background())
		assert.Error(t, err)
		assert.LessOrEqual(t, time.Since(began), 2*fleet.Lease)
		assert.False(t, a.Has())
		b.End(a)
	})
	fleet.InVirtualTime(t, func(b *fleet.Fleet) {
		a := b.Start("a")
		done := stepDown(context.Background(), a)
		time.Sleep(fleet.Lease / 6)
		a.Clock.Mono.Add(int64(fleet.Lease)) // the machine was suspended
		assert.ErrorIs(t, <-done, spindle.ErrExpired)
		b.End(a)
	})
}

// StepDown returns an error once the work has not returned for a lease, even if Run's ctx ends in the meantime.
func TestAStepDownIsAnsweredAfterALeaseAlsoIfRunEnds(t *testing.T) {
	for _, stops := range []time.Duration{fleet.Lease / 2, fleet.Lease - time.Millisecond} { // after the work was told to stop
		fleet.InVirtualTime(t, func(b *fleet.Fleet) {
			canceled, work := make(chan time.Time, 1), make(chan struct{})
			a := b.Start("a", spindle.WithLeader(func(ctx context.Context, _ spindle.Term) { <-ctx.Done(); canceled <- time.Now(); <-work }))
			done := stepDown(context.Background(), a)
			told := <-canceled
			time.AfterFunc(stops, a.Stop)
			assert.ErrorContains(t, <-done, "has not returned within one lease duration")
			assert.InDelta(t, fleet.Lease, time.Since(told), float64(2*time.Millisecond))
			began := time.Now()
			assert.ErrorContains(t, a.StepDown(context.Background()), "has not returned within one lease duration")
			assert.Zero(t, time.Since(began), "this is known by now")
			close(work)
			b.End(a)
		})
	}
}

// The leader function can call StepDown itself. Its ctx ends while it waits for StepDown to return.
func TestALeaderFunctionStepsDown(t *testing.T) {
	fleet.InVirtualTime(t, func(b *fleet.Fleet) {
		var a *fleet.Machine
		a = b.Machine("a", spindle.WithLeader(func(ctx context.Context, _ spindle.Term) {
			time.Sleep(time.Second)
			assert.ErrorIs(t, a.StepDown(ctx), spindle.ErrSteppedDown)
		}))
		b.Run(a)
		c := b.Start("c")
		b.Until(fleet.Lease, c.Has)
		b.End(a, c)
	})
}

func TestARequestIsAccepted(t *testing.T) {
	fleet.InVirtualTime(t, func(b *fleet.Fleet) {
		a := b.Start("a", spindle.WithHandover())
		c := b.Start("c", spindle.WithHandover())
		time.Sleep(time.Minute)
		operator := b.Machine("operator")
		began := time.Now()
		h, err := operator.RequestHandover(context.Background(), a.Token())
		require.NoError(t, err)
		assert.LessOrEqual(t, time.Since(began), fleet.Lease+fleet.Lease/2)
		assert.GreaterOrEqual(t, time.Since(began), fleet.Lease/3)
		assert.Equal(t, "a", h.From.ID)
		assert.Equal(t, "c", h.To.ID)
		assert.Equal(t, c.Token(), h.To.Token)
		assert.LessOrEqual(t, h.Gap, fleet.Lease/50+time.Millisecond)

		_, err = operator.RequestHandover(context.Background(), h.From.Token)
		assert.ErrorIs(t, err, spindle.ErrSuperseded, "an old term's request reaches nobody")
		time.Sleep(10 * fleet.Lease)
		assert.Equal(t, h.To.Token, c.Token())
		b.End(a, c)
	})
}

func TestARequestSaysWhatCameOfIt(t *testing.T) {
	fleet.InVirtualTime(t, func(b *fleet.Fleet) {
		operator := b.Machine("operator")
		request := func(limit time.Duration, token spindle.Token) (spindle.Handover, error) {
			limited, cancel := context.WithTimeout(context.Background(), limit)
			defer cancel()
			return operator.RequestHandover(limited, token)
		}
		a := b.Start("a")
		_, err := request(fleet.Lease, a.Token())
		assert.ErrorIs(t, err, spindle.ErrHandoverUnsupported)
		b.End(a)
		_, err = request(fleet.Lease, 17)
		assert.ErrorIs(t, err, spindle.ErrSuperseded)

		c := b.Start("c", spindle.WithHandover())
		token := c.Token()
		_, err = request(time.Millisecond, token)
		assert.ErrorIs(t, err, context.DeadlineExceeded)
		assert.ErrorContains(t, err, "the leader was asked")
		operator.Link.Refuse(fleet.Refusing("ask", errors.New("unavailable")))
		_, err = request(time.Second, token)
		assert.ErrorIs(t, err, context.DeadlineExceeded)
		assert.ErrorContains(t, err, "it is not known whether the request arrived")
		assert.ErrorContains(t, err, "unavailable")
		operator.Link.Refuse(fleet.Refusing("ask", status.Error(codes.PermissionDenied, "no")))
		_, err = operator.RequestHandover(context.Background(), token)
		assert.NotContains(t, fmt.Sprint(err), "not known", "it was refused")
		assert.ErrorContains(t, err, "no")

		operator.Link.Refuse(nil)
		h, err := operator.RequestHandover(context.Background(), token) // nobody else is there
		require.NoError(t, err)
		assert.Equal(t, h.From.ID, h.To.ID)
		c.Link.Cut() // the machine crashes
		token = h.To.Token
		_, err = request(2*fleet.Lease, token)
		assert.ErrorContains(t, err, "the leader's heartbeats have stopped, but it has not released the lock")
		_, err = request(fleet.Lease, token)
		assert.ErrorIs(t, err, spindle.ErrNoLeader)
		assert.NotErrorIs(t, err, spindle.ErrSuperseded)
		b.End(c)
	})
}

func TestAPreferredCandidateGetsTheLock(t *testing.T) {
	fleet.InVirtualTime(t, func(b *fleet.Fleet) {
		a := b.Start("a", spindle.WithHandover(), spindle.WithPriority(1))
		d := b.Start("d", spindle.WithHandover(), spindle.WithPriority(1))
		time.Sleep(time.Hour)
		require.True(t, a.Has(), "equal priorities never ask")
		c := b.Start("c", spindle.WithHandover())
		took := b.Until(10*fleet.Lease, c.Has)
		assert.GreaterOrEqual(t, took, 3*fleet.Lease, "it asks once it is known to be well")
		assert.Less(t, took, 6*fleet.Lease)
		token := c.Token()
		time.Sleep(time.Hour)
		assert.Equal(t, token, c.Token(), "no flapping")
		b.End(a, c, d)
	})
	fleet.InVirtualTime(t, func(b *fleet.Fleet) {
		a := b.Start("a", spindle.WithPriority(1)) // this machine accepts no requests
		c := b.Start("c")
		time.Sleep(time.Hour)
		assert.True(t, a.Has())
		assert.Zero(t, c.Link.Counts()["ask"])
		b.End(a, c)
	})
}

// A preferred candidate whose only request was lost must not wait for the end of a term that may last for weeks.
func TestAPreferenceThatIsLostIsSentAgain(t *testing.T) {
	fleet.InVirtualTime(t, func(b *fleet.Fleet) {
		a, c := b.Start("a", spindle.WithHandover(), spindle.WithPriority(1)), b.Start("c", spindle.WithHandover())
		lost := 0
		c.Link.Lose(func(step string) bool {
			if step == "ask" {
				lost++
			}
			return step == "ask" && lost <= 2
		}, nil)
		assert.Less(t, b.Until(10*fleet.Lease, c.Has), 8*fleet.Lease)
		assert.Greater(t, lost, 2)
		b.End(a, c)
	})
}

// After a crash, priorities cost at most a fiftieth of a lease.
func TestAPriorityDelaysLowerOnes(t *testing.T) {
	won := map[string]int{}
	for range 8 {
		fleet.InVirtualTime(t, func(b *fleet.Fleet) {
			a := b.Start("a")
			low, high := b.Start("low", spindle.WithPriority(0)), b.Start("high", spindle.WithPriority(9))
			a.Link.Cut()
			last := b.Store.Rows()[fleet.Name].Heartbeat
			b.Until(2*fleet.Lease, func() bool { return low.Has() || high.Has() })
			winner := low
			if high.Has() {
				winner = high
			}
			won[winner.Seen.Kinds()]++
			if high.Has() {
				won["high"]++
			}
			assert.Less(t, winner.Token().Time().Sub(last), fleet.Lease+2*fleet.Lease/50+10*time.Millisecond)
			assert.GreaterOrEqual(t, winner.Token().Time().Sub(last), fleet.Lease)
			b.End(a, low, high)
		})
	}
	assert.Equal(t, 8, won["high"], fmt.Sprint(won))
	fleet.InVirtualTime(t, func(b *fleet.Fleet) {
		a := b.Start("a")
		low := b.Start("low", spindle.WithPriority(0))
		a.Link.Cut()
		last := b.Store.Rows()[fleet.Name].Heartbeat
		b.Until(2*fleet.Lease, low.Has)
		assert.Less(t, low.Token().Time().Sub(last), fleet.Lease+2*fleet.Lease/50+10*time.Millisecond)
		assert.GreaterOrEqual(t, low.Token().Time().Sub(last), fleet.Lease+fleet.Lease/50)
		b.End(a, low)
	})
}

// A preferred candidate that can look and send requests, but cannot hold the lock, must not keep the lock free forever.
func TestAPreferenceThatLeadsToNothingIsAcceptedEverMoreSeldom(t *testing.T) {
	fleet.InVirtualTime(t, func(b *fleet.Fleet) {
		a := b.Start("a", spindle.WithHandover(), spindle.WithPriority(1))
		c := b.Machine("c", spindle.WithHandover())
		c.Link.Refuse(fleet.Refusing("claim", errors.New("read only")))
		b.Run(c)
		var terms []time.Time
		for began := time.Now(); time.Since(began) < 12*time.Hour; {
			token := a.Token()
			time.Sleep(3 * time.Second)
			if now := a.Token(); now != 0 && now != token {
				terms = append(terms, time.Now())
			}
		}
		assert.LessOrEqual(t, len(terms), 2*(12+8), "%v", terms)
		assert.GreaterOrEqual(t, len(terms), 10)
		b.End(a, c)
	})
}

// This is the same with two candidates that take turns. The preferred candidate can claim, but cannot confirm.
func TestAPreferenceThatLeadsToNothingIsAcceptedEverMoreSeldomByEach(t *testing.T) {
	fleet.InVirtualTime(t, func(b *fleet.Fleet) {
		others := []*fleet.Machine{b.Start("a", spindle.WithHandover(), spindle.WithPriority(1)), b.Start("d", spindle.WithHandover(), spindle.WithPriority(1))}
		c := b.Machine("c", spindle.WithHandover())
		c.Link.Refuse(fleet.Refusing("confirm", errors.New("no space")))
		b.Run(c)
		terms, free, last := 0, time.Duration(0), spindle.Token(0)
		for began := time.Now(); time.Since(began) < 12*time.Hour; time.Sleep(3 * time.Second) {
			switch now := max(others[0].Token(), others[1].Token()); {
			case now == 0:
				free += 3 * time.Second
			case now != last:
				last = now
				terms++
			}
		}
		assert.LessOrEqual(t, terms, 2*2*(12+8))
		assert.GreaterOrEqual(t, terms, 10)
		assert.Less(t, free, time.Hour)
		assert.Greater(t, free, time.Minute)
		b.End(append(others, c)...)
	})
}

// The writer of a leaving row no longer names the holder.
func TestARestartedProcessReclaimsWhatItWasLeaving(t *testing.T) {
	for _, named := range []bool{false, true} {
		fleet.InVirtualTime(t, func(b *fleet.Fleet) {
			killed := b.Start("a", spindle.WithReclaim())
			others := []*fleet.Machine{}
			if named {
				others = append(others, b.Start("c"))
			}
			first := killed.Token()
			limited, cancel := context.WithTimeout(context.Background(), fleet.Lease/3-time.Millisecond)
			defer cancel()
			assert.ErrorIs(t, killed.StepDown(limited), context.DeadlineExceeded)
			assert.NotEqual(t, "a", b.Store.Rows()[fleet.Name].Writer)
			killed.Link.Cut() // otherwise it would continue to send heartbeats

			again := b.Start("a", spindle.WithReclaim())
			b.Until(fleet.Lease/10, again.Has)
			assert.Greater(t, again.Token(), first)
			assert.Equal(t, "elected", again.Seen.Kinds(), "its former self leads no more")
			b.End(append(others, killed, again)...)
		})
	}
}

// A candidate that wins although Run's ctx has ended meanwhile gives the lock back at once. No work begins. The election
// is not broken off, because it would not be known whether it had succeeded. If an operator takes the lock first, nothing is left to do.
func TestNoWorkBeginsAfterTheEndOfRun(t *testing.T) {
	for _, taken := range []bool{false, true} {
		fleet.InVirtualTime(t, func(b *fleet.Fleet) {
			a := b.Machine("a", spindle.WithLeader(func(context.Context, spindle.Term) { t.Error("the leader function was called") }))
			a.Link.Store = table.Via(func(ctx context.Context, step string, call func(context.Context, table.Store) error) error {
				if step == "confirm" {
					elect.Sleep(ctx, a.Clock, time.Second)
					if ctx.Err() != nil {
						return ctx.Err()
					}
				}
				err := call(ctx, b.Store)
				if step == "confirm" && taken {
					_ = table.Table{Store: b.Store}.Break(ctx, table.TokenAt(b.Store.Rows()[fleet.Name].Token), fleet.Name)
				}
				return err
			})
			b.Run(a)
			a.Stop()
			require.NoError(t, <-a.Done)
			assert.Empty(t, a.Seen.Kinds())
			assert.True(t, b.Store.Rows()[fleet.Name].Heartbeat.IsZero(), "the lock is free")
			assert.Zero(t, a.Link.Counts()["withdraw"])
		})
	}
}

// An announcement goes on after the end of Run's ctx only if that would be announced, too.
func TestAnAnnouncementEndsWithRunUnlessThatIsAnnounced(t *testing.T) {
	for after, opts := range map[time.Duration][]spindle.Option{fleet.Lease / 6: nil, fleet.Lease / 3: {spindle.WithHandover()}} {
		fleet.InVirtualTime(t, func(b *fleet.Fleet) {
			var told time.Time
			a := b.Start("a", append(opts, spindle.WithLeader(func(ctx context.Context, _ spindle.Term) {
				<-ctx.Done()
				told = time.Now()
			}))...)
			began := time.Now()
			done := stepDown(context.Background(), a)
			time.Sleep(fleet.Lease / 6)
			a.Stop()
			require.NoError(t, <-a.Done)
			require.NoError(t, <-done)
			assert.InDelta(t, after.Seconds(), told.Sub(began).Seconds(), 0.1)
		})
	}
}

// A StepDown that comes while the lock is being released has the result of the release.
func TestAStepDownAtTheEndOfATermIsAnswered(t *testing.T) {
	for name, end := range map[string]func(*fleet.Machine){
		"by StepDown":       func(m *fleet.Machine) { stepDown(context.Background(), m) },
		"by the end of Run": func(m *fleet.Machine) { m.Stop() },
	} {
		t.Run(name, func(t *testing.T) {
			fleet.InVirtualTime(t, func(b *fleet.Fleet) {
				ticks, late := &clock{}, make(chan struct{})
				a := b.Machine("a", options.Option(func(c *options.Config) { c.Clock = ticks }))
				a.Link.After(func(step string) {
					if step == "release" {
						close(late)
						time.Sleep(time.Second)
					}
				})
				b.Run(a)
				limited, cancel := context.WithTimeout(context.Background(), fleet.Lease)
				defer cancel()
				ticks.probe.Store(func() { <-late }) // StepDown has seen the term, and then stands still
				done := stepDown(limited, a)
				synctest.Wait()
				ticks.probe.Store(func() {})
				end(a)
				require.NoError(t, <-done)
				a.Link.After(nil)
				b.End(a)
			})
		})
	}
}

// A call that waits for a release returns the release's error, even if Run's ctx ends during the call.
func TestAStopWhileSteppingDownSaysThatTheReleaseFailed(t *testing.T) {
	fleet.InVirtualTime(t, func(b *fleet.Fleet) {
		a := b.Start("a", spindle.WithLeader(func(ctx context.Context, _ spindle.Term) {
			<-ctx.Done()
			time.Sleep(time.Second)
		}))
		a.Link.Refuse(fleet.Refusing("release", errors.New("refused")))
		done := stepDown(context.Background(), a)
		b.Until(fleet.Lease/2, func() bool { return a.Link.Counts()["announce"] > 0 })
		time.Sleep(fleet.Lease/3 + time.Millisecond)
		a.Stop()
		assert.ErrorContains(t, <-done, "refused")
		assert.ErrorContains(t, <-a.Done, "refused")
	})
}

// A holder whose work has returned does not wait for its followers, because no process does any work during such a
// wait.
func TestALeaderWhoseWorkHasReturnedDoesNotWaitForItsFollowers(t *testing.T) {
	fleet.InVirtualTime(t, func(b *fleet.Fleet) {
		to, log := logging()
		finish := make(chan struct{})
		a := b.Start("a", to, spindle.WithHandover(), spindle.WithLeader(func(context.Context, spindle.Term) { <-finish }))
		a.Stop()
		time.Sleep(time.Second)
		synctest.Wait()
		assert.True(t, a.Has())
		close(finish)
		synctest.Wait()
		assert.False(t, a.Has())
		assert.NotContains(t, log.String(), "WARN", "the work was to end")
		b.End(a)
	})
}

// Once done has its value, the Spanner client can be closed.
func TestNothingLooksForRequestsAfterDone(t *testing.T) {
	fleet.InVirtualTime(t, func(b *fleet.Fleet) {
		a := b.Machine("a", spindle.WithHandover())
		var asks, asked atomic.Bool
		a.Link.After(func(step string) {
			if step == "asked" {
				asks.Store(true)
				time.Sleep(fleet.Lease) // the call ignores its ctx
				asked.Store(true)
			}
		})
		b.Run(a)
		b.Until(2*fleet.Lease, asks.Load)
		a.Stop()
		<-a.Done
		assert.True(t, asked.Load())
	})
}

func TestAHandoverAtAStopIsBounded(t *testing.T) {
	fleet.InVirtualTime(t, func(b *fleet.Fleet) { // Spanner is slow
		var told time.Time
		a := b.Machine("a", spindle.WithHandover(), spindle.WithLeader(func(ctx context.Context, _ spindle.Term) {
			<-ctx.Done()
			told = time.Now()
		}))
		a.Link.After(func(step string) {
			if step == "announce" {
				time.Sleep(fleet.Lease/3 - time.Millisecond)
			}
		})
		b.Run(a)
		began := time.Now()
		a.Stop()
		require.NoError(t, <-a.Done)
		assert.LessOrEqual(t, told.Sub(began), fleet.Lease)
		assert.GreaterOrEqual(t, told.Sub(began), 2*fleet.Lease/3-time.Millisecond, "a third after the answer")
	})
	fleet.InVirtualTime(t, func(b *fleet.Fleet) { // the work is slow too
		finish := make(chan struct{})
		a := b.Start("a", spindle.WithHandover(), spindle.WithLeader(func(context.Context, spindle.Term) { <-finish }))
		began := time.Now()
		a.Stop()
		assert.ErrorContains(t, <-a.Done, "the leader function has not returned within 20s after Run's ctx ended", "the grace period is two leases")
		assert.LessOrEqual(t, time.Since(began), 2*fleet.Lease)
		assert.Greater(t, time.Since(began), fleet.Lease, "the announcement's time, and a lease for the work")
		close(finish)
	})
}

// Requests and names of successors are only signals. A candidate that cannot send them does not look less often.
func TestSignalsThatAreLostDelayNobody(t *testing.T) {
	for range 10 {
		fleet.InVirtualTime(t, func(b *fleet.Fleet) {
			a := b.Start("a", spindle.WithHandover(), spindle.WithPriority(1))
			c := b.Start("c")
			c.Link.Lose(func(step string) bool { return step == "ask" }, nil)
			time.Sleep(4*fleet.Lease + rand.N(fleet.Lease))
			a.Link.Cut() // the machine crashes
			last := b.Store.Rows()[fleet.Name].Heartbeat
			b.Until(2*fleet.Lease, c.Has)
			assert.Less(t, c.Token().Time().Sub(last), fleet.Lease+2*fleet.Lease/50+10*time.Millisecond)
			assert.GreaterOrEqual(t, c.Token().Time().Sub(last), fleet.Lease)
			b.End(a, c)
		})
		fleet.InVirtualTime(t, func(b *fleet.Fleet) {
			a := b.Start("a")
			c := b.Start("c")
			c.Link.Lose(func(step string) bool { return step == "succeed" }, nil)
			time.Sleep(rand.N(fleet.Lease))
			require.NoError(t, a.StepDown(context.Background()))
			b.Until(fleet.Lease/10+fleet.Lease/50+10*time.Millisecond, c.Has)
			b.End(a, c)
		})
	}
}

// A lost message costs one attempt, and not all of the caller's time.
func TestARequestSurvivesALostMessage(t *testing.T) {
	for _, lost := range []struct {
		step string
		nth  int
	}{{"lease-record", 1}, {"lease-record", 3}, {"ask", 1}, {"ask", 2}} {
		for _, reply := range []bool{false, true} {
			fleet.InVirtualTime(t, func(b *fleet.Fleet) {
				a, c := b.Start("a", spindle.WithHandover()), b.Start("c", spindle.WithHandover())
				operator := b.Machine("operator")
				n := 0
				loses := func(step string) bool {
					if step == lost.step {
						n++
					}
					return step == lost.step && n == lost.nth
				}
				if reply {
					operator.Link.Lose(nil, loses)
				} else {
					operator.Link.Lose(loses, nil)
				}
				limited, cancel := context.WithTimeout(context.Background(), time.Hour)
				defer cancel()
				began := time.Now()
				h, err := operator.RequestHandover(limited, a.Token())
				require.NoError(t, err)
				assert.Equal(t, "c", h.To.ID)
				assert.Less(t, time.Since(began), 3*fleet.Lease)
				b.End(a, c)
			})
		}
	}
}

// A claim that is withdrawn frees a lock that had no holder before the claim either.
func TestTheGapOfAHandoverIsAtLeastTheTimeWithoutAHolder(t *testing.T) {
	fleet.InVirtualTime(t, func(b *fleet.Fleet) {
		a := b.Start("a", spindle.WithHandover())
		time.Sleep(time.Minute)
		c := b.Machine("c")
		c.Link.Refuse(fleet.Refusing("confirm", errors.New("no space")))
		b.Run(c)
		got := make(chan spindle.Handover, 1)
		token := a.Token()
		go func() {
			h, err := b.Machine("operator").RequestHandover(context.Background(), token)
			assert.NoError(t, err)
			got <- h
		}()
		time.Sleep(time.Second)
		a.Link.Cut() // the machine crashes before it accepts
		died := time.Now()
		b.Until(5*fleet.Lease, func() bool { return b.Store.Rows()[fleet.Name].Heartbeat.IsZero() })
		time.Sleep(3 * time.Second)
		d := b.Start("d")
		b.Until(5*fleet.Lease, d.Has)
		without := time.Since(died) - fleet.Lease
		h := <-got
		assert.GreaterOrEqual(t, h.Gap, without)
		assert.LessOrEqual(t, h.Gap, without+fleet.Lease)
		b.End(a, c, d)
	})
}

// A request for a handover also ends before its ctx does, once further reads can't show what becomes of it. Otherwise, a program without
// a time limit would wait for ever. If Spanner refuses reads for a short time only, the request goes on.
func TestARequestForAHandoverEndsOnceFurtherReadsArePointless(t *testing.T) {
	for _, c := range []struct {
		err   error
		lasts time.Duration // how long reads fail after the request was sent
		ends  time.Duration // 0: with the handover
	}{
		{status.Error(codes.Canceled, "grpc: the client connection is closing"), time.Hour, fleet.Lease / 50},
		{status.Error(codes.PermissionDenied, "no"), time.Hour, fleet.Lease},
		{status.Error(codes.PermissionDenied, "no"), fleet.Lease / 2, 0},
		{status.Error(codes.Unavailable, "away"), 2 * fleet.Lease, 0},
	} {
		fleet.InVirtualTime(t, func(b *fleet.Fleet) {
			a, d := b.Start("a", spindle.WithHandover()), b.Start("d")
			operator := b.Machine("operator")
			var asked time.Time
			operator.Link.After(func(step string) {
				if step == "ask" {
					asked = time.Now()
				}
			})
			operator.Link.Refuse(func(string) error {
				if asked.IsZero() || time.Since(asked) > c.lasts {
					return nil
				}
				return c.err
			})
			h, err := operator.RequestHandover(context.Background(), a.Token())
			assert.Equal(t, "a", h.From.ID, c.err)
			if took := time.Since(asked); c.ends == 0 {
				require.NoError(t, err)
				assert.Equal(t, "d", h.To.ID)
			} else {
				assert.ErrorIs(t, err, c.err)
				assert.ErrorContains(t, err, "the leader was asked to hand over, but still leads: rpc error")
				assert.InDelta(t, c.ends.Seconds(), took.Seconds(), 2*(fleet.Lease/50).Seconds(), c.err)
			}
			b.End(a, d)
		})
	}
}

// A request for a handover ends with its ctx, wherever it is, and however long Spanner does not answer.
func TestARequestForAHandoverEndsWithItsCtx(t *testing.T) {
	for name, c := range map[string]struct {
		fail func(*fleet.Machine)
		says string
	}{
		"the first read is lost":    {func(m *fleet.Machine) { m.Link.Cut() }, "the leader is not known"},
		"the first read is refused": {func(m *fleet.Machine) { m.Link.Refuse(func(string) error { return errors.New("away") }) }, "the leader is not known"},
		"the request is lost":       {func(m *fleet.Machine) { m.Link.Lose(func(step string) bool { return step == "ask" }, nil) }, "it is not known whether the request arrived"},
		"the request is refused":    {func(m *fleet.Machine) { m.Link.Refuse(fleet.Refusing("ask", errors.New("away"))) }, "it is not known whether the request arrived"},
		"the leader does not react": {func(*fleet.Machine) {}, "the leader has announced that it is leaving"},
		"later reads are lost": {func(m *fleet.Machine) {
			m.Link.After(func(step string) {
				if step == "ask" {
					m.Link.Cut()
				}
			})
		}, "the leader was asked to hand over, but still leads"},
	} {
		t.Run(name, func(t *testing.T) {
			fleet.Within(time.Hour, t, func(t *testing.T) {
				b := &fleet.Fleet{T: t, Store: &memstore.Store{}}
				hang := make(chan struct{})
				a := b.Start("a", spindle.WithHandover(), spindle.WithLeader(func(context.Context, spindle.Term) { <-hang }))
				operator := b.Machine("operator")
				c.fail(operator)
				why := errors.New("it takes too long")
				ctx, cancel := context.WithTimeoutCause(context.Background(), 3*fleet.Lease+time.Second/7, why)
				defer cancel()
				began := time.Now()
				_, err := operator.RequestHandover(ctx, a.Token())
				assert.Equal(t, 3*fleet.Lease+time.Second/7, time.Since(began))
				assert.ErrorIs(t, err, why)
				assert.ErrorContains(t, err, c.says)
				close(hang)
				b.End(a)
			})
		})
	}
}
