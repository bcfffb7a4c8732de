package elect

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/spindle-lock/spindle/internal/table"
	"github.com/spindle-lock/spindle/internal/testkit/memstore"
)

// log records the events of a Keeper.
type log struct {
	mu    sync.Mutex
	kinds []TermEventKind
}

func (l *log) notify(e TermEvent) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.kinds = append(l.kinds, e.What)
}

func (l *log) all() []TermEventKind {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.kinds)
}

// A process that was stopped while a heartbeat was in progress learns of the deadline before it learns that the
// heartbeat has failed. The last event of a term is Lost.
func TestALostTermIsInNoJeopardy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, away := &memstore.Store{}, false
		term := candidate("a", table.Via(func(ctx context.Context, _ string, call func(context.Context, table.Store) error) error {
			if away {
				time.Sleep(2 * lease)
				return errors.New("unavailable")
			}
			return call(ctx, store)
		}), "m").Try(t.Context(), All, lease/3).Term
		require.NotNil(t, term)
		away = true
		said := &log{}
		k := &Keeper{Term: term, Interval: lease / 3, Notify: said.notify}
		k.Start()
		time.Sleep(3 * lease)
		assert.ErrorIs(t, k.Stop(), ErrExpired)
		assert.Equal(t, []TermEventKind{InJeopardy, Lost}, said.all(), "in jeopardy because of an attempt that was not answered, before the deadline")
		assert.True(t, term.inJeopardy(), "the next competition knows why it expired")
	})
}

// lateClock makes something happen between a reading of the clock and the reaction to it.
type lateClock struct {
	SystemClock
	then *func()
}

func (c lateClock) Now() Instant {
	now := c.SystemClock.Now()
	if then := *c.then; then != nil {
		*c.then = nil
		then()
	}
	return now
}

// If Stop has told the owner that the term is held, the owner gives it back and does not treat it as lost.
func TestAfterStopATermIsHeldOrLostAndNotBoth(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := candidate("a", &memstore.Store{}, "m")
		var then func()
		c.Clock = lateClock{then: &then}
		term := c.Try(t.Context(), All, lease/3).Term
		require.NotNil(t, term)
		said := &log{}
		k := &Keeper{Term: term, Interval: lease / 3, Notify: said.notify}
		k.Start()
		synctest.Wait()
		then = func() { term.End(table.ErrSuperseded); synctest.Wait() }
		err := k.Stop()
		synctest.Wait()
		require.Equal(t, []TermEventKind{Lost}, said.all())
		assert.ErrorIs(t, err, table.ErrSuperseded)
		assert.ErrorIs(t, context.Cause(term.Over()), table.ErrSuperseded)
	})
}

// Terms that began at different times but share their requests send their heartbeats at the same instants.
func TestTermsInPhaseBeatTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &memstore.Store{}
		var mu sync.Mutex
		beats := map[int64]int{} // by the instants of their commits; commit timestamps are a microsecond apart
		store.OnCommit = func(step string, _ time.Time, _, _ map[string]table.Row) {
			mu.Lock()
			defer mu.Unlock()
			if step == "heartbeat" {
				beats[time.Now().UnixNano()]++
			}
		}
		for _, name := range []string{"m", "n", "o"} {
			term := candidate("a", store, name).Try(t.Context(), All, lease/3).Term
			require.NotNil(t, term)
			k := &Keeper{Term: term, Interval: lease / 3, InPhase: true, Notify: func(TermEvent) {}}
			k.Start()
			defer func() { assert.NoError(t, k.Stop()) }()
			time.Sleep(lease / 7)
		}
		mu.Lock()
		clear(beats)
		mu.Unlock()
		time.Sleep(10 * lease)
		mu.Lock()
		defer mu.Unlock()
		assert.GreaterOrEqual(t, len(beats), 29)
		for at, n := range beats {
			assert.Equal(t, 3, n, time.Unix(0, at))
		}
	})
}

