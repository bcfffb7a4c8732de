package elect

import (
	"context"
	"errors"
	"fmt"
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

func TestCandidatesComeAtDifferentTimesToALeaseThatEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &memstore.Store{}
		holder := candidate("holder", store, "m").Try(t.Context(), All, lease/3)
		require.NotNil(t, holder.Term)
		defer holder.Term.End(nil)
		time.Sleep(lease - time.Second)
		first, last := lease, time.Duration(0)
		instants := map[time.Duration]bool{}
		for range 50 {
			step := candidate("c", store, "m").Try(t.Context(), All, lease/3)
			require.Nil(t, step.Term)
			first, last = min(first, step.Pause), max(last, step.Pause)
			instants[step.Pause] = true
		}
		assert.GreaterOrEqual(t, first, time.Second, "not before the lease has ended")
		assert.LessOrEqual(t, last, time.Second+lease/50+10*time.Microsecond) // a commit's timestamp may be microseconds ahead
		assert.Greater(t, last-first, lease/100)
		assert.Greater(t, len(instants), 40)
	})
}

func TestThoseWhoLoseAClaimSpreadMoreEachTime(t *testing.T) {
	c := candidate("c", nil, "m")
	widest := func() (most time.Duration) {
		for range 200 {
			most = max(most, c.spread(nil))
		}
		return most
	}
	assert.LessOrEqual(t, widest(), lease/50)
	c.contests = 2
	assert.Greater(t, widest(), lease/50)
	c.contests = 100
	assert.LessOrEqual(t, widest(), lease/4)
	c.contests, c.LeaseRecord.Lease = 0, 24*time.Hour
	assert.LessOrEqual(t, widest(), time.Second, "a long lease does not make a candidate slow")
}

// A term ends the rows of lost claims and of failures before it. A poll that finds a holder ends them, too, but not one that
// finds a bare claim or a holder that is gone: a crowd that came back at once would continue to collide.
func TestASuccessBeginsTheRowsAnew(t *testing.T) {
	for _, whose := range []string{"its own term", "a holder", "a bare claim", "a holder whose lease has expired"} {
		t.Run(whose, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				link := &memstore.Link{Store: &memstore.Store{}}
				c, rival := candidate("c", link, "m"), candidate("rival", link.Store, "m")
				refuse := func(step string) { link.Refuse(refusingStep(step, table.ErrAborted)) }
				for _, refused := range []string{"observe", "claim"} {
					refuse(refused)
					for range 5 {
						require.Nil(t, c.Try(t.Context(), All, lease/3).Term)
					}
				}
				require.Equal(t, 5, c.contests)
				require.True(t, c.aborted)
				refuse("")
				switch whose {
				case "its own term":
					term := c.Try(t.Context(), All, lease/3).Term
					require.NotNil(t, term)
					assert.False(t, c.aborted)
					require.NoError(t, term.Release(t.Context(), nil))
				case "a holder":
					term := rival.Try(t.Context(), All, lease/3).Term
					require.NotNil(t, term)
					require.NoError(t, c.Try(t.Context(), All, lease/3).Err)
					require.NoError(t, term.Release(t.Context(), nil))
				case "a holder whose lease has expired":
					term := rival.Try(t.Context(), All, lease/3).Term
					require.NotNil(t, term)
					term.End(nil)
					time.Sleep(lease + time.Millisecond)
					refuse("claim")
					require.True(t, c.Try(t.Context(), All, lease/3).Lost)
					assert.Equal(t, 6, c.contests)
					return
				case "a bare claim":
					seen, err := rival.Look(t.Context())
					require.NoError(t, err)
					_, err = rival.Table.Claim(t.Context(), rival.ID, seen[0].Observation)
					require.NoError(t, err)
					require.Positive(t, c.Try(t.Context(), All, lease/3).Seen[0].FreeIn)
					assert.Equal(t, 5, c.contests)
					return
				}
				assert.Zero(t, c.contests)
				refuse("observe")
				assert.LessOrEqual(t, c.Try(t.Context(), All, lease/3).Pause, lease/90)
			})
		})
	}
}

