package elect

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spindle-lock/spindle/internal/table"
)

// ballot is one claim whose requests are slow, lost, refused or not answered as a seed decides, and what it has sent.
type ballot struct {
	*testing.T
	*rand.Rand
	faults  int // of 10 requests
	lease   time.Duration
	stop    time.Time            // when the caller's ctx ends
	first   map[string]time.Time // when each step was first sent
	applied time.Time            // when the last request of the claim took effect that was also acknowledged
	sent    time.Time            // when that request was sent
	won     string               // its step
	ended   map[string]int       // how often each step was sent after the caller's ctx had ended
}

var errLost = errors.New("lost")

func (b *ballot) pass(ctx context.Context, step string, store table.Store, call func(context.Context, table.Store) error) error {
	sent := time.Now()
	if _, again := b.first[step]; !again {
		b.first[step] = sent
	}
	if !sent.Before(b.stop) {
		b.ended[step]++
	}
	until, limited := ctx.Deadline()
	assert.True(b, limited && !until.After(sent.Add(Attempt(b.lease))), step)
	if confirm, began := b.first["confirm"]; began && (step == "confirm" || step == "heartbeat") {
		assert.False(b, until.After(confirm.Add(b.lease)), "no other candidate waits for a claim for longer than a lease")
	}
	wait := func(most time.Duration) bool { // reports whether the caller still waits
		select {
		case <-time.After(time.Duration(b.Int64N(int64(most)))):
			return true
		case <-ctx.Done():
			return false
		}
	}
	defer func() { assert.NotErrorIs(b, ctx.Err(), context.Canceled, step) }()
	fault := 0
	if b.IntN(10) < b.faults {
		fault = []int{1, 2, 3, 4, 4, 4, 5, 6}[b.IntN(8)]
	}
	if step == "confirm" && b.IntN(4) == 0 {
		fault = 4 // so that a heartbeat often decides
	}
	if !wait(b.lease / 20) {
		return ctx.Err()
	}
	switch fault {
	case 1: // the request is lost
		<-ctx.Done()
		return ctx.Err()
	case 2:
		return errLost
	case 3:
		if b.IntN(4) == 0 {
			return errRefused
		}
	}
	applied := time.Now()
	if fault == 6 { // the client sends it again
		_ = call(ctx, store)
	}
	err := call(ctx, store)
	if err == nil && fault == 4 { // the reply is lost
		<-ctx.Done()
		return ctx.Err()
	}
	if fault == 5 {
		wait(b.lease)
	} else {
		wait(b.lease / 20)
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if err == nil {
		b.applied, b.sent, b.won = applied, sent, step
	}
	return err
}

// Whatever happens to the requests of a claim, a new term's deadline counts from before the request that was applied last and is known
// to have been, and a claim that is not confirmed is given up in time. Otherwise a slow answer makes two holders, or a lock without one.
// The end of the caller's ctx cuts off no request and no term, because the lock would then stay held by nobody.
func TestANewTermsDeadlineCountsFromBeforeTheRequestThatWonIt(t *testing.T) {
	won, failed := map[string]int{}, 0
	for seed := range 600 {
		synctest.Test(t, func(t *testing.T) {
			b := &ballot{T: t, Rand: rand.New(rand.NewPCG(uint64(seed), 2)), first: map[string]time.Time{}, ended: map[string]int{}}
			what := fmt.Sprintf("seed %d", seed)
			store := given(t)
			b.lease, b.faults = []time.Duration{lease, lease / 25}[b.IntN(2)], []int{0, 4, 8}[b.IntN(3)]
			free := b.IntN(2) == 0
			c := candidate("me", nil, "lock")
			c.LeaseRecord.Lease, c.FreeRows = b.lease, free
			c.Table.Store = store
			seen, err := c.Look(t.Context())
			require.NoError(t, err)
			c.Table.Store = table.Via(func(ctx context.Context, step string, call func(context.Context, table.Store) error) error {
				return b.pass(ctx, step, store, call)
			})
			b.stop = time.Now().Add(time.Duration(b.Int64N(int64(4 * b.lease))))
			ctx, cancel := context.WithCancel(t.Context())
			defer time.AfterFunc(time.Until(b.stop), cancel).Stop()
			term, err := c.claim(ctx, c.Table, seen...)
			cancel()

			if confirm, sent := b.first["confirm"]; sent && confirm.Before(b.stop) {
				assert.Zero(t, b.ended["confirm"], "%s: a confirmation was repeated for a caller that has given up", what)
			}
			assert.LessOrEqual(t, b.ended["confirm"], 1, what)
			if claim := b.first["claim"]; free && claim.Before(b.stop) {
				assert.Zero(t, b.ended["claim"], what)
			}
			if withdrawn, ok := b.first["withdraw"]; ok && term == nil {
				rest := b.lease
				if table.Refused(err) {
					rest = min(rest, time.Minute)
				}
				assert.Equal(t, withdrawn.Add(rest), time.Now().Add(c.coolDown.Left(c.Clock)), "%s: the cool-down", what)
			}
			if term == nil {
				require.Error(t, err, what)
				failed++
				if row := store.Rows()["lock"]; First(err) {
					assert.NotContains(t, store.Rows(), table.LeaseKey("lock", table.TokenAt(row.Token)), "%s: it is said to be another's, but nobody else has it", what)
				}
				time.Sleep(b.lease + time.Millisecond) // this much is left of a claim at most
				other := candidate("other", store, "lock")
				other.LeaseRecord.Lease = b.lease
				next := other.Try(t.Context(), All, lease/3).Term
				require.NotNil(t, next, what)
				next.End(nil)
				return
			}
			defer term.End(nil)
			assert.NoError(t, term.Context().Err(), what)
			won[fmt.Sprint(b.won, free)]++
			from := b.sent
			switch b.won {
			case "confirm":
				from = b.applied // its commit is sent after its reads
			case "claim":
				from = b.first["claim"] // any of the requests may be the one that was applied
			}
			deadline := time.Now().Add(term.lasts())
			assert.Equal(t, from.Add(Limit(b.lease)), deadline, "%s: won by %s", what, b.won)
			row := store.Rows()["lock"]
			assert.False(t, deadline.After(row.Heartbeat.Add(Limit(b.lease)+time.Microsecond)), "%s: %v", what, deadline.Sub(row.Heartbeat.Add(Limit(b.lease)))) // Spanner's clock shows microseconds
			assert.Equal(t, term.Token(), table.TokenAt(row.Token), what)
		})
	}
	t.Log(won, failed)
	for _, how := range []string{"confirmfalse", "heartbeatfalse", "claimtrue", "heartbeattrue"} {
		assert.Greater(t, won[how], 10, how)
	}
	assert.Greater(t, failed, 50)
}
