package spindle_test

import (
	"context"
	"errors"
	"log/slog"
	"strings"
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

func TestOneTermLastsAsLongAsItsHolderRuns(t *testing.T) {
	fleet.InVirtualTime(t, func(b *fleet.Fleet) {
		a := b.Start("a")
		token := a.Token()
		require.NotZero(t, token)
		time.Sleep(3 * time.Hour)
		assert.Equal(t, token, a.Token())
		b.End(a)
		assert.Equal(t, "elected, lost", a.Seen.Kinds())
		assert.ErrorIs(t, a.Seen.Last().Err, spindle.ErrStopped)
		assert.ErrorIs(t, a.Seen.Last().Err, context.Canceled)
	})
}

func TestAReleaseThatFailsIsReported(t *testing.T) {
	fleet.InVirtualTime(t, func(b *fleet.Fleet) {
		a := b.Start("a")
		a.Link.Cut()
		a.Stop()
		assert.False(t, func() bool { synctest.Wait(); return a.Has() }())
		start := time.Now()
		assert.ErrorContains(t, <-a.Done, `lock "mylock"`)
		assert.LessOrEqual(t, time.Since(start), fleet.Lease)
		assert.Greater(t, time.Since(start), fleet.Lease*9/10, "it is tried until the lock is free anyway")
		c := b.Start("b")
		b.Until(fleet.Lease, c.Has)
		b.End(c)
	})
}

func TestTheNextTermWaitsForTheLeaderFunction(t *testing.T) {
	fleet.InVirtualTime(t, func(b *fleet.Fleet) {
		var running, terms atomic.Int32
		a := b.Start("a", spindle.WithLeader(func(ctx context.Context, _ spindle.Term) {
			terms.Add(1)
			assert.EqualValues(t, 1, running.Add(1))
			defer running.Add(-1)
			<-ctx.Done()
			time.Sleep(3 * fleet.Lease)
		}))
		b.Operator(table.Write{Kind: table.Delete, Name: fleet.Key(a.Token())})
		time.Sleep(3 * fleet.Lease)
		assert.False(t, a.Has())
		b.Until(2*fleet.Lease, a.Has)
		synctest.Wait()
		assert.EqualValues(t, 2, terms.Load())
		b.End(a)
		time.Sleep(3 * fleet.Lease)
	})
}

func TestStopReleasesOnlyAfterTheGuardedWorkHasReturned(t *testing.T) {
	fleet.InVirtualTime(t, func(b *fleet.Fleet) {
		var returned time.Time
		a := b.Start("a", spindle.WithLeader(func(ctx context.Context, _ spindle.Term) {
			<-ctx.Done()
			time.Sleep(fleet.Lease - time.Second)
			returned = time.Now()
		}))
		c := b.Start("b")
		time.Sleep(fleet.Lease)
		a.Stop()
		b.Until(2*fleet.Lease, func() bool {
			if c.Has() {
				assert.False(t, returned.IsZero(), "taken over from work that still ran")
			}
			return c.Has()
		})
		assert.NoError(t, <-a.Done)
		assert.LessOrEqual(t, time.Since(returned), fleet.Lease/3+time.Millisecond)
		b.End(c)
	})
}

// Work that does not return at a stop is said in time, with what will happen and when. The lock is not said to stay held,
// because it is left to expire.
func TestAStopSaysThatTheLockWillBeLeftToExpireWhileTheWorkCanStillReturn(t *testing.T) {
	for name, stop := range map[string]struct {
		opts  []spindle.Option
		first func(*fleet.Machine)
		warns time.Duration // before the lock is left to expire
	}{
		"at once":          {nil, nil, fleet.Lease / 2},
		"after a handover": {[]spindle.Option{spindle.WithHandover()}, nil, fleet.Lease * 5 / 6},
		"after a StepDown": {nil, func(a *fleet.Machine) { stepDown(context.Background(), a); time.Sleep(5 * fleet.Lease) }, fleet.Lease / 2},
	} {
		t.Run(name, func(t *testing.T) {
			fleet.InVirtualTime(t, func(b *fleet.Fleet) {
				to, log := logging()
				hang := make(chan struct{})
				a := b.Start("a", append(stop.opts, to, spindle.WithLeader(func(context.Context, spindle.Term) { <-hang }))...)
				if stop.first != nil {
					stop.first(a)
				}
				before := strings.Count(log.String(), "the lock stays held until it returns")
				began := time.Now()
				a.Stop()
				said := func() bool { return strings.Contains(log.String(), "left to expire") }
				b.Until(2*fleet.Lease, said)
				told := time.Now()
				assert.Contains(t, log.String(), "left="+stop.warns.Round(time.Millisecond).String())
				assert.True(t, a.Has())
				require.ErrorContains(t, <-a.Done, "has not returned")
				assert.False(t, a.Has())
				assert.False(t, b.Store.Rows()[fleet.Name].Heartbeat.IsZero(), "it was not released")
				assert.InDelta(t, stop.warns, time.Since(told), float64(2*time.Millisecond))
				assert.LessOrEqual(t, time.Since(began), 2*fleet.Lease)
				assert.Equal(t, 1, strings.Count(log.String(), "left to expire"))
				assert.Equal(t, before, strings.Count(log.String(), "the lock stays held until it returns"))
				close(hang)
				synctest.Wait()
			})
		})
	}
}

// slowLog is a log that takes a while to write the warning that a lock will be left to expire.
type slowLog time.Duration

func (d slowLog) Write(p []byte) (int, error) {
	if strings.Contains(string(p), "left to expire") {
		time.Sleep(time.Duration(d))
	}
	return len(p), nil
}

// Work that returns within the grace period is in time, even if the loop is held up meanwhile and learns at one instant that both are
// over. Otherwise, the lock would be left to expire although no process works.
func TestWorkThatReturnedInTimeIsNotLateBecauseTheLoopIs(t *testing.T) {
	for range 10 { // the loop may react to either first
		for _, opts := range [][]spindle.Option{nil, {spindle.WithHandover()}} {
			fleet.InVirtualTime(t, func(b *fleet.Fleet) {
				a := b.Start("a", append(opts, spindle.WithLogger(slog.New(slog.NewTextHandler(slowLog(fleet.Lease), nil))), spindle.WithLeader(func(ctx context.Context, _ spindle.Term) {
					<-ctx.Done()
					time.Sleep(fleet.Lease * 19 / 20)
				}))...)
				asked := stepDown(context.Background(), a)
				time.Sleep(fleet.Lease / 6)
				a.Stop()
				began := time.Now()
				require.NoError(t, <-a.Done)
				require.Greater(t, time.Since(began), fleet.Lease, "the loop was held up for too short a time")
				require.NoError(t, <-asked)
				assert.True(t, b.Store.Rows()[fleet.Name].Heartbeat.IsZero(), "it was released")
			})
		}
	}
}

// Run ends with an error exactly if its lock is left to expire. A program that releases more after that must know.
func TestRunSaysIfItsLockIsLeftToExpire(t *testing.T) {
	for _, handover := range []bool{false, true} {
		for _, way := range fleet.Farewells("release") {
			fleet.InVirtualTime(t, func(b *fleet.Fleet) {
				var opts []spindle.Option
				if handover {
					opts = append(opts, spindle.WithHandover())
				}
				a := b.Start("a", opts...)
				time.Sleep(fleet.Lease)
				way.Begin(a.Link, fleet.Name)
				a.Stop()
				err := <-a.Done
				assert.Equal(t, way.Left, err != nil, "handover %v, %s: %v", handover, way.Name, err)
				assert.Equal(t, way.Left, !b.Store.Rows()[fleet.Name].Heartbeat.IsZero(), "handover %v, %s", handover, way.Name)
			})
		}
	}
}

func TestASlowObserverDelaysNothingAndMissesNothing(t *testing.T) {
	fleet.InVirtualTime(t, func(b *fleet.Fleet) {
		var kinds []string
		stuck := make(chan struct{})
		a := b.Start("a", spindle.WithObserver(func(e spindle.Event) { <-stuck; kinds = append(kinds, e.Kind.String()) }))
		token := a.Token()
		time.Sleep(10 * fleet.Lease)
		assert.Equal(t, token, a.Token())
		a.Link.Cut()
		time.Sleep(fleet.Lease / 2)
		a.Link.Mend()
		time.Sleep(fleet.Lease)
		close(stuck)
		b.End(a)
		assert.Equal(t, []string{"elected", "jeopardy", "safe", "lost"}, kinds)
	})
}

func TestAStopDuringAnElectionLeavesNothingHeld(t *testing.T) {
	for what, taken := range map[string]bool{"observe": false, "claim": false, "confirm": false, "confirm, and the lock is taken away": true} {
		t.Run(what, func(t *testing.T) {
			fleet.InVirtualTime(t, func(b *fleet.Fleet) {
				a, step := b.Machine("a"), strings.Split(what, ",")[0]
				a.Link.Refuse(func(s string) error {
					for name := range b.Store.Rows() {
						if taken && s == "release" {
							b.Operator(table.Write{Kind: table.Delete, Name: name})
						}
					}
					return nil
				})
				ctx, stop := context.WithCancel(context.Background())
				a.Link.Lose(func(s string) bool {
					if s == step {
						stop()
					}
					return false
				}, nil)
				require.NoError(t, a.Run(ctx, a.Done))
				require.NoError(t, <-a.Done)
				assert.False(t, a.Has())
				start := time.Now()
				c := b.Start("b")
				assert.True(t, c.Has(), "the next candidate waits for nothing")
				assert.Zero(t, time.Since(start))
				b.End(c)
			})
		})
	}
}

func TestDone(t *testing.T) {
	t.Run("unbuffered and read", func(t *testing.T) {
		fleet.InVirtualTime(t, func(b *fleet.Fleet) {
			a := b.Machine("a")
			done := make(chan error)
			ctx, stop := context.WithCancel(context.Background())
			require.NoError(t, a.Run(ctx, done))
			stop()
			time.Sleep(fleet.Lease / 2)
			assert.NoError(t, <-done)
		})
	})
	t.Run("never read", func(t *testing.T) {
		fleet.InVirtualTime(t, func(b *fleet.Fleet) { // fails if a goroutine is left
			a := b.Machine("a")
			ctx, stop := context.WithCancel(context.Background())
			require.NoError(t, a.Run(ctx, make(chan error)))
			synctest.Wait()
			stop()
			synctest.Wait()
			assert.True(t, b.Store.Rows()["mylock"].Heartbeat.IsZero(), "released all the same")
			b.Run(a)
			assert.True(t, a.Has(), "and may run again")
			b.End(a)
			time.Sleep(fleet.Lease)
		})
	})
	t.Run("work that overran its stop", func(t *testing.T) {
		fleet.InVirtualTime(t, func(b *fleet.Fleet) {
			var running atomic.Int32
			a := b.Start("a", spindle.WithLeader(func(ctx context.Context, _ spindle.Term) {
				assert.EqualValues(t, 1, running.Add(1))
				<-ctx.Done()
				time.Sleep(10 * fleet.Lease)
				running.Add(-1)
			}))
			a.Stop()
			require.Error(t, <-a.Done)
			assert.ErrorIs(t, a.Run(t.Context()), spindle.ErrRunning, "two leader functions must not run side by side")
			time.Sleep(10 * fleet.Lease)
			synctest.Wait()
			b.Run(a)
			b.Until(2*fleet.Lease, a.Has)
			a.Stop()
			require.Error(t, <-a.Done)
			time.Sleep(10 * fleet.Lease)
		})
	})
}

func TestAProblemIsSaidOnceAndAgainWhenItChanges(t *testing.T) {
	fleet.InVirtualTime(t, func(b *fleet.Fleet) {
		var log fleet.Log
		a := b.Machine("a", spindle.WithLogger(slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelInfo}))))
		problem := errors.New("table 17 is missing")
		a.Link.Refuse(fleet.Refusing("observe", problem))
		b.Run(a)
		time.Sleep(time.Hour)
		a.Link.Refuse(fleet.Refusing("claim", errors.New("permission denied")))
		time.Sleep(time.Hour)
		require.NotContains(t, log.String(), "can compete for the lock again")
		a.Link.Refuse(nil)
		b.Until(fleet.Lease, a.Has) // the election itself ends the problem, because no other step succeeds before it
		b.End(a)
		assert.Equal(t, 1, strings.Count(log.String(), "table 17 is missing"))
		assert.Equal(t, 1, strings.Count(log.String(), "permission denied"))
		assert.Equal(t, 6, strings.Count(log.String(), "\n"), log.String()) // the other lines: competing again, elected, lost, released
		for line := range strings.Lines(log.String()) {
			assert.Equal(t, 1, strings.Count(line, "mylock"), line)
		}
	})
}

