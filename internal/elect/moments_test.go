package elect

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spindle-lock/spindle/internal/table"
	"github.com/spindle-lock/spindle/internal/testkit/memstore"
)

// lockLife is what happens to a lock.
type lockLife struct {
	*testing.T
	table.Table
	token table.Token
	held  bool // under the token
}

var ticket = table.Ticket{Queue: "lock", Time: 5, Nonce: "other"}

func (l *lockLife) claim() {
	seen, err := l.LookAtLeases(context.Background(), time.Now(), "lock")
	require.NoError(l, err)
	l.token, err = l.Claim(context.Background(), "holder", seen...)
	require.NoError(l, err)
}

func (l *lockLife) confirm() {
	l.held = true
	require.NoError(l, l.Confirm(context.Background(), l.token, table.LeaseRecord{Lease: lease}, "lock"))
}

func (l *lockLife) claimFree() {
	seen, err := l.LookAtLeases(context.Background(), time.Now(), "lock")
	require.NoError(l, err)
	c, ok := table.NewFreeClaim("holder", table.LeaseRecord{Lease: lease, Nonce: "n"}, seen...)
	require.True(l, ok)
	l.token, l.held = c.Token, true
	require.NoError(l, l.And(ticket.Delete()).ClaimFree(context.Background(), c))
}

func (l *lockLife) beat() {
	require.NoError(l, l.Heartbeat(context.Background(), l.token, "lock"))
}

func (l *lockLife) announce() {
	require.NoError(l, l.Announce(context.Background(), l.token, "lock"))
}

func (l *lockLife) release() {
	l.held = false
	require.NoError(l, l.Release(context.Background(), l.token, "lock"))
}

func (l *lockLife) releaseFree() {
	l.held = false
	require.NoError(l, l.And(ticket.Put()).ReleaseFree(context.Background(), l.token, lease, "lock"))
}

func (l *lockLife) expire() {
	l.held = false
	time.Sleep(lease)
}

func (l *lockLife) take() {
	l.held = false
	require.NoError(l, l.Break(context.Background(), l.token, "lock"))
}

// course has holders of package lock, which queue, and of electors, as older versions have, and each way in which a term ends.
var course = []func(*lockLife){(*lockLife).claim, (*lockLife).confirm, (*lockLife).beat, (*lockLife).announce, (*lockLife).releaseFree, (*lockLife).claimFree, (*lockLife).beat, (*lockLife).release,
	(*lockLife).claim, (*lockLife).confirm, (*lockLife).releaseFree, (*lockLife).claimFree, (*lockLife).expire, (*lockLife).claim, (*lockLife).confirm, (*lockLife).take, (*lockLife).claim, (*lockLife).confirm, (*lockLife).beat}

// A message makes a candidate poll at any moment. Whatever polls it has made before, and whatever happens between the last of them
// and the commit that it leads to, the candidate does not get a lock that is held, takes nothing from its holder, and gets a newer
// token than all before it.
func TestAPollAtAnyMomentMakesNoSecondHolder(t *testing.T) {
	terms := 0
	for _, free := range []bool{true, false} {
		for first := range len(course) + 1 {
			for last := first; last <= len(course); last++ {
				for applied := last; applied <= len(course); applied++ {
					synctest.Test(t, func(t *testing.T) {
						store := &memstore.Store{}
						l := &lockLife{T: t, Table: table.Table{Store: store}}
						at := 0
						until := func(moment int) {
							for ; at < moment; at++ {
								time.Sleep(time.Millisecond)
								course[at](l)
							}
						}
						c := candidate("c", table.Via(func(ctx context.Context, step string, call func(context.Context, table.Store) error) error {
							if step != "observe" {
								until(applied)
							}
							return call(ctx, store)
						}), "lock")
						c.FreeRows = free
						until(first)
						_, err := c.Look(t.Context())
						require.NoError(t, err)
						until(last)
						step := c.Try(t.Context(), All, lease/3)
						what := fmt.Sprintf("polled at %d and %d, applied at %d, with free rows %v", first, last, applied, free)
						if step.Term != nil {
							terms++
							assert.False(t, l.held, what)
							assert.Greater(t, step.Term.Token(), l.token, what)
							step.Term.End(nil)
						} else if l.held {
							assert.NoError(t, l.Heartbeat(t.Context(), l.token, "lock"), what)
						}
					})
				}
			}
		}
	}
	assert.Greater(t, terms, 100)
}