// A candidate whose claims were applied but not answered frees them, and then leaves the locks alone until the last of them would have
// expired, but at least for a third of its lease. Otherwise it would claim them again and again, and nobody would hold them.
func TestACandidateThatDisownsItsClaimsLeavesTheLocksAlone(t *testing.T) {
	for _, late := range []time.Duration{0, lease / 3, lease * 6 / 10, lease * 9 / 10, 2 * lease} { // after the claim
		for _, fails := range []bool{false, true} {
			synctest.Test(t, func(t *testing.T) {
				store := &memstore.Store{}
				link := &memstore.Link{Store: store}
				c := candidate("c", link, "m", "n")
				link.Lose(nil, memstore.Once("claim"))
				began := time.Now()
				require.Error(t, c.Try(t.Context(), All, lease/3).Err)
				time.Sleep(time.Until(began.Add(max(late, Attempt(lease)))))
				if late = time.Since(began); fails {
					link.Refuse(refusingStep("withdraw", errRefused))
				}
				step := c.Try(t.Context(), All, lease)
				require.True(t, step.CoolingDown)
				want := max(lease-late, lease/3)
				assert.InDelta(t, want.Seconds(), c.coolDown.Left(c.Clock).Seconds(), 0.001, "%v after the claim", late)
				assert.LessOrEqual(t, step.Pause, want+time.Millisecond)
				for _, name := range c.Names {
					assert.Equal(t, fails, !store.Rows()[name].Heartbeat.IsZero(), "%v, %v: another candidate can claim %s at once", late, fails, name)
				}
			})
		}
	}
}

// A candidate that stops competing frees its claims that were applied but not answered. After any other last step, it sends nothing.
func TestACandidateThatStopsLeavesNoClaimBehind(t *testing.T) {
	for _, lost := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			link := &memstore.Link{Store: &memstore.Store{}}
			c, other := candidate("c", link, "m", "n"), candidate("other", link.Store, "m", "n")
			if lost {
				link.Lose(nil, memstore.Once("claim"))
			} else {
				link.Refuse(refusingStep("claim", table.ErrChanged))
			}
			require.Nil(t, c.Try(t.Context(), All, lease/3).Term)
			link.Refuse(func(step string) error {
				assert.True(t, lost, "it sends %s", step)
				return nil
			})
			c.Abandon()
			c.Abandon()
			require.NotNil(t, other.Try(t.Context(), All, lease/3).Term)
		})
	}
}

// If the caller ends a poll, the candidate does not take this for an outage, and frees the claim that it made before.
func TestACandidateWhosePollIsCutOffLeavesNoClaimBehind(t *testing.T) {
	for _, ends := range []func(context.Context) (context.Context, context.CancelFunc){
		context.WithCancel,
		func(ctx context.Context) (context.Context, context.CancelFunc) {
			return context.WithTimeout(ctx, lease/10)
		},
	} {
		synctest.Test(t, func(t *testing.T) {
			link := &memstore.Link{Store: &memstore.Store{}}
			c, other := candidate("c", link, "m"), candidate("other", link.Store, "m")
			link.Lose(nil, memstore.Once("claim"))
			require.Error(t, c.Try(t.Context(), All, lease/3).Err)
			ctx, stop := ends(t.Context())
			defer stop()
			link.Hold()
			time.AfterFunc(lease/10, stop)
			require.Error(t, c.Try(ctx, All, lease/3).Err)
			link.Mend()
			c.Abandon()
			require.NotNil(t, other.Try(t.Context(), All, lease/3).Term)
		})
	}
}

// A candidate that stops in an outage does not wait for a poll that will fail as the last one did.
func TestACandidateThatStopsInAnOutageStopsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		link := &memstore.Link{Store: &memstore.Store{}}
		c := candidate("c", link, "m")
		link.Lose(nil, memstore.Once("claim"))
		require.Error(t, c.Try(t.Context(), All, lease/3).Err)
		link.Cut()
		require.Error(t, c.Try(t.Context(), All, lease/3).Err)
		began := time.Now()
		c.Abandon()
		assert.Zero(t, time.Since(began))
	})
}