// The answer to a heartbeat counts even if it arrives after the next heartbeat was sent, and the deadline counts from before
// the heartbeat that it answers.
func TestALateAnswerToAHeartbeatCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &memstore.Store{}
		term := candidate("a", table.Via(func(ctx context.Context, step string, call func(context.Context, table.Store) error) error {
			err := call(ctx, store)
			if step == "heartbeat" {
				select {
				case <-time.After(lease * 37 / 100):
				case <-ctx.Done():
					return ctx.Err()
				}
			}
			return err
		}), "m").Try(t.Context(), All, lease/3).Term
		require.NotNil(t, term)
		k := &Keeper{Term: term, Interval: lease / 3, Notify: func(TermEvent) {}}
		k.Start()
		time.Sleep(lease/3 + lease*37/100 + lease/20) // each heartbeat may be due a twentieth of the interval earlier or later
		assert.InDelta(t, (lease - lease/100 - lease*37/100 - lease/20).Seconds(), term.Left().Seconds(), (lease / 18).Seconds())
		time.Sleep(20 * lease)
		assert.True(t, term.Held())
		assert.NoError(t, k.Stop())
	})
}

// keeping returns a Keeper of a new term, which has started, and its log. slow is called before each heartbeat takes
// effect, which fails if slow returns an error. Neither stops when the heartbeat is given up.
func keeping(t *testing.T, slow func(n int32) error) (*Keeper, *log) {
	var store memstore.Store
	var n atomic.Int32
	term := candidate("a", table.Via(func(ctx context.Context, step string, call func(context.Context, table.Store) error) error {
		if step == "heartbeat" {
			if err := slow(n.Add(1)); err != nil {
				return err
			}
		}
		return call(ctx, &store)
	}), "m").Try(t.Context(), All, lease/3).Term
	require.NotNil(t, term)
	said := &log{}
	k := &Keeper{Term: term, Interval: lease / 3, Notify: said.notify}
	k.Start()
	return k, said
}

// An attempt that was given up can still be answered while a later heartbeat is in progress. The answer is not about that
// one.
func TestAnAnswerToAnEarlierHeartbeatSaysNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k, said := keeping(t, func(n int32) error {
			switch n {
			case 1:
				time.Sleep(lease)
				return errors.New("unavailable")
			case 2: // sent because the first was not answered
			default:
				time.Sleep(lease / 5)
			}
			return nil
		})
		time.Sleep(3 * lease)
		news := slices.DeleteFunc(said.all(), func(e TermEventKind) bool { return e == Beat })
		assert.Equal(t, []TermEventKind{InJeopardy, Safe}, news)
		require.NoError(t, k.Stop())
		k.End(nil)
	})
}

// As long as an attempt may still be answered, the failure of an earlier one is no reason for another.
func TestTheFailureOfAnEarlierAttemptSendsNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var sent atomic.Int32
		k, _ := keeping(t, func(n int32) error {
			sent.Store(n)
			switch n {
			case 1:
				time.Sleep(lease * 30 / 100)
				return errors.New("unavailable")
			case 2: // a quarter of the lease later
				time.Sleep(lease * 12 / 100)
			}
			return nil
		})
		time.Sleep(lease * 80 / 100)
		assert.EqualValues(t, 2, sent.Load())
		require.NoError(t, k.Stop())
		k.End(nil)
	})
}

// The pauses between refused heartbeats begin anew in each outage.
func TestHeartbeatsAreRepeatedSoonInEachOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var refused atomic.Pointer[[]time.Time]
		k, _ := keeping(t, func(int32) error {
			sent := refused.Load()
			if sent == nil {
				return nil
			}
			*sent = append(*sent, time.Now())
			return errors.New("unavailable")
		})
		for range 3 {
			var sent []time.Time
			refused.Store(&sent)
			time.Sleep(lease / 2)
			refused.Store(nil)
			synctest.Wait()
			require.Greater(t, len(sent), 2)
			assert.Less(t, sent[1].Sub(sent[0]), lease/100)
			time.Sleep(lease)
		}
		require.NoError(t, k.Stop())
		k.End(nil)
	})
}

