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
		assert.False(t, terms[1].Recorded(t.Context(), "two"), "the request is lost")
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
			time.Sleep(time.Second)
			if released {
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
