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

// A candidate of higher priority asks each holder once, when it has polled for three leases without a failure, and asks again only
// if its request did not arrive. A holder that has given up its term meanwhile is not asked again: it no longer matters.
func TestAPreferredCandidateAsksEachHolderOnce(t *testing.T) {
	for name, c := range map[string]struct {
		polls  string // one poll per lease; x: it fails
		rank   int    // of the holder; that of the candidate is 0
		answer error  // to the first request
		asks   int
	}{
		"after three leases":             {"....", 1, nil, 1},
		"and no more":                    {"..........", 1, nil, 1},
		"not before":                     {"...", 1, nil, 0},
		"a failure begins the time anew": {"..x...", 1, nil, 0},
		"until it is over":               {"..x....", 1, nil, 1},
		"again if the request was lost":  {".....", 1, errRefused, 2},
		"not a term that is over":        {".....", 1, table.ErrSuperseded, 1},
		"not one of the same priority":   {".....", 0, nil, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := &memstore.Store{}
				link := &memstore.Link{Store: store}
				holder := candidate("holder", store, "m")
				holder.LeaseRecord.Rank, holder.LeaseRecord.AcceptsHandover = c.rank, true
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