// While a heartbeat is not acknowledged, others follow soon enough to save the term: each is sent within a quarter of the lease after
// the one before it, and within half of the time that was left then.
func TestFurtherHeartbeatsFollowWhileThereIsTime(t *testing.T) {
	for _, answered := range []bool{true, false} {
		for _, of := range []time.Duration{lease, lease / 50, 100 * lease} {
			synctest.Test(t, func(t *testing.T) {
				var sent []time.Time
				link := &memstore.Link{Store: &memstore.Store{}}
				link.Lose(func(step string) bool { return step == "heartbeat" && !answered }, nil)
				link.Refuse(func(step string) error {
					if step != "heartbeat" {
						return nil
					}
					sent = append(sent, time.Now())
					return errRefused
				})
				c := candidate("a", link, "m")
				c.LeaseRecord.Lease = of
				term := c.Try(t.Context(), All, lease/3).Term
				require.NotNil(t, term)
				deadline := time.Now().Add(term.Left())
				k := &Keeper{Term: term, Interval: of / 3, Notify: func(TermEvent) {}}
				k.Start()
				<-term.Over().Done()
				require.ErrorIs(t, k.Stop(), ErrExpired)
				require.Greater(t, len(sent), 4)
				for i := range len(sent) - 1 {
					left, pause := deadline.Sub(sent[i]), sent[i+1].Sub(sent[i])
					assert.LessOrEqual(t, pause, max(left/2, of/50), "%v, answered %v, with %v left", of, answered, left)
					assert.LessOrEqual(t, pause, of/4, "%v, answered %v", of, answered)
				}
				assert.LessOrEqual(t, deadline.Sub(sent[len(sent)-1]), of/50+time.Millisecond, "it goes on until the end")
			})
		}
	}
}

// A term accepts an operator's request at once, but a request from a candidate of higher priority only once the term no longer ignores
// such requests. The owner learns whose request it was.
func TestARequestIsAcceptedWhenTheTermNoLongerIgnoresIt(t *testing.T) {
	for _, ignored := range []time.Duration{0, lease / 2, 5 * lease} {
		for _, asked := range [][]table.Request{{table.ByOperator}, {table.ByPreference}, {table.ByPreference, table.ByOperator}} {
			synctest.Test(t, func(t *testing.T) {
				c := candidate("a", &memstore.Store{}, "m")
				term := c.Try(t.Context(), All, lease/3).Term
				require.NotNil(t, term)
				began := time.Now()
				term.ignoreFor = ignored
				happened := make(chan TermEvent, 1000)
				k := &Keeper{Term: term, Interval: lease / 3, Notify: func(e TermEvent) { happened <- e }}
				k.Start()
				k.WatchRequests()
				for _, r := range asked {
					require.NoError(t, c.Table.Ask(t.Context(), r, "m", term.Token()))
				}
				first, from := asked[len(asked)-1], ignored
				if first == table.ByOperator {
					from = 0
				}
				assert.Equal(t, first, await(happened, Requested).By)
				assert.GreaterOrEqual(t, time.Since(began), from)
				assert.LessOrEqual(t, time.Since(began), from+lease)
				require.NoError(t, k.Stop())
				term.End(nil)
			})
		}
	}
}

// A muted term is no longer extended. It stays held until its deadline, and can be released until then.
func TestAMutedTermExpires(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &memstore.Store{}
		term := candidate("a", store, "m").Try(t.Context(), All, lease/3).Term
		require.NotNil(t, term)
		mute := make(chan struct{})
		k := &Keeper{Term: term, Interval: lease / 3, Mute: mute, Notify: func(TermEvent) {}}
		k.Start()
		time.Sleep(5 * lease)
		require.True(t, term.Held())
		close(mute)
		left := term.Left()
		time.Sleep(left - lease/2 - time.Millisecond)
		assert.True(t, term.Secure())
		time.Sleep(2 * time.Millisecond)
		assert.False(t, term.Secure(), "half of its lease has passed, so that its waiters must look themselves")
		time.Sleep(lease/2 - 2*time.Millisecond)
		assert.True(t, term.Held())
		time.Sleep(2 * time.Millisecond)
		assert.False(t, term.Held())
		assert.ErrorIs(t, k.Stop(), ErrExpired)
	})
}

