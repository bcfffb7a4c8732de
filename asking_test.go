package spindle

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

	"github.com/spindle-lock/spindle/internal/elect"
	"github.com/spindle-lock/spindle/internal/options"
	"github.com/spindle-lock/spindle/internal/table"
	"github.com/spindle-lock/spindle/internal/testkit/memstore"
)

// An operator whose time is up learns how far the handover has come, to know whether to wait, to look at the leader or to look for a
// candidate. The gap counts from the last time at which the old leader is known to have held the lock, whatever is seen of the lock
// until the next one leads.
func TestAHandoverIsSaidToBeAsFarAsItIs(t *testing.T) {
	const (
		asked    = "was asked"
		leaving  = "has announced that it is leaving"
		stopped  = "heartbeats have stopped"
		released = "has been released"
	)
	at := func(s int) time.Time { return time.Unix(1000+int64(s), 0).UTC() }
	record := &table.LeaseRecord{ID: "a", Lease: 10 * time.Second, Value: "v"}
	row := func(token, beat, now int, writer string) table.Observation {
		return table.Observation{Name: "m", At: at(now), Exists: true, Token: table.TokenAt(at(token)), Heartbeat: at(beat), Writer: writer, LeaseRecord: record}
	}
	without := func(o table.Observation, what ...string) table.Observation {
		for _, w := range what {
			switch w {
			case "heartbeat":
				o.Heartbeat, o.LeaseRecord = time.Time{}, nil
			case "writer":
				o.Writer = ""
			case "record":
				o.LeaseRecord = nil
			}
		}
		return o
	}
	holds, leaves, silent := row(0, 3, 4, "a"), row(0, 3, 4, ""), row(0, 3, 14, "a")
	free := without(row(7, 0, 8, ""), "heartbeat")
	withdrawn := without(row(7, 0, 8, "b"), "heartbeat")
	bare := without(row(8, 8, 9, "b"), "record")
	next, expired := row(8, 9, 10, "b"), row(8, 9, 20, "b")
	gone := table.Observation{Name: "m", At: at(8)}
	for name, c := range map[string]struct {
		seen []table.Observation
		so   string
		held time.Time
	}{
		"it leads":                              {[]table.Observation{holds}, asked, at(4)},
		"it is leaving":                         {[]table.Observation{holds, leaves}, leaving, at(4)},
		"it was leaving when first seen":        {[]table.Observation{leaves}, leaving, at(4)},
		"a successor is named":                  {[]table.Observation{row(0, 3, 4, successorOf(t))}, leaving, at(4)},
		"its last moment":                       {[]table.Observation{row(0, 3, 12, "a")}, asked, at(12)},
		"it has crashed":                        {[]table.Observation{holds, silent}, stopped, at(4)},
		"it has crashed while it was leaving":   {[]table.Observation{leaves, without(silent, "writer")}, stopped, at(4)},
		"it has not crashed after all":          {[]table.Observation{silent, row(0, 14, 15, "")}, leaving, at(15)},
		"released":                              {[]table.Observation{leaves, free}, released, at(7)},
		"released, and claimed":                 {[]table.Observation{leaves, free, bare}, released, at(7)},
		"claimed, the release was not seen":     {[]table.Observation{leaves, bare}, leaving, at(4)},
		"the claim was withdrawn":               {[]table.Observation{leaves, withdrawn}, leaving, at(4)},
		"the row is gone":                       {[]table.Observation{leaves, gone}, leaving, at(4)},
		"the next term has expired":             {[]table.Observation{leaves, expired}, leaving, at(4)},
		"released once more after the next one": {[]table.Observation{leaves, free, without(row(11, 0, 12, ""), "heartbeat")}, released, at(7)},
		"released, two claims are withdrawn":    {[]table.Observation{leaves, free, without(row(11, 0, 12, ""), "heartbeat"), without(row(12, 12, 13, "b"), "record"), without(row(13, 0, 14, ""), "heartbeat")}, released, at(7)},
		"a later heartbeat, then released":      {[]table.Observation{holds, row(0, 5, 6, "a"), free, free}, released, at(7)},
	} {
		f := follower{Handover: Handover{From: leaderOf(holds)}, held: at(0), so: asked}
		for _, o := range c.seen {
			f.see(o)
		}
		assert.Contains(t, f.so, c.so, name)
		assert.Equal(t, c.held, f.held, name)
		assert.Zero(t, f.To, name)
		f.see(next)
		assert.Equal(t, Leader{ID: "b", Value: "v", Token: Token(next.Token), Heartbeat: at(9), Lease: 10 * time.Second}, f.To, name)
		assert.Equal(t, leaderOf(holds), f.From, name)
		assert.Equal(t, max(at(9).Sub(c.held), 0), f.Gap, name)
	}
}

