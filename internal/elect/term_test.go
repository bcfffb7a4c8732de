package elect

import (
	"context"
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

func TestATermEndsWhileAHeartbeatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		link := &memstore.Link{Store: &memstore.Store{}}
		term := candidate("a", link, "m").Try(t.Context(), All, lease/3).Term
		require.NotNil(t, term)
		start := time.Now()
		link.Cut()
		lost := make(chan TermEvent, 10)
		k := &Keeper{Term: term, Interval: lease / 3, Notify: func(e TermEvent) { lost <- e }}
		k.Start()
		assert.ErrorIs(t, await(lost, Lost).Err, ErrExpired)
		assert.ErrorIs(t, context.Cause(term.Context()), ErrExpired)
		assert.Equal(t, lease-lease/100, time.Since(start))
		assert.False(t, term.Held())
		assert.ErrorIs(t, k.Stop(), ErrExpired)
	})
}

func TestAReleaseThatIsNotAnsweredIsTriedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &memstore.Store{}
		link := &memstore.Link{Store: store}
		term := candidate("a", link, "m").Try(t.Context(), All, lease/3).Term
		require.NotNil(t, term)
		link.Lose(nil, memstore.Once("release"))
		assert.NoError(t, term.Release(t.Context(), nil), "the first attempt did it")

		term = candidate("a", link, "m").Try(t.Context(), All, lease/3).Term
		require.NotNil(t, term)
		require.NoError(t, store.Commit(t.Context(), "operator", []table.Write{{Kind: table.Delete, Name: table.LeaseKey("m", term.Token())}}))
		assert.ErrorIs(t, term.Release(t.Context(), nil), table.ErrSuperseded, "it was lost before the first attempt")
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