// A candidate that has to hold off claims nothing until that time is over, whether the lock is free or not.
func TestACandidateThatHoldsOffClaimsLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := candidate("a", &memstore.Store{}, "m")
		until := time.Now().Add(lease)
		c.HoldOff = func(string) time.Duration { return time.Until(until) }
		for {
			step := c.Try(t.Context(), All, lease/3)
			require.NoError(t, step.Err)
			if step.Term != nil {
				break
			}
			require.Positive(t, step.Pause)
			time.Sleep(step.Pause)
		}
		assert.GreaterOrEqual(t, time.Now(), until)
		assert.Less(t, time.Since(until), lease/10)
	})
}

// A server that hangs uses up one attempt rather than the lease. With a short lease, an attempt gets a part of it,
// which leaves time for another attempt. With a long lease, it gets a few seconds.
func TestAnAttemptThatHangsLeavesTimeForTheNext(t *testing.T) {
	for of, most := range map[time.Duration]time.Duration{9 * time.Second: 4500 * time.Millisecond, 24 * time.Hour: 10 * time.Second} {
		t.Run(of.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := &memstore.Store{}
				var mu sync.Mutex
				longest := map[string]time.Duration{}
				c := candidate("c", table.Via(func(ctx context.Context, step string, send func(context.Context, table.Store) error) error {
					until, limited := ctx.Deadline()
					assert.True(t, limited, step)
					mu.Lock()
					longest[step] = max(longest[step], time.Until(until))
					mu.Unlock()
					return send(ctx, store)
				}), "m")
				c.LeaseRecord.Lease = of
				c.LeaseRecord.AcceptsHandover = true
				step := c.Try(t.Context(), All, 0)
				require.NotNil(t, step.Term)
				happened := make(chan TermEvent, 100)
				k := &Keeper{Term: step.Term, Interval: of / 10, Notify: func(e TermEvent) { happened <- e }}
				k.Start()
				require.NoError(t, table.Table{Store: store}.Ask(t.Context(), table.ByOperator, "m", step.Term.Token()))
				k.WatchRequests()
				await(happened, Requested)
				k.Announce()
				await(happened, Announced)
				require.NoError(t, k.Stop())
				require.NoError(t, step.Term.Release(t.Context(), nil))
				for step, limit := range longest {
					assert.LessOrEqual(t, limit, most, step)
					assert.GreaterOrEqual(t, limit, min(of/4, most), step)
				}
				for _, step := range []string{"observe", "claim", "confirm", "heartbeat", "asked", "announce", "release"} {
					assert.Contains(t, longest, step)
				}
			})
		})
	}
}

// await waits until something happens.
func await(happened <-chan TermEvent, what TermEventKind) TermEvent {
	for {
		if e := <-happened; e.What == what {
			return e
		}
	}
}

// keeper keeps a term for as long as a test wants.
func keeper(t *Term) *Keeper {
	return &Keeper{Term: t, Interval: t.lease / 3, Notify: func(TermEvent) {}, ctx: t.Context()}
}

// beat sends one heartbeat and waits for its answer.
func beat(k *Keeper) error {
	answers := make(chan attempt, 1)
	if _, err := k.send(k.ctx, nil, answers); err != nil {
		return err
	}
	return k.learn(<-answers)
}

func TestATermThatHasEndedHasNothingLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &memstore.Store{}
		term := candidate("a", store, "m").Try(t.Context(), All, lease/3).Term
		require.NotNil(t, term)
		assert.Equal(t, lease-lease/100, term.Left())
		time.Sleep(time.Second)
		assert.Equal(t, lease-lease/100-time.Second, term.Left())
		term.End(ErrExpired)
		assert.Negative(t, term.Left())
		assert.False(t, term.Held())
		assert.ErrorIs(t, context.Cause(term.Context()), ErrExpired)
		start := time.Now()
		assert.ErrorIs(t, beat(keeper(term)), ErrExpired)
		assert.Error(t, term.Release(t.Context(), nil), "it is left to expire")
		assert.Zero(t, time.Since(start))
		assert.NotZero(t, store.Rows()["m"].Heartbeat)
	})
}