// successorOf returns what a follower writes into the lock row to become the successor.
func successorOf(t *testing.T) string {
	store := &memstore.Store{}
	l := New(nil, "locktable", "m", options.Option(func(c *options.Config) { c.Store = store }))
	c := l.config.Candidate(l.table, "m")
	term := c.Try(t.Context(), elect.All, 0).Term
	require.NotNil(t, term)
	defer term.End(nil)
	require.NoError(t, l.table.Announce(t.Context(), term.Token(), "m"))
	require.NoError(t, l.table.Succeed(t.Context(), "b", "m", term.Token()))
	return store.Rows()["m"].Writer
}

// A step of a request is repeated for as long as that may help: through an outage until the caller gives up, and through refusals
// for one lease, but at least ten seconds. A mistake in the setup is reported at once.
func TestAnOperatorsRequestIsRepeatedAsLongAsThatMayHelp(t *testing.T) {
	away, session := status.Error(codes.Unavailable, "away"), status.Error(codes.NotFound, "Session not found")
	forbidden := status.Error(codes.PermissionDenied, "forbidden")
	require.Equal(t, table.NoSession, table.FaultOf(session))
	for _, lease := range []time.Duration{time.Second, 20 * time.Second, time.Minute} {
		patience := max(lease, 10*time.Second)
		for name, c := range map[string]struct {
			answers []error // the last one is repeated
			err     error
			after   time.Duration
		}{
			"answered":                      {[]error{nil}, nil, 0},
			"forbidden at once":             {[]error{forbidden}, forbidden, 0},
			"an outage":                     {[]error{away}, context.DeadlineExceeded, time.Hour},
			"a short outage":                {[]error{away, away, nil}, nil, 0},
			"a lost session":                {[]error{session}, session, patience},
			"a lost session, and found":     {[]error{session, session, nil}, nil, 0},
			"an outage, then no permission": {[]error{away, forbidden}, forbidden, patience},
		} {
			synctest.Test(t, func(t *testing.T) {
				l := New(nil, "locktable", "m", options.Option(func(c *options.Config) { c.Store = &memstore.Store{} }))
				ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
				defer cancel()
				calls, began := 0, time.Now()
				err := l.insist(ctx, lease, "not known", func(ctx context.Context) error {
					until, limited := ctx.Deadline()
					assert.True(t, limited)
					assert.LessOrEqual(t, time.Until(until), elect.Attempt(lease))
					calls++
					return c.answers[min(calls, len(c.answers))-1]
				})
				took := time.Since(began)
				assert.ErrorIs(t, err, c.err, "%s, lease %v", name, lease)
				assert.GreaterOrEqual(t, took, c.after, "%s, lease %v", name, lease)
				assert.LessOrEqual(t, took, c.after+lease/5, "%s, lease %v", name, lease)
				if errors.Is(err, context.DeadlineExceeded) {
					assert.ErrorContains(t, err, "not known")
					assert.ErrorIs(t, err, away)
				}
			})
		}
	}
}
