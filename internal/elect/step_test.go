package elect

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

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
}

// A term ends the rows of lost claims and of failures before it. A poll that finds a holder ends them, too.
func TestASuccessBeginsTheRowsAnew(t *testing.T) {
	for _, held := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			link := &memstore.Link{Store: &memstore.Store{}}
			c := candidate("c", link, "m")
			refuse := func(refused string) {
				link.Refuse(func(step string) error {
					if step == refused {
						return table.ErrAborted
					}
					return nil
				})
			}
			for _, refused := range []string{"observe", "claim"} {
				refuse(refused)
				for range 5 {
					require.Nil(t, c.Try(t.Context(), All, lease/3).Term)
				}
			}
			require.Positive(t, c.contests)
			require.True(t, c.aborted)
			refuse("")
			succeeds := c
			if held {
				succeeds = candidate("holder", link, "m")
			}
			term := succeeds.Try(t.Context(), All, lease/3).Term
			require.NotNil(t, term)
			if held {
				require.NoError(t, c.Try(t.Context(), All, lease/3).Err)
			} else {
				assert.False(t, c.aborted)
			}
			require.NoError(t, term.Release(t.Context(), nil))
			assert.Zero(t, c.contests)
			refuse("observe")
			assert.LessOrEqual(t, c.Try(t.Context(), All, lease/3).Pause, lease/90)
		})
	}
}

// A crowd continues to collide if it comes back immediately after a bare claim has failed.
func TestThoseWhoLoseClaimsSpreadMoreUntilSomebodyHoldsTheLock(t *testing.T) {
	for rival, come := range map[string]func(t *testing.T, c *Candidate) (goAgain func()){
		"a bare claim": func(t *testing.T, c *Candidate) func() {
			seen, err := c.Look(t.Context())
			require.NoError(t, err)
			token, err := c.Table.Claim(t.Context(), c.ID, seen[0].Observation)
			require.NoError(t, err)
			return func() { require.NoError(t, c.Table.Withdraw(t.Context(), token, "m")) }
		},
		"a holder": func(t *testing.T, c *Candidate) func() {
			step := c.Try(t.Context(), All, lease/3)
			require.NotNil(t, step.Term)
			return func() { require.NoError(t, step.Term.Release(t.Context(), ErrExpired)) }
		},
	} {
		t.Run(rival, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var widest time.Duration
				for range 50 {
					store := &memstore.Store{}
					late := &memstore.Link{Store: store}
					late.Refuse(func(step string) error {
						if step == "claim" {
							return table.ErrAborted
						}
						return nil
					})
					c := candidate("c", late, "m")
					var step Step
					for range 4 {
						goAgain := come(t, candidate("rival", store, "m"))
						require.Positive(t, c.Try(t.Context(), All, lease/3).Seen[0].FreeIn)
						goAgain()
						step = c.Try(t.Context(), All, lease/3)
						require.NoError(t, step.Err)
						require.Equal(t, 1, late.Counts()["claim"], "another was first")
					}
					widest = max(widest, step.Pause)
				}
				if rival == "a holder" {
					assert.LessOrEqual(t, widest, 2*lease/50, "as after the first claim that was lost")
					assert.Greater(t, widest, lease/50)
				} else {
					assert.Greater(t, widest, lease/10, "as after the fourth")
					assert.LessOrEqual(t, widest, lease/4)
				}
			})
		})
	}
}

func TestALockWhoseLeaseRowCanNotBeReadStaysTaken(t *testing.T) {
	for name, damage := range map[string]func(key string) []table.Write{
		"held":   func(string) []table.Write { return nil },
		"orphan": func(string) []table.Write { return []table.Write{{Kind: table.Delete, Name: "m"}} },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := &memstore.Store{}
				holder := candidate("holder", store, "m").Try(t.Context(), All, lease/3)
				require.NotNil(t, holder.Term)
				defer holder.Term.End(nil)
				familiar := candidate("familiar", store, "m")
				familiar.LeaseRecord.Lease = time.Second
				_, err := familiar.Look(t.Context())
				require.NoError(t, err)
				key := table.LeaseKey("m", holder.Term.Token())
				require.NoError(t, store.Commit(t.Context(), "operator", append(damage(key),
					table.Write{Kind: table.Update, Name: key, Set: []table.Cell{{Column: table.ColWriter, Value: "{"}}})))
				time.Sleep(time.Hour)
				stranger := candidate("stranger", store, "m")
				stranger.LeaseRecord.Lease = time.Second
				for range 3 {
					step := stranger.Try(t.Context(), All, lease/3)
					assert.Nil(t, step.Term)
					assert.ErrorContains(t, step.Err, "stays taken")
					time.Sleep(time.Hour)
				}
			})
		})
	}
}

func TestAnAbortedClaimIsAnotherThatWasFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		aborting := &memstore.Link{Store: &memstore.Store{}}
		aborting.Refuse(func(step string) error {
			if step == "claim" {
				return table.ErrAborted
			}
			return nil
		})
		c := candidate("c", aborting, "m")
		step := c.Try(t.Context(), All, lease/3)
		assert.Nil(t, step.Term)
		assert.NoError(t, step.Err, "no reason to complain")
		assert.LessOrEqual(t, step.Pause, lease/10, "but to look again")
		assert.Equal(t, map[string]int{"observe": 1, "claim": 1}, aborting.Counts(), "it is not run again")
	})
}

// After a claim that another candidate won, a bare claim with the candidate's id is not its own, even if a claim before
// that was. The ids of two candidates should differ, but may be the same by mistake.
func TestACandidateThatLostItsClaimDisownsNothing(t *testing.T) {
	for _, before := range []string{"", "claim"} { // the step whose reply is lost
		synctest.Test(t, func(t *testing.T) {
			link := &memstore.Link{Store: &memstore.Store{}}
			c, twin := candidate("c", link, "m"), candidate("c", link.Store, "m")
			if before != "" {
				link.Lose(nil, memstore.Once(before))
				require.Error(t, c.Try(t.Context(), All, lease/3).Err)
				require.True(t, c.Try(t.Context(), All, lease/3).CoolingDown)
				time.Sleep(2 * lease)
			}
			link.Refuse(func(step string) error {
				if step == "claim" {
					return table.ErrAborted
				}
				return nil
			})
			require.True(t, c.Try(t.Context(), All, lease/3).Lost)
			seen, err := twin.Look(t.Context())
			require.NoError(t, err)
			token, err := twin.Table.Claim(t.Context(), "c", seen[0].Observation)
			require.NoError(t, err)
			require.False(t, c.Try(t.Context(), All, lease/3).CoolingDown)
			require.NoError(t, twin.Table.Confirm(t.Context(), token, twin.LeaseRecord, "m"))
		})
	}
}

func TestALongLeaseDoesNotMakeACandidateSlow(t *testing.T) {
	c := candidate("c", &memstore.Store{}, "one")
	c.LeaseRecord.Lease = 24 * time.Hour
	for range 1000 {
		assert.LessOrEqual(t, c.spread(nil), time.Second)
	}
}

func TestARestAfterAnErrorThatIsKnownAtOnceIsShort(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := candidate("c", refusing{&memstore.Store{}, "confirm"}, "one")
		c.LeaseRecord.Lease = 24 * time.Hour
		require.Error(t, c.Try(t.Context(), All, time.Hour).Err)
		seen, err := c.Look(t.Context())
		require.NoError(t, err)
		assert.Positive(t, seen[0].FreeIn)
		assert.LessOrEqual(t, seen[0].FreeIn, time.Minute, "a day without a candidate costs more than another try")
	})
}