// A claim that is applied late is the candidate's own, even if it makes the candidate's next claim fail: another candidate seems to
// have been first. The candidate frees it.
func TestALateClaimIsDisownedEvenIfItPrecedesTheNextOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &memstore.Store{}
		link := &memstore.Link{Store: store}
		c := candidate("c", link, "m")
		seen, err := c.Look(t.Context())
		require.NoError(t, err)
		link.Lose(memstore.Once("claim"), nil)
		require.Error(t, c.Try(t.Context(), All, lease/3).Err)
		applied := false
		link.Refuse(func(step string) error {
			if step == "claim" && !applied {
				applied = true
				_, err := table.Table{Store: store}.Claim(t.Context(), c.ID, seen[0].Observation)
				require.NoError(t, err)
			}
			return nil
		})
		require.True(t, c.Try(t.Context(), All, lease/3).Lost)
		require.True(t, c.Try(t.Context(), All, lease/3).CoolingDown)
		require.NotNil(t, candidate("other", store, "m").Try(t.Context(), All, lease/3).Term)
	})
}

// A candidate disowns only locks for which it does not know what became of its claim. Another goroutine of its process competes for the
// same slots under the same id, and may just have claimed another slot. And a slot of its own is not forgotten when it wins another one.
func TestACandidateDisownsNoOtherLocksThanItClaimed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &memstore.Store{}
		link := &memstore.Link{Store: store}
		c, twin := candidate("c", link, "m", "n", "o"), candidate("c", store, "m", "n", "o")
		only := func(i int) Choose { return func(seen []LockView) Decision { return Decision{Claim: seen[i : i+1]} } }
		link.Lose(nil, memstore.Once("claim"))
		require.Error(t, c.Try(t.Context(), only(0), lease/3).Err)
		seen, err := twin.Look(t.Context())
		require.NoError(t, err)
		token, err := twin.Table.Claim(t.Context(), twin.ID, seen[1].Observation)
		require.NoError(t, err)

		term, err := c.claim(t.Context(), c.Table, seen[2])
		require.NoError(t, err)
		defer term.End(nil)
		require.True(t, c.Try(t.Context(), only(2), lease/3).CoolingDown)
		assert.Zero(t, store.Rows()["m"].Heartbeat, "it is disowned")
		require.NoError(t, twin.Table.Confirm(t.Context(), token, twin.LeaseRecord, "n"))
		assert.Empty(t, c.unsure)
	})
}

// Two terms of different locks can have the same token, because each row has commit timestamps of its own. The token of a candidate's
// last term on one slot says nothing about another slot: it would claim that slot from its holder.
func TestTheTokenOfALastTermCountsOnlyForItsLocks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &memstore.Store{}
		c := candidate("c", store, "m", "n")
		term, err := func() (*Term, error) {
			seen, err := c.Look(t.Context())
			require.NoError(t, err)
			return c.claim(t.Context(), c.Table, seen[0])
		}()
		require.NoError(t, err)
		term.End(ErrExpired)
		other := candidate("other", store, "n").Try(t.Context(), All, lease/3).Term
		require.NotNil(t, other)
		c.past.own, c.past.unkept = other.Token(), other.Token()
		seen, err := c.Look(t.Context())
		require.NoError(t, err)
		assert.InDelta(t, lease.Seconds(), seen[1].FreeIn.Seconds(), 0.001, "another candidate holds it")
	})
}

// A candidate that sees another holder knows that its own claim of unknown outcome was not applied, and never will be. When it stops, it
// sends nothing.
func TestAClaimIsForgottenOnceAnotherCandidateHoldsTheLock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &memstore.Store{}
		link := &memstore.Link{Store: store}
		c := candidate("c", link, "m")
		link.Lose(memstore.Once("claim"), nil)
		require.Error(t, c.Try(t.Context(), All, lease/3).Err)
		require.NotEmpty(t, c.unsure)
		require.NotNil(t, candidate("other", store, "m").Try(t.Context(), All, lease/3).Term)
		require.Nil(t, c.Try(t.Context(), All, lease/3).Term)
		link.Refuse(func(step string) error {
			t.Errorf("it sends %s", step)
			return nil
		})
		c.Abandon()
	})
}