func TestAReleaseAsksNothingOfATableThatIsGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		link := &memstore.Link{Store: &memstore.Store{}}
		term := candidate("a", link, "m").Try(t.Context(), All, lease/3).Term
		require.NotNil(t, term)
		gone := status.Error(codes.NotFound, "Database not found: projects/p/instances/i/databases/d")
		link.Refuse(func(step string) error {
			if step == "release" {
				return fmt.Errorf("%w: %w", table.ErrMissing, gone)
			}
			return gone
		})
		start := time.Now()
		assert.Error(t, term.Release(t.Context(), nil))
		assert.Less(t, time.Since(start), lease/10)
	})
}

// A release that fails is repeated until the lock would expire. It ends at once only if repeating is pointless, because the token is no
// longer valid or the client is closed: a program that stops would wait for a lease.
func TestAReleaseIsRepeatedUnlessThatIsPointless(t *testing.T) {
	for _, x := range []struct {
		err   error
		again bool
	}{
		{table.ErrSuperseded, false},
		{status.Error(codes.Canceled, "grpc: the client connection is closing"), false},
		{status.Error(codes.FailedPrecondition, "SessionClient is closed"), false},
		{status.Error(codes.Canceled, "the server is going away"), true},
		{status.Error(codes.Unavailable, "away"), true},
		{errRefused, true}, {table.ErrAborted, true}, {errLost, true},
	} {
		for _, ends := range []time.Duration{lease / 2, 2 * lease} { // when the fault ends
			synctest.Test(t, func(t *testing.T) {
				link := &memstore.Link{Store: &memstore.Store{}}
				term := candidate("a", link, "m").Try(t.Context(), All, lease/3).Term
				require.NotNil(t, term)
				began := time.Now()
				link.Refuse(func(step string) error {
					if step == "release" && time.Since(began) < ends {
						return x.err
					}
					return nil
				})
				err := term.Release(t.Context(), nil)
				assert.Equal(t, x.again && ends < lease, err == nil, "%v, %v: %v", x.err, ends, err)
				if want := min(ends, Limit(lease)); x.again {
					assert.InDelta(t, want.Seconds(), time.Since(began).Seconds(), lease.Seconds()/10+0.001, "%v", x.err)
				} else {
					assert.Equal(t, 1, link.Counts()["release"], "%v", x.err)
					assert.Zero(t, time.Since(began), "%v", x.err)
				}
			})
		}
	}
}

// A term that ends is announced for a third of the lease. If heartbeats fail meanwhile, the wait ends when a sixth of the lease is left:
// the work needs that time to stop before the lock is lost.
func TestAnAnnouncementLeavesTimeToStopTheWork(t *testing.T) {
	const lease = 12 * time.Second
	for _, after := range []time.Duration{0, lease / 6, lease / 2, lease * 6 / 10, lease * 8 / 10} { // since the last heartbeat
		for _, mends := range []bool{false, true} {
			synctest.Test(t, func(t *testing.T) {
				link := &memstore.Link{Store: &memstore.Store{}}
				c := candidate("c", link, "m")
				c.LeaseRecord.Lease = lease
				step := c.Try(t.Context(), All, 0)
				require.NotNil(t, step.Term)
				last := time.Now()
				link.Refuse(refusingStep("heartbeat", errRefused))
				happened := make(chan TermEvent, 1000)
				k := &Keeper{Term: step.Term, Interval: lease / 12, Notify: func(e TermEvent) { happened <- e }}
				k.Start()
				time.Sleep(after)
				k.Announce()
				if mends {
					link.Refuse(nil)
				}
				await(happened, Announced)
				want := last.Add(min(after+lease/3, lease*5/6))
				if mends && after < lease*8/10 { // a heartbeat comes in time
					want = last.Add(after + lease/3)
				}
				assert.InDelta(t, want.Sub(last).Seconds(), time.Since(last).Seconds(), lease.Seconds()/40, "%v, %v", after, mends)
				require.NoError(t, k.Stop())
			})
		}
	}
}

