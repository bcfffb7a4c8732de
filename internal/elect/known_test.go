package elect

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spindle-lock/spindle/internal/table"
	"github.com/spindle-lock/spindle/internal/testkit/memstore"
)

// Work counts as recorded only if the record is of this term and this key. Otherwise work that failed would be taken for done, or
// work that is done would run again. A caller that gives up does not wait for the answer.
func TestOnlyTheRecordOfTheTermAndItsKeyCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		link := &memstore.Link{Store: &memstore.Store{}}
		c := candidate("c", link, "m")
		terms := make([]*Term, 2)
		for i, key := range []string{"one", "two"} {
			terms[i] = c.Try(t.Context(), All, lease/3).Term
			require.NotNil(t, terms[i])
			assert.False(t, terms[i].Recorded(t.Context(), key), "not yet")
			require.NoError(t, terms[i].Finish(t.Context(), nil, table.Due{Key: key}, "c"))
			assert.True(t, terms[i].Recorded(t.Context(), key))
			assert.False(t, terms[i].Recorded(t.Context(), key+"!"), "another key")
			assert.False(t, terms[i].Recorded(t.Context(), ""))
		}
		assert.False(t, terms[0].Recorded(t.Context(), "one"), "only the last record is known")
		assert.False(t, terms[0].Recorded(t.Context(), "two"), "another term's")

		began := time.Now()
		link.Cut()
		assert.False(t, terms[1].Recorded(t.Context(), "two"), "nobody knows")
		assert.Equal(t, Attempt(lease), time.Since(began))
		gone, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		began = time.Now()
		assert.False(t, terms[1].Recorded(gone, "two"))
		assert.Equal(t, time.Second, time.Since(began))
	})
}

// When a lock was last held is remembered whatever becomes of a claim, because the time without a holder is measured from then.
func TestAClaimThatIsNotConfirmedDoesNotForgetWhenTheLockWasHeld(t *testing.T) {
	for _, released := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			store := &memstore.Store{}
			link := &memstore.Link{Store: store}
			c := candidate("c", link, "m")
			term := candidate("holder", store, "m").Try(t.Context(), All, lease/3).Term
			require.NotNil(t, term)
			held := store.Rows()["m"].Heartbeat
			seen, err := c.Look(t.Context())
			require.NoError(t, err)
			assert.Equal(t, held, seen[0].Last.UTC())
			if time.Sleep(time.Second); released {
				require.NoError(t, term.Release(t.Context(), nil))
				held = store.Rows()["m"].Token.UTC()
			} else {
				term.End(nil)
				time.Sleep(lease)
			}
			link.Refuse(refusingStep("confirm", errRefused))
			require.ErrorIs(t, c.Try(t.Context(), All, lease/3).Err, errRefused)
			link.Refuse(nil)
			seen, err = c.Look(t.Context())
			require.NoError(t, err)
			assert.WithinDuration(t, held, seen[0].Last, time.Millisecond)
		})
	}
}

// A candidate of higher priority asks each holder once, when it has polled for three leases without a failure, and asks again only
// if its request did not arrive. A holder that has given up its term meanwhile is not asked again: it no longer matters.
func TestAPreferredCandidateAsksEachHolderOnce(t *testing.T) {
	for name, c := range map[string]struct {
		polls  string // one poll per lease; x: it fails
		holder table.LeaseRecord
		answer error // to the first request
		asks   int
	}{
		"after three leases":             {"....", table.LeaseRecord{Rank: 1}, nil, 1},
		"and no more":                    {"..........", table.LeaseRecord{Rank: 1}, nil, 1},
		"not before":                     {"...", table.LeaseRecord{Rank: 1}, nil, 0},
		"a failure begins the time anew": {"..x...", table.LeaseRecord{Rank: 1}, nil, 0},
		"until it is over":               {"..x....", table.LeaseRecord{Rank: 1}, nil, 1},
		"again if the request was lost":  {".....", table.LeaseRecord{Rank: 1}, errRefused, 2},
		"not a term that is over":        {".....", table.LeaseRecord{Rank: 1}, table.ErrSuperseded, 1},
		"not one of the same priority":   {".....", table.LeaseRecord{}, nil, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := &memstore.Store{}
				link := &memstore.Link{Store: store}
				holder := candidate("holder", store, "m")
				c.holder.Lease, c.holder.AcceptsHandover = lease, true
				holder.LeaseRecord = c.holder
				term := holder.Try(t.Context(), All, lease/3).Term
				require.NotNil(t, term)
				asks, answer := 0, c.answer
				preferred := candidate("c", link, "m")
				for i, poll := range c.polls {
					if i > 0 {
						time.Sleep(lease / 2)
						require.NoError(t, beat(keeper(term)))
						time.Sleep(lease / 2)
						require.NoError(t, beat(keeper(term)))
					}
					link.Refuse(func(step string) error {
						switch {
						case step == "ask":
							err := answer
							asks, answer = asks+1, nil
							return err
						case poll == 'x' && step == "observe":
							return errRefused
						}
						return nil
					})
					require.Nil(t, preferred.Try(t.Context(), All, lease/3).Term)
				}
				assert.Equal(t, c.asks, asks)
				term.End(nil)
			})
		})
	}
}