// A candidate disowns its claim if the claim is committed so long after the poll that the rows may have changed in between. Nobody
// confirms such a claim, so the lock would stay claimed for a lease.
func TestAClaimThatIsCommittedTooLateIsDisowned(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &memstore.Store{}
		c := candidate("c", store, "m")
		seen, err := c.Look(t.Context())
		require.NoError(t, err)
		time.Sleep(time.Hour + time.Second)
		_, err = c.claim(t.Context(), c.Table, seen...)
		require.ErrorContains(t, err, "it must be withdrawn")
		require.False(t, store.Rows()["m"].Heartbeat.IsZero())
		require.True(t, c.Try(t.Context(), All, lease/3).CoolingDown)
		require.True(t, store.Rows()["m"].Heartbeat.IsZero())
	})
}

// A poll says for how long a lock has been claimable, whether the candidate itself may claim it or not. A waiter goes by it when those
// ahead of it do not claim.
func TestAPollSaysForHowLongALockHasBeenClaimable(t *testing.T) {
	for _, rests := range []time.Duration{0, lease} {
		synctest.Test(t, func(t *testing.T) {
			store := &memstore.Store{}
			term := candidate("holder", store, "m", "n").Try(t.Context(), All, lease/3).Term
			require.NotNil(t, term)
			term.End(nil)
			c := candidate("c", store, "m", "n")
			c.LockDelay = lease / 2
			holdOff := map[string]time.Duration{"n": lease * 3 / 2}
			c.HoldOff = func(name string) time.Duration { return holdOff[name] }
			for since := -lease * 3 / 2; since < lease; since += lease / 4 { // since the end of the lease and the lock delay
				c.Rest(rests)
				seen, err := c.Look(t.Context())
				require.NoError(t, err)
				for i, name := range c.Names {
					assert.InDelta(t, max(since, 0).Seconds(), seen[i].FreeFor.Seconds(), 0.001, name)
					assert.InDelta(t, max(-since, rests, holdOff[name]).Seconds(), max(seen[i].FreeIn, 0).Seconds(), 0.001, name)
				}
				time.Sleep(lease / 4)
			}
		})
	}
}

// Whatever a step has found, the pause before the next one is positive, and not longer than the caller wants.
func TestNoPauseIsLongerThanTheCallerWants(t *testing.T) {
	for name, prepare := range map[string]func(c *Candidate, link *memstore.Link){
		"the poll fails":  func(_ *Candidate, l *memstore.Link) { l.Refuse(refusingStep("observe", errRefused)) },
		"the claim fails": func(_ *Candidate, l *memstore.Link) { l.Refuse(refusingStep("claim", errRefused)) },
		"the claim is aborted": func(c *Candidate, l *memstore.Link) {
			c.contests = 50
			l.Refuse(refusingStep("claim", table.ErrAborted))
		},
		"the confirmation fails": func(_ *Candidate, l *memstore.Link) { l.Refuse(refusingStep("confirm", errRefused)) },
		"its own claim is found": func(c *Candidate, l *memstore.Link) {
			l.Lose(nil, memstore.Once("claim"))
			c.Try(context.Background(), All, lease)
		},
		"it rests": func(c *Candidate, _ *memstore.Link) { c.Rest(10 * lease) },
		"another candidate has the lock": func(_ *Candidate, l *memstore.Link) {
			candidate("holder", l.Store, "m").Try(context.Background(), All, lease).Term.End(nil)
		},
	} {
		for _, most := range []time.Duration{lease / 1000, lease / 100, lease / 3, lease * 9 / 10} {
			synctest.Test(t, func(t *testing.T) {
				link := &memstore.Link{Store: &memstore.Store{}}
				c := candidate("c", link, "m")
				prepare(c, link)
				for range 5 {
					step := c.Try(t.Context(), All, most)
					require.Nil(t, step.Term)
					assert.Positive(t, step.Pause, name)
					assert.LessOrEqual(t, step.Pause, most, name)
				}
			})
		}
	}
}