// From its answer on, an announcement lasts for a third of the lease and its own round trip, however many attempts it took: a follower
// that polled just before the commit must see it before the release. If all attempts fail, the term ends without an announcement.
func TestAnAnnouncementLastsFromItsCommitOn(t *testing.T) {
	for _, trip := range []time.Duration{0, lease / 20, lease / 6} {
		for fails, at := range map[int]time.Duration{0: 0, 1: lease / 300, 3: 7 * lease / 300, 1000: lease / 3} { // the last attempt
			synctest.Test(t, func(t *testing.T) {
				store, sent := &memstore.Store{}, 0
				var answered time.Time
				c := candidate("c", table.Via(func(ctx context.Context, step string, call func(context.Context, table.Store) error) error {
					if step != "announce" {
						return call(ctx, store)
					}
					if sent++; sent <= fails {
						return errRefused
					}
					time.Sleep(trip)
					answered = time.Now()
					return call(ctx, store)
				}), "m")
				c.Clock = evenClock{}
				term := c.Try(t.Context(), All, lease/3).Term
				require.NotNil(t, term)
				happened := make(chan TermEvent, 100)
				k := &Keeper{Term: term, Interval: lease / 3, Notify: func(e TermEvent) { happened <- e }}
				k.Start()
				began := time.Now()
				k.Announce()
				await(happened, Announced)
				if answered.IsZero() {
					assert.Equal(t, at, time.Since(began))
				} else {
					assert.InDelta(t, at+trip, answered.Sub(began), float64(time.Microsecond))
					assert.Equal(t, lease/3+trip, time.Since(answered))
				}
				require.NoError(t, k.Stop())
				term.End(nil)
			})
		}
	}
}

// evenClock is a clock whose random durations are zero.
type evenClock struct{ SystemClock }

func (evenClock) Random(time.Duration) time.Duration { return 0 }

// What a keeper does before each heartbeat ends with the work and with the keeper. Otherwise, an owner that stops would wait for it.
func TestWhatAKeeperDoesBeforeAHeartbeatEndsWithTheWork(t *testing.T) {
	for name, end := range map[string]func(*Keeper){
		"Stop":       func(*Keeper) {},
		"CancelWork": func(k *Keeper) { k.CancelWork(errStall) },
		"Stall":      func(k *Keeper) { k.Stall(errStall) },
		"End":        func(k *Keeper) { k.End(errStall) },
	} {
		synctest.Test(t, func(t *testing.T) {
			term := candidate("a", &memstore.Store{}, "m").Try(t.Context(), All, lease/3).Term
			require.NotNil(t, term)
			var began, ended time.Time
			k := &Keeper{Term: term, Interval: lease / 3, Notify: func(TermEvent) {}, Before: func(ctx context.Context, _ bool) {
				if ended.IsZero() {
					began = time.Now()
					Sleep(ctx, SystemClock{}, 100*lease)
					ended = time.Now()
				}
			}}
			k.Start()
			time.Sleep(lease / 2)
			synctest.Wait()
			require.False(t, began.IsZero())
			stopped := time.Now()
			end(k)
			synctest.Wait()
			assert.Equal(t, name == "Stop", ended.IsZero(), name)
			_ = k.Stop()
			assert.Equal(t, stopped, ended, name)
			term.End(nil)
		})
	}
}

// If what a keeper does before a heartbeat takes until the deadline, no heartbeat is sent. It would prolong the lease of a term that is over.
func TestNoHeartbeatIsSentAfterTheDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		link := &memstore.Link{Store: &memstore.Store{}}
		term := candidate("a", link, "m").Try(t.Context(), All, lease/3).Term
		require.NotNil(t, term)
		k := &Keeper{Term: term, Interval: lease / 3, Notify: func(TermEvent) {}, Before: func(ctx context.Context, _ bool) { Sleep(ctx, SystemClock{}, 100*lease) }}
		k.Start()
		time.Sleep(3 * lease)
		assert.Zero(t, link.Counts()["heartbeat"])
		assert.False(t, term.Held())
		_ = k.Stop()
		term.End(nil)
	})
}

