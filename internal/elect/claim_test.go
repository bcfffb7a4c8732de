package elect

import (
	"context"
	"errors"
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

const lease = 10 * time.Second

// refusing is a table that refuses one of the steps.
type refusing struct {
	table.Store
	step string
}

func (r refusing) Transact(ctx context.Context, step string, fn func(context.Context, table.Reader) ([]table.Write, error)) (time.Time, error) {
	if step == r.step {
		return time.Time{}, status.Error(codes.PermissionDenied, "refused")
	}
	return r.Store.Transact(ctx, step, fn)
}

func candidate(id string, store table.Store, names ...string) *Candidate {
	return &Candidate{Table: table.Table{Store: store}, Clock: SystemClock{}, Names: names, ID: id, LeaseRecord: table.LeaseRecord{Lease: lease}}
}

func TestAClaimOfOneLockForgetsNothingOfAnother(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &memstore.Store{}
		step := candidate("a", store, "one").Try(t.Context(), All, lease/3)
		require.NotNil(t, step.Term)
		defer step.Term.End(nil)

		c := candidate("c", refusing{store, "confirm"}, "one", "other")
		seen, err := c.Look(t.Context())
		require.NoError(t, err)
		require.Positive(t, seen[0].FreeIn)
		_, err = c.Claim(t.Context(), seen[1])
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