// The queue learns what a poll has read of it, even if a further read of the poll fails. Otherwise, a waiter would lose sight of its
// neighbours while some rows of the lock can't be read.
func TestAQueueLearnsWhatWasReadOfIt(t *testing.T) {
	for failed, learns := range map[int]int{0: 1, 1: 0, 2: 1} { // the read that fails; 0: none
		synctest.Test(t, func(t *testing.T) {
			link := &memstore.Link{Store: &memstore.Store{}}
			term := candidate("holder", link.Store, "m").Try(t.Context(), All, lease/3).Term
			require.NotNil(t, term)
			term.End(nil)
			c, q, reads := candidate("c", link, "m"), &oneQueue{}, 0
			_, err := c.Look(t.Context())
			require.NoError(t, err)
			require.NoError(t, link.Commit(t.Context(), "operator", []table.Write{{Kind: table.Delete, Name: "m"}})) // so that a second read follows
			c.Queue = q
			link.Refuse(func(string) error {
				if reads++; reads == failed {
					return errRefused
				}
				return nil
			})
			_, err = c.Look(t.Context())
			assert.Equal(t, failed != 0, err != nil)
			assert.Equal(t, learns, q.learned, "failed: %d", failed)
		})
	}
}

// oneQueue is a queue that counts how often it learns something.
type oneQueue struct{ learned int }

func (*oneQueue) Asks() *table.Beside    { return &table.Beside{} }
func (q *oneQueue) Learns(*table.Beside) { q.learned++ }

// The pauses after failed attempts double from a thirtieth of the longest one up to the longest one. No pause is longer than ten seconds,
// and the first is at most one second. However long the lease is, a candidate is back soon after an outage.
func TestThePausesAfterFailuresDoubleWithinBounds(t *testing.T) {
	for _, longest := range []time.Duration{3 * time.Millisecond, time.Second, 9 * time.Second, 10 * time.Second, time.Minute, 24 * time.Hour} {
		for _, share := range []float64{0, 1} {
			b, clock := Backoff{Max: longest}, &stillClock{share: share}
			for range 2 {
				want := min(longest/30, time.Second)
				for range 20 {
					want = min(want, longest, 10*time.Second)
					assert.Equal(t, Jitter(clock, want), b.Pause(clock), longest)
					want *= 2
				}
				b.Reset()
			}
		}
	}
}

// After a claim that another candidate won, or one that the candidate won itself, a bare claim with the candidate's id is not its
// own, even if a claim before that was. The ids of two candidates should differ, but may be the same by mistake.
func TestACandidateThatKnowsWhatBecameOfItsClaimDisownsNothing(t *testing.T) {
	for _, before := range []string{"", "claim"} { // the step whose reply is lost
		for _, won := range []bool{false, true} {
			synctest.Test(t, func(t *testing.T) {
				link := &memstore.Link{Store: &memstore.Store{}}
				c, twin := candidate("c", link, "m"), candidate("c", link.Store, "m")
				if before != "" {
					link.Lose(nil, memstore.Once(before))
					require.Error(t, c.Try(t.Context(), All, lease/3).Err)
					require.True(t, c.Try(t.Context(), All, lease/3).CoolingDown)
					time.Sleep(2 * lease)
				}
				if won {
					term := c.Try(t.Context(), All, lease/3).Term
					require.NotNil(t, term)
					require.NoError(t, term.Release(t.Context(), nil))
				} else {
					link.Refuse(refusingStep("claim", table.ErrAborted))
					require.True(t, c.Try(t.Context(), All, lease/3).Lost)
				}
				seen, err := twin.Look(t.Context())
				require.NoError(t, err)
				token, err := twin.Table.Claim(t.Context(), "c", seen[0].Observation)
				require.NoError(t, err)
				require.False(t, c.Try(t.Context(), All, lease/3).CoolingDown)
				require.NoError(t, twin.Table.Confirm(t.Context(), token, twin.LeaseRecord, "m"))
			})
		}
	}
}