// The next heartbeat is due one interval after the last acknowledged one was sent, or when all terms send theirs, but never later than a
// tenth of the lease before the end of the lease. An answer that came late must not cost the term.
func TestAHeartbeatIsDueInTimeHoweverLateTheLastAnswerWas(t *testing.T) {
	for _, interval := range []time.Duration{lease / 10, lease / 3, lease * 9 / 10} {
		for _, since := range []time.Duration{0, 1, lease / 20, lease / 3, lease / 2, lease * 8 / 10, lease * 9 / 10, lease * 95 / 100} {
			for _, share := range []float64{0, 0.5, 1} {
				for phase := time.Duration(0); phase < interval; phase += interval / 7 {
					clock := &stillClock{now: Instant{Wall: int64(time.Hour), Mono: int64(10*interval + phase)}, share: share}
					term := &Term{life: life{clock: clock, lease: lease}}
					term.standing.Store(&standing{acknowledged: earlier(clock.now, since)})
					what := fmt.Sprintf("interval %v, %v after the last one, share %v, phase %v", interval, since, share, phase)
					last := max(lease*9/10-since, 0)
					alone := (&Keeper{Term: term, Interval: interval}).untilBeat()
					assert.Equal(t, min(max(interval-interval/20+time.Duration(share*float64(interval/10))-since, 0), last), alone, what)
					assert.Equal(t, min(interval-phase, last), (&Keeper{Term: term, Interval: interval, InPhase: true}).untilBeat(), what)
				}
			}
		}
	}
}

// A term never returns to an earlier phase, in whatever order its owner, its keeper, its fences and its timer end it. Nobody may act once
// the term has ended or its work has stalled, the work's context ends no later than that, and each context keeps its first cause.
func TestATermNeverReturnsToAnEarlierPhase(t *testing.T) {
	changes := []struct {
		name string
		to   phase
		do   func(*Term)
	}{
		{"CancelWork", draining, func(t *Term) { t.CancelWork(errRefused) }},
		{"Stall", draining, func(t *Term) { t.Stall(errStall) }},
		{"End", ended, func(t *Term) { t.End(errLost) }},
		{"Supersede", ended, func(t *Term) { t.Supersede(t.clock.Now()) }},
		{"a heartbeat", held, func(t *Term) { t.extend(t.clock.Now()) }},
		{"a failed heartbeat", held, func(t *Term) { t.endanger(errRefused) }},
	}
	n := len(changes)
	for order := range n * n * n {
		synctest.Test(t, func(t *testing.T) {
			term := candidate("a", &memstore.Store{}, "m").Try(t.Context(), All, lease/3).Term
			require.NotNil(t, term)
			reached, stalled, what := held, false, ""
			for _, i := range []int{order % n, order / n % n, order / n / n} {
				c := changes[i]
				what += c.name + ", "
				work, over := context.Cause(term.Context()), context.Cause(term.Over())
				time.Sleep(lease / 10)
				c.do(term)
				stalled = stalled || c.name == "Stall" && reached < ended
				reached = max(reached, c.to)
				require.Equal(t, reached, term.standing.Load().phase, what)
				require.Equal(t, reached < ended && !stalled, term.Held(), what)
				require.Equal(t, stalled, term.Stalled() != nil, what)
				require.Equal(t, reached == ended, term.Over().Err() != nil, what)
				require.Equal(t, reached > held, term.Context().Err() != nil, what)
				require.True(t, work == nil || work == context.Cause(term.Context()), what)
				require.True(t, over == nil || over == context.Cause(term.Over()), what)
				require.Equal(t, reached < ended, term.lasts() > 0, what)
			}
			term.End(nil)
		})
	}
}