func TestALeaderFunctionThatHangsAfterALossIsSaidAgainAndAgain(t *testing.T) {
	fleet.InVirtualTime(t, func(b *fleet.Fleet) {
		var log fleet.Log
		hang := make(chan struct{})
		a := b.Start("a", spindle.WithLogger(slog.New(slog.NewTextHandler(&log, nil))), spindle.WithLeader(func(ctx context.Context, _ spindle.Term) { <-hang; <-ctx.Done() }))
		b.Operator(table.Write{Kind: table.Delete, Name: fleet.Key(a.Token())})
		b.Until(fleet.Lease, func() bool { return !a.Has() })
		time.Sleep(fleet.Lease)
		assert.Equal(t, 1, strings.Count(log.String(), "has not returned"), "after a lease")
		time.Sleep(2*fleet.Lease - time.Second)
		require.NoError(t, a.Health())
		time.Sleep(fleet.Lease)
		require.ErrorContains(t, a.Health(), "the leader function has not returned since its term ended")
		time.Sleep(2 * time.Hour)
		said := strings.Count(log.String(), "has not returned")
		assert.Greater(t, said, 5)
		assert.Less(t, said, 12, "ever more seldom")
		close(hang)
		b.Until(fleet.Lease, a.Has)
		require.NoError(t, a.Health())
		b.End(a)
	})
}