// A candidate that competes once more reads the rows again, because much can have happened in the meantime, and begins its pauses
// anew. It remembers what keeps it from claiming at once: its pauses, and the terms that it could not keep. What it then learns is
// not known to the candidate that it was copied from.
func TestACandidateThatCompetesAgainForgetsOnlyTheRows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &memstore.Store{}
		link := &memstore.Link{Store: store}
		c := candidate("c", link, "m")
		term := candidate("holder", store, "m").Try(t.Context(), All, lease/3).Term
		require.NotNil(t, term)
		_, err := c.Look(t.Context())
		require.NoError(t, err)
		link.Refuse(func(string) error { return errors.New("away") })
		for range 20 {
			require.Error(t, c.Try(t.Context(), All, lease/3).Err)
		}
		link.Refuse(nil)
		c.contests, c.unsure, c.aborted = 7, []string{"m"}, true
		c.Rest(lease)
		c.cool(lease / 2)
		c.past.unkept, c.past.expired, c.past.yieldFor = 5, 2, lease/3
		before := c.memory

		again := c.Again()
		assert.Zero(t, again.contests)
		require.NotZero(t, before.retry)
		assert.Zero(t, again.retry, "the first pause is short")
		assert.Equal(t, []any{before.past, before.preference, before.coolDown, before.rest, []string{"m"}, true},
			[]any{again.past, again.preference, again.coolDown, again.rest, again.unsure, again.aborted})
		assert.Equal(t, []any{c.Table, c.Names, c.ID, c.LeaseRecord}, []any{again.Table, again.Names, again.ID, again.LeaseRecord})

		require.NoError(t, store.Commit(t.Context(), "operator", []table.Write{{Kind: table.Delete, Name: "m"}, {Kind: table.Delete, Name: table.LeaseKey("m", term.Token())}}))
		term.End(nil)
		again.rest, again.coolDown = Pause{}, Pause{}
		seen, err := again.Look(t.Context())
		require.NoError(t, err)
		assert.LessOrEqual(t, seen[0].FreeIn, time.Duration(0), "to the copy, the lock was never held")
		c.rest, c.coolDown = Pause{}, Pause{}
		seen, err = c.Look(t.Context())
		require.NoError(t, err)
		assert.Positive(t, seen[0].FreeIn, "the original has seen its holder")
	})
}

func TestARestAfterAnErrorThatIsKnownAtOnceIsShort(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		link := &memstore.Link{Store: &memstore.Store{}}
		link.Refuse(refusingStep("confirm", errRefused))
		c := candidate("c", link, "one")
		c.LeaseRecord.Lease = 24 * time.Hour
		require.Error(t, c.Try(t.Context(), All, time.Hour).Err)
		seen, err := c.Look(t.Context())
		require.NoError(t, err)
		assert.Positive(t, seen[0].FreeIn)
		assert.LessOrEqual(t, seen[0].FreeIn, time.Minute, "a day without a candidate costs more than another try")
	})
}

const lease = 10 * time.Second

var errRefused = status.Error(codes.PermissionDenied, "refused")

func candidate(id string, store table.Store, names ...string) *Candidate {
	return &Candidate{Table: table.Table{Store: store}, Clock: SystemClock{}, Names: names, ID: id, LeaseRecord: table.LeaseRecord{Lease: lease}}
}

func TestAClaimOfOneLockForgetsNothingOfAnother(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &memstore.Store{}
		step := candidate("a", store, "one").Try(t.Context(), All, lease/3)
		require.NotNil(t, step.Term)
		defer step.Term.End(nil)

		link := &memstore.Link{Store: store}
		link.Refuse(refusingStep("confirm", errRefused))
		c := candidate("c", link, "one", "other")
		seen, err := c.Look(t.Context())
		require.NoError(t, err)
		require.Positive(t, seen[0].FreeIn)
		_, err = c.claim(t.Context(), c.Table, seen[1])
		require.Error(t, err)

		require.NoError(t, store.Commit(t.Context(), "operator", []table.Write{
			{Kind: table.Delete, Name: "one"}, {Kind: table.Delete, Name: table.LeaseKey("one", step.Term.Token())}}))
		c.coolDown = Pause{} // it is about what it knows, not that it is polite
		seen, err = c.Look(t.Context())
		require.NoError(t, err)
		assert.Positive(t, seen[0].FreeIn, "its holder may not know yet")
		assert.True(t, step.Term.Held())
	})
}

