package lock

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spindle-lock/spindle/internal/options"
	"github.com/spindle-lock/spindle/internal/table"
	"github.com/spindle-lock/spindle/internal/testkit/memstore"
	"github.com/spindle-lock/spindle/spindletest"
)

// A waiter is killed in the queue; the lock is free. TryLock of others should succeed soon (as without a Notifier).
func TestATryGetsAFreeLockWithinAGraceOfTheDeadAhead(t *testing.T) {
	for _, with := range []bool{false, true} {
		takingTurns(t, func(g *fairground) {
			n := &notified{fairground: g, net: spindletest.NewNetwork()}
			opt := func(p string) []Option {
				o, _ := n.options(p)
				if !with {
					o = append(o, options.Option(func(c *options.Config) { c.Notifier = nil }))
				}
				return o
			}
			holder := New(nil, "locktable", "m", opt("holder")...)
			require.NoError(t, holder.Lock(g.ctx))
			// a dead waiter: its ticket stays
			dead := table.Ticket{Queue: "m", Time: table.TokenAt(time.Now()), Nonce: "dead", Beat: time.Now(), Grace: 400 * time.Millisecond, Lasts: 30 * time.Second, ID: "dead", RoundTrip: 5 * time.Millisecond}
			require.NoError(t, table.Table{Store: n.spanner}.Queue(g.ctx, dead.Put()))
			require.NoError(t, holder.Unlock(g.ctx))
			other := New(nil, "locktable", "m", opt("other")...)
			failed := 0
			began := time.Now()
			for time.Since(began) < 20*time.Second {
				ok, err := other.TryLock(g.ctx)
				require.NoError(t, err)
				if ok {
					break
				}
				failed++
				time.Sleep(time.Second)
			}
			assert.LessOrEqual(t, failed, 3)
			_ = other.Unlock(g.ctx)
			time.Sleep(time.Minute)
			require.NoError(t, other.Lock(g.ctx))
			_ = other.Unlock(g.ctx)
		})
	}
}

// Unlock ends with its ctx, whatever a heartbeat does: this one is like a request whose credentials are being fetched, and does not
// look at its ctx.
func TestUnlockEndsWithItsCtxWhateverAHeartbeatDoes(t *testing.T) {
	takingTurns(t, func(g *fairground) {
		m, link := g.linked("process", "m", spindleLease(4*time.Second))
		link.Sicken("heartbeat", memstore.Slow, 10*time.Minute)
		require.NoError(t, m.Lock(g.ctx))
		time.Sleep(2 * time.Second)
		ctx, cancel := context.WithTimeout(g.ctx, time.Second)
		defer cancel()
		began := time.Now()
		err := m.Unlock(ctx)
		assert.ErrorIs(t, err, context.DeadlineExceeded)
		assert.Less(t, time.Since(began), 10*time.Second)
	})
}

// Each TryLock fails because Spanner does not answer. None says instead that the lock is held, by one that has just failed.
func TestAFailedTryIsNotInTheWayOfTheNext(t *testing.T) {
	cut := &memstore.Link{Store: &memstore.Store{}}
	cut.Refuse(func(string) error { return errors.New("unavailable") })
	m := New(nil, "locktable", "m", silent, options.Option(func(c *options.Config) { c.Store, c.Process = cut, t.Name() }))
	spurious := 0
	for began := time.Now(); time.Since(began) < time.Second; {
		if _, err := m.TryLock(context.Background()); err == nil {
			spurious++
		}
	}
	assert.Zero(t, spurious)
}
