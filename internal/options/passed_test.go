package options

import (
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/metric/noop"
	tracing "go.opentelemetry.io/otel/trace/noop"

	"github.com/spindle-lock/spindle/internal/batch"
	"github.com/spindle-lock/spindle/internal/elect"
	"github.com/spindle-lock/spindle/internal/notify"
	"github.com/spindle-lock/spindle/internal/table"
	"github.com/spindle-lock/spindle/internal/telemetry"
	"github.com/spindle-lock/spindle/internal/testkit/memstore"
)

// Each setting reaches the part that it is for. A candidate that claims on nobody's behalf, for example, takes all places of a gate,
// and a keeper that knows of no Mute extends a term that was given up.
func TestEachSettingReachesThePartThatItIsFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const s = time.Second
		mute := make(chan struct{})
		store, requests := &memstore.Store{}, &batch.Requests{}
		var happened []string
		meters, tracers, log := noop.NewMeterProvider(), tracing.NewTracerProvider(), slog.New(slog.DiscardHandler)
		c := New([]Option{func(c *Config) {
			c.SetLease(40 * s)
			c.SetHeartbeat(7 * s)
			c.SetLockDelay(5 * s)
			c.SetID("id")
			c.SetValue("value")
			c.SetPriority(6)
			c.Reclaim, c.Handover, c.Mute, c.Owner, c.Store, c.Requests = true, true, mute, "owner", store, requests
			c.Meters, c.Tracers, c.Log = meters, tracers, log
			c.HoldOff = func(name string) time.Duration { return time.Duration(len(name)) }
			c.Happened = func(elect.TermEvent) { happened = append(happened, "elsewhere") }
		}})
		c.Check(nil, "locks", "one", "other")
		require.NoError(t, c.Err())
		on, spanner := c.Table(nil, "locks")
		assert.Equal(t, table.Spanner{Table: "locks", Memory: store}, spanner)
		assert.Equal(t, table.Store(store), on.Store)
		assert.Nil(t, on.Notify)

		x := c.Candidate(on, "one", "other")
		assert.Equal(t, time.Duration(5), x.HoldOff("other"))
		x.HoldOff = nil
		assert.Equal(t, elect.Candidate{
			Table: on, Clock: elect.SystemClock{}, Names: []string{"one", "other"}, ID: "id",
			LeaseRecord: table.LeaseRecord{Lease: 40 * s, ID: "id", Value: "value", AcceptsHandover: true, Rank: 3},
			LockDelay:   5 * s, Reclaim: true, Gate: elect.Entrance{Gate: &requests.Claims, Owner: "owner"},
		}, x)
		c.Handover = false
		assert.False(t, c.Candidate(on, "one").LeaseRecord.AcceptsHandover)

		term := x.Try(t.Context(), elect.All, s).Term
		require.NotNil(t, term)
		defer term.End(nil)
		k := c.Keeper(term, func(elect.TermEvent) { happened = append(happened, "own") })
		assert.Equal(t, term, k.Term)
		assert.Equal(t, 7*s, k.Interval)
		assert.False(t, k.InPhase)
		assert.Equal(t, (<-chan struct{})(mute), k.Mute)
		k.Notify(elect.TermEvent{})
		assert.Equal(t, []string{"own", "elsewhere"}, happened)
		c.Shared, c.Happened = true, nil
		k = c.Keeper(term, func(elect.TermEvent) { happened = nil })
		assert.True(t, k.InPhase)
		k.Notify(elect.TermEvent{})
		assert.Empty(t, happened)
		shared, _ := c.Table(nil, "locks")
		assert.NotEqual(t, table.Store(store), shared.Store, "its requests are sent together with others")

		assert.Equal(t, telemetry.Scope{Meters: meters, Tracers: tracers, Table: "locks", Locks: []string{"one", "other"}}, c.Telemetry("locks", "one", "other"))
		run := c.Run(log, func(step string, err error) error { return errors.New(step) })
		assert.Equal(t, []any{40 * s, 40 * s, elect.SystemClock{}, log}, []any{run.Lease, run.Grace, run.Clock, run.Log})
		assert.EqualError(t, run.Wrap("step", nil), "step")
		c.Handover = true
		assert.Equal(t, 80*s, c.Run(log, nil).Grace, "the announcement takes up to a lease")

		for range 100 { // more than one owner may have in flight
			ctx, cancel := context.WithTimeout(t.Context(), s/100)
			_, _ = c.Enter(ctx)
			cancel()
		}
		c.Owner = "another"
		leave, err := c.Enter(t.Context())
		require.NoError(t, err)
		leave()
		c.Owner = ""
	})
}

// A holder answers its waiters only while its term is secure, and for each of its locks. In jeopardy, it may lose the locks at any time,
// and waiters that relied on its answers would poll too late.
func TestAHolderInJeopardyDoesNotAnswerItsWaiters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		link := &memstore.Link{Store: &memstore.Store{}}
		c := New([]Option{func(c *Config) { c.Store = link }})
		on, _ := c.Table(nil, "locks")
		x := c.Candidate(on, "one", "other")
		term := x.Try(t.Context(), elect.All, time.Second).Term
		require.NotNil(t, term)
		happened := make(chan elect.TermEventKind, 100)
		k := c.Keeper(term, func(e elect.TermEvent) { happened <- e.What })
		k.Start()
		locks := []notify.Term{{Name: "one"}, {Name: "other"}}
		c.Book(term, locks...)
		answers := func() (all []bool) {
			for _, l := range locks {
				assert.Equal(t, []any{term.Token(), c.Lease}, []any{l.Token, l.Lease}, l.Name)
				all = append(all, l.Alive())
			}
			return all
		}
		time.Sleep(time.Minute)
		assert.Equal(t, []bool{true, true}, answers())
		link.Refuse(func(string) error { return errors.New("away") })
		for <-happened != elect.InJeopardy {
		}
		require.True(t, term.Held())
		assert.Equal(t, []bool{false, false}, answers())
		link.Refuse(nil)
		for <-happened != elect.Safe {
		}
		assert.Equal(t, []bool{true, true}, answers())
		require.NoError(t, k.Stop())
		term.End(nil)
		assert.Equal(t, []bool{false, false}, answers())
	})
}

// All processes that use a table notify each other, however they spell its name. Those that use another table, or the same table of
// another database, do not.
func TestNotificationsAreForOneTableHoweverItsNameIsSpelled(t *testing.T) {
	n := notify.New(netip.AddrPort{}, elect.SystemClock{}, func([]byte, netip.AddrPort) {})
	defer n.Close()
	place := func(database, name string) notify.Place {
		c := New([]Option{func(c *Config) { c.Store, c.Database, c.Notifier = &memstore.Store{}, database, n }})
		on, _ := c.Table(nil, name)
		assert.Equal(t, n.Contact(c.site, "a row"), on.Notify("a row"), "where the others send to")
		return c.site
	}
	for _, same := range []string{"locks", "Locks", "LOCKS", "public.locks", "Public.Locks"} {
		assert.Equal(t, place("d", "locks"), place("d", same), same)
	}
	for _, other := range [][2]string{{"d", "lock"}, {"d", "mine.locks"}, {"D", "locks"}, {"", "locks"}} {
		assert.NotEqual(t, place("d", "locks"), place(other[0], other[1]), other)
	}
}