// A candidate that could not confirm leaves the locks to others for the whole time, even if it gave one up before.
func TestOnlyAYieldEndsWhenAnotherHolds(t *testing.T) {
	c := candidate("a", &memstore.Store{}, "one")
	c.Yield(true, "")
	c.yieldedTo()
	assert.Zero(t, c.coolDown.Left(c.Clock))
	c.Yield(true, "")
	c.cool(lease)
	c.yieldedTo()
	assert.Positive(t, c.coolDown.Left(c.Clock))
}

// A candidate lets others go first after the second term in a row that expired because heartbeats failed. A term that
// was kept for ten lease durations resets the count. Otherwise each outage in a long life would delay the candidate.
func TestATermThatWasKeptForLongBeginsANewRow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		link := &memstore.Link{Store: &memstore.Store{}}
		c := candidate("a", link, "one")
		yields := func(beats int) time.Duration {
			time.Sleep(3 * lease)
			step := c.Try(t.Context(), All, lease/3)
			require.NotNil(t, step.Term, "%v", step.Err)
			k := keeper(step.Term)
			for range beats {
				time.Sleep(lease / 3)
				require.NoError(t, beat(k))
			}
			link.Refuse(func(string) error { return errors.New("away") })
			require.NoError(t, beat(k))
			time.Sleep(lease)
			require.False(t, step.Term.Held())
			link.Refuse(nil)
			_, err := c.Look(t.Context())
			require.NoError(t, err)
			return c.past.yieldFor
		}
		assert.Zero(t, yields(1), "the first")
		assert.Equal(t, lease/3, yields(1), "the second in a row")
		assert.Equal(t, lease/3, yields(28), "nine leases are not enough")
		assert.Zero(t, yields(31))
		assert.Equal(t, lease/3, yields(1))
	})
}

// A candidate whose heartbeats have failed waits until its old lease expires, even if its work was told to stop before.
// Otherwise, a holder that steps down during an outage would claim its lock before the others can.
func TestATermThatExpiresAfterItsWorkWasToldToStopWasNotKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		link := &memstore.Link{Store: &memstore.Store{}}
		c := candidate("a", link, "one")
		term := c.Try(t.Context(), All, lease/3).Term
		require.NotNil(t, term)
		term.CancelWork(errors.New("told to stop"))
		link.Refuse(func(string) error { return errors.New("away") })
		require.NoError(t, beat(&Keeper{Term: term, Notify: func(TermEvent) {}, ctx: t.Context()}))
		<-term.Over().Done()
		require.ErrorIs(t, context.Cause(term.Over()), ErrExpired)
		link.Refuse(nil)
		seen, err := c.Look(t.Context())
		require.NoError(t, err)
		assert.Positive(t, seen[0].FreeIn)
	})
}

// Work that has not returned is said after a lease, and again each time the wait has doubled, together with how long it has lasted.
// Nothing is said once the work has returned.
func TestAReminderSaysHowLongTheWaitHasLasted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 20*lease)
		defer cancel()
		began, said := time.Now(), []time.Duration(nil)
		Remind(ctx, SystemClock{}, lease, func(waited time.Duration) {
			assert.Equal(t, time.Since(began), waited)
			said = append(said, waited)
		})
		assert.Equal(t, []time.Duration{lease, 2 * lease, 4 * lease, 8 * lease, 16 * lease}, said)
		assert.Equal(t, 20*lease, time.Since(began))
	})
}