// When the wait for several heartbeats ends, one that was sent before the acknowledged one has failed. One that was sent after it, or was
// in progress when the owner stopped, was only canceled. The metrics count the former as slow answers, and must not count the latter.
func TestAHeartbeatThatIsGivenUpHasFailedOnlyIfItsAnswerWasLate(t *testing.T) {
	for answered := range 5 { // 3: none, because the term ends; 4: none, because the owner stops
		synctest.Test(t, func(t *testing.T) {
			store, third := &memstore.Store{}, make(chan struct{})
			var ctxs [3]context.Context
			var sent atomic.Int32
			term := candidate("a", table.Via(func(ctx context.Context, step string, call func(context.Context, table.Store) error) error {
				if step != "heartbeat" || int(sent.Load()) == len(ctxs) {
					return call(ctx, store)
				}
				n := int(sent.Add(1)) - 1
				if ctxs[n] = ctx; n == 2 {
					close(third)
				}
				if <-third; n == answered {
					return call(ctx, store)
				}
				<-ctx.Done()
				return ctx.Err()
			}), "m").Try(t.Context(), All, lease/3).Term
			require.NotNil(t, term)
			k := &Keeper{Term: term, Interval: lease / 3, Notify: func(TermEvent) {}}
			k.Start()
			<-third
			switch synctest.Wait(); answered {
			case 3:
				term.End(errLost)
			case 4:
				require.NoError(t, k.Stop())
			}
			synctest.Wait()
			for n, ctx := range ctxs {
				if n == answered {
					continue
				}
				want := context.DeadlineExceeded
				if n > answered || answered == 4 {
					want = context.Canceled
				}
				assert.ErrorIs(t, context.Cause(ctx), want, "attempt %d, and %d was answered", n, answered)
			}
			if answered < 4 {
				_ = k.Stop()
			}
			term.End(nil)
		})
	}
}

// An answer to a heartbeat that comes after the deadline revives no term, even if the heartbeat was sent in time: whoever has seen in
// between that the lock is not held may have stopped its work. On a machine that was suspended, the timer may not have fired yet.
func TestAnAnswerAfterTheDeadlineRevivesNoTerm(t *testing.T) {
	const last = lease - lease/100 - lease/3
	for _, suspended := range []time.Duration{0, lease / 2, last - 1, last, lease * 9 / 10, 2 * lease} {
		synctest.Test(t, func(t *testing.T) {
			store, held, slept := &memstore.Store{}, true, time.Duration(0)
			var term *Term
			c := candidate("a", table.Via(func(ctx context.Context, step string, call func(context.Context, table.Store) error) error {
				err := call(ctx, store)
				if step == "heartbeat" {
					slept = suspended
					held = term.Held()
				}
				return err
			}), "m")
			c.Clock = wakingClock{slept: &slept}
			term = c.Try(t.Context(), All, lease/3).Term
			require.NotNil(t, term)
			time.Sleep(lease / 3)
			err := beat(keeper(term))
			assert.Equal(t, suspended < last, held, "%v", suspended)
			assert.Equal(t, held, term.Held(), "%v", suspended)
			assert.Equal(t, held, err == nil, "%v: %v", suspended, err)
			if !held {
				assert.ErrorIs(t, err, ErrExpired)
			}
			term.End(nil)
		})
	}
}

// Stop says why a term is over even if nobody has noticed that yet: on a machine that was suspended, the deadline can have passed before
// its timer fires. An owner that took the term for held would release a lock that may be another's by then.
func TestStopSaysWhyATermIsOverEvenIfNobodyHasNoticedThat(t *testing.T) {
	for _, stalled := range []bool{false, true} {
		for _, suspended := range []time.Duration{0, Limit(lease) - 1, Limit(lease), 2 * lease} {
			synctest.Test(t, func(t *testing.T) {
				slept, want := time.Duration(0), ErrExpired
				c := candidate("a", &memstore.Store{}, "m")
				c.Clock = wakingClock{slept: &slept}
				term := c.Try(t.Context(), All, lease/3).Term
				require.NotNil(t, term)
				k := &Keeper{Term: term, Interval: lease / 3, Notify: func(TermEvent) {}}
				k.Start()
				synctest.Wait()
				if stalled {
					want = errStall
					require.True(t, term.Stall(errStall))
				}
				slept = suspended
				if err := k.Stop(); suspended < Limit(lease) {
					assert.NoError(t, err, "%v, %v", stalled, suspended)
					assert.NoError(t, term.Over().Err(), "%v, %v", stalled, suspended)
				} else {
					assert.ErrorIs(t, err, want, "%v, %v", stalled, suspended)
					assert.ErrorIs(t, context.Cause(term.Over()), want, "%v, %v", stalled, suspended)
				}
				term.End(nil)
			})
		}
	}
}