// An observer that hangs keeps no process from the lock, and does not keep Run from being called again. The value of
// done reports the hang.
func TestAnObserverThatDoesNotReturnIsSaidAtTheEnd(t *testing.T) {
	fleet.InVirtualTime(t, func(b *fleet.Fleet) {
		hang := make(chan struct{})
		a := b.Start("a", options.Option(func(c *options.Config) {
			c.Observe = func(e elect.Event) {
				if spindle.EventKind(e.Kind) == spindle.Lost {
					<-hang
				}
			}
		}))
		a.Stop()
		b.Until(fleet.Lease/100, func() bool { return b.Store.Rows()[fleet.Name].Heartbeat.IsZero() })
		start := time.Now()
		assert.ErrorContains(t, <-a.Done, "the observer has not returned within 10s after Run's ctx ended")
		assert.Equal(t, fleet.Lease, time.Since(start).Round(fleet.Lease/100))
		require.ErrorIs(t, a.Run(t.Context()), spindle.ErrRunning)
		close(hang)
		synctest.Wait()
		b.Run(a)
		b.End(a)
	})
}

// A lock that could not be released is reported once: by a warning if Run continues, and by the value of done if it has ended.
func TestAFailedReleaseIsReportedOnce(t *testing.T) {
	for _, stops := range []bool{false, true} {
		fleet.InVirtualTime(t, func(b *fleet.Fleet) {
			var log fleet.Log
			a := b.Start("a", spindle.WithLogger(slog.New(slog.NewTextHandler(&log, nil))))
			a.Link.Refuse(fleet.Refusing("release", errors.New("away")))
			if stops {
				a.Stop()
				require.ErrorContains(t, <-a.Done, "away")
			} else {
				require.ErrorContains(t, a.StepDown(context.Background()), "away")
				defer b.End(a)
			}
			synctest.Wait()
			assert.Equal(t, map[bool]int{true: 0, false: 1}[stops], strings.Count(log.String(), "level=WARN msg=\"stepped down, but the lock could not be released\""))
			assert.NotContains(t, log.String(), "msg=released")
			a.Link.Refuse(nil)
		})
	}
}