// From the tenth on, each claim of a row that was lost is an error, until a claim succeeds: nobody holds the lock meanwhile, and only
// these errors show it to the probes and the log. The pauses stay within their bounds, however long the row is.
func TestEachClaimOfALongRowThatWasLostIsAnError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		link := &memstore.Link{Store: &memstore.Store{}}
		c := candidate("c", link, "m")
		for range 2 {
			link.Refuse(refusingStep("claim", table.ErrAborted))
			for n := 1; n < 100; n++ {
				step := c.Try(t.Context(), All, lease)
				require.True(t, step.Lost)
				require.Equal(t, n >= 10, step.Err != nil, n)
				if step.Err != nil {
					require.ErrorContains(t, step.Err, fmt.Sprintf("%d claims in a row", n))
				}
				require.Positive(t, step.Pause, n)
				require.LessOrEqual(t, step.Pause, lease/4+1, n)
			}
			link.Refuse(nil)
			term := c.Try(t.Context(), All, lease).Term
			require.NotNil(t, term)
			require.NoError(t, term.Release(t.Context(), nil))
		}
	})
}

// A confirmation that fails is tried again, unless that is pointless: a single refusal may be temporary, but not a second one. A heartbeat
// finds out whether a confirmation was applied in spite of the error. A claim that is given up is withdrawn, so the lock is free at once.
func TestAConfirmationIsTriedAgainUnlessThatIsPointless(t *testing.T) {
	outage, gone := status.Error(codes.Unavailable, "away"), status.Error(codes.NotFound, "Table not found: locks")
	for _, x := range []struct {
		err     error
		fails   int
		applied bool // the last one that fails
		confirm int  // how often each step is sent
		beat    int
		won     bool
	}{
		{errRefused, 1, false, 2, 1, true}, {errRefused, 2, false, 2, 1, false}, {errRefused, 1, true, 1, 1, true},
		{outage, 1, false, 2, 1, true}, {outage, 5, false, 6, 5, true}, {outage, 1, true, 1, 1, true}, {outage, 3, true, 3, 3, true},
		{table.ErrAborted, 1, false, 2, 0, true}, {table.ErrAborted, 5, false, 6, 0, true},
		{table.ErrGarbled, 1, false, 1, 0, false}, {gone, 1, false, 1, 0, false},
	} {
		synctest.Test(t, func(t *testing.T) {
			store, counts := &memstore.Store{}, map[string]int{}
			c := candidate("c", table.Via(func(ctx context.Context, step string, call func(context.Context, table.Store) error) error {
				counts[step]++
				if n := counts[step]; step == "confirm" && n <= x.fails {
					if x.applied && n == x.fails {
						_ = call(ctx, store)
					}
					return x.err
				}
				return call(ctx, store)
			}), "m")
			step := c.Try(t.Context(), All, lease)
			assert.Equal(t, []int{1, x.confirm, x.beat}, []int{counts["claim"], counts["confirm"], counts["heartbeat"]}, "%+v", x)
			require.Equal(t, x.won, step.Term != nil, "%+v: %v", x, step.Err)
			assert.Equal(t, x.won, !store.Rows()["m"].Heartbeat.IsZero(), "%+v", x)
			if x.won {
				step.Term.End(nil)
			}
		})
	}
}

// A candidate that is overtaken between its claim and its confirmation withdraws nothing and does not cool down. It claims the lock as
// soon as the other candidate has given it back.
func TestACandidateThatIsOvertakenDoesNotCoolDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		link := &memstore.Link{Store: &memstore.Store{}}
		c, other := candidate("c", link, "m"), table.Table{Store: link.Store}
		claims, token := memstore.Once("claim"), table.Token(0)
		link.After(func(step string) {
			if claims(step) {
				seen, err := other.Observe(t.Context(), "m")
				require.NoError(t, err)
				token, err = other.Claim(t.Context(), "other", seen...)
				require.NoError(t, err)
			}
		})
		step := c.Try(t.Context(), All, lease/3)
		require.True(t, step.Lost)
		assert.NoError(t, step.Err)
		assert.LessOrEqual(t, step.Pause, lease/25+1)
		assert.Zero(t, link.Counts()["withdraw"])
		require.NoError(t, other.Confirm(t.Context(), token, table.LeaseRecord{Lease: lease}, "m"))
		require.NoError(t, other.Release(t.Context(), token, "m"))
		step = c.Try(t.Context(), All, lease/3)
		require.NotNil(t, step.Term)
		step.Term.End(nil)
	})
}
