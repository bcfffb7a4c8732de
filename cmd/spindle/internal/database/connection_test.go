package database

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"cloud.google.com/go/spanner"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/api/option"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/spindle-lock/spindle/cmd/spindle/internal/commandtest"
	"github.com/spindle-lock/spindle/internal/table"
)

var noSession = status.Error(codes.NotFound, "Session not found: projects/p/instances/i/databases/d/sessions/s")

// newClient returns a client of a server that does not answer.
func newClient() (*spanner.Client, error) {
	return spanner.NewClientWithConfig(context.Background(), "projects/p/instances/i/databases/d", spanner.ClientConfig{DisableNativeMetrics: true},
		option.WithEndpoint("passthrough:///127.0.0.1:1"), option.WithoutAuthentication(), option.WithGRPCConnectionPool(1),
		option.WithGRPCDialOption(grpc.WithTransportCredentials(insecure.NewCredentials())))
}

// connected returns a connection, and the number of clients that it has created since.
func connected(t *testing.T) (c *Connection, dials func() int) {
	t.Helper()
	db, err := newClient()
	require.NoError(t, err)
	n := 0
	c = &Connection{table: "mytable", db: db, calls: map[*spanner.Client]int{}, dial: func() (*spanner.Client, error) {
		n++
		return newClient()
	}}
	t.Cleanup(func() { c.Close() })
	return c, func() int { return n }
}

// closed reports whether a client is closed.
func closed(db *spanner.Client) bool {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
	defer cancel()
	_, err := db.Single().ReadRow(ctx, "t", spanner.Key{"k"}, []string{"c"})
	return table.FaultOf(err) == table.NoClient
}

// A call that failed because the client has lost its session is made once more, with a new client, which stays: without it, a command
// that watches or holds locks would fail until it is restarted. Any other call is made once: it may have had an effect.
func TestAClientThatHasLostItsSessionIsReplaced(t *testing.T) {
	other := errors.New("another error")
	type key struct{}
	ctx := context.WithValue(t.Context(), key{}, "of the caller")
	for name, test := range map[string]struct {
		answers []error
		clients []int // which client each call had
		last    error
		left    int // which client is left
	}{
		"it answers":                        {[]error{nil}, []int{0}, nil, 0},
		"another error":                     {[]error{other}, []int{0}, other, 0},
		"an outage":                         {[]error{commandtest.Away}, []int{0}, commandtest.Away, 0},
		"no session":                        {[]error{noSession, nil}, []int{0, 1}, nil, 1},
		"no session, and then an error":     {[]error{noSession, other}, []int{0, 1}, other, 1},
		"no session, and again no session":  {[]error{noSession, noSession}, []int{0, 1}, noSession, 1},
		"no session, in an error around it": {[]error{errors.Join(noSession), nil}, []int{0, 1}, nil, 1},
	} {
		t.Run(name, func(t *testing.T) {
			c, dials := connected(t)
			clients := []*spanner.Client{c.Client()}
			var had []int
			err := c.Locks().Store.(table.Via)(ctx, "step", func(ctx context.Context, s table.Store) error {
				assert.Equal(t, "of the caller", ctx.Value(key{}))
				spanner := s.(table.Spanner)
				assert.Equal(t, "mytable", spanner.Table)
				if spanner.DB != clients[len(clients)-1] {
					clients = append(clients, spanner.DB)
				}
				had = append(had, len(clients)-1)
				return test.answers[len(had)-1]
			})
			assert.Equal(t, test.last, err)
			assert.Equal(t, test.clients, had)
			assert.Equal(t, test.left, dials())
			assert.Same(t, clients[test.left], c.Client())
			assert.False(t, closed(c.Client()))
			if test.left > 0 {
				assert.True(t, closed(clients[0]), "each new client leaks the connections of the old one")
			}
		})
	}
}

// Calls that find at the same time that their client has lost its session get one new client together. A call that comes late does not
// replace the new client, which others use.
func TestOneClientReplacesTheOneThatAllCallsHave(t *testing.T) {
	c, dials := connected(t)
	old := c.Client()
	const calls = 8
	var sent, ended sync.WaitGroup
	sent.Add(calls)
	for range calls {
		ended.Go(func() {
			first := true
			assert.NoError(t, c.call(t.Context(), "step", func(_ context.Context, s table.Store) error {
				if !first {
					assert.NotSame(t, old, s.(table.Spanner).DB)
					return nil
				}
				first = false
				sent.Done()
				sent.Wait()
				return noSession
			}))
		})
	}
	ended.Wait()
	assert.Equal(t, 1, dials())
}

// A call keeps its client while another call replaces it. If the client were closed, the first call would fail, with the advice to close
// clients later.
func TestAClientIsClosedOnceNoCallUsesIt(t *testing.T) {
	c, _ := connected(t)
	old := c.Client()
	assert.NoError(t, c.call(t.Context(), "step", func(context.Context, table.Store) error {
		assert.NoError(t, c.call(t.Context(), "step", func(_ context.Context, s table.Store) error {
			if s.(table.Spanner).DB == old {
				return noSession
			}
			return nil
		}))
		assert.NotSame(t, old, c.Client())
		assert.False(t, closed(old))
		return nil
	}))
	assert.True(t, closed(old))
}

// If no new client can be created, the old one stays, and the next call tries again.
func TestAClientIsReplacedOnceThatIsPossible(t *testing.T) {
	c, _ := connected(t)
	old, dial := c.Client(), c.dial
	c.dial = func() (*spanner.Client, error) { return nil, errors.New("no credentials") }
	calls := 0
	fails := func(context.Context, table.Store) error { calls++; return noSession }
	assert.Equal(t, noSession, c.call(t.Context(), "step", fails))
	assert.Same(t, old, c.Client())
	assert.False(t, closed(old))
	assert.Equal(t, 2, calls)
	c.dial = dial
	assert.NoError(t, c.call(t.Context(), "step", func(_ context.Context, s table.Store) error {
		if s.(table.Spanner).DB == old {
			return noSession
		}
		return nil
	}))
}

// A command that waits for the database says so, once, and only about its first call: the user then knows that it is not a lock for
// which it waits. Nothing is said if the database answers soon, or if the command soon gives up.
func TestACommandSaysThatItWaitsForTheDatabase(t *testing.T) {
	c, _ := connected(t)
	const says = "no answer from the database yet; waiting up to 20s (--timeout)"
	for _, test := range []struct {
		timeout time.Duration
		takes   []time.Duration // by each call
		says    int
	}{
		{20 * time.Second, []time.Duration{2999 * time.Millisecond}, 0},
		{20 * time.Second, []time.Duration{3001 * time.Millisecond}, 1},
		{20 * time.Second, []time.Duration{3001 * time.Millisecond, 10 * time.Second}, 1},
		{20 * time.Second, []time.Duration{time.Second, 10 * time.Second}, 0},
		{20 * time.Second, []time.Duration{time.Minute}, 1},
		{3 * time.Second, []time.Duration{time.Minute}, 0},
		{3001 * time.Millisecond, []time.Duration{time.Minute}, 1},
	} {
		synctest.Test(t, func(t *testing.T) {
			said := commandtest.Complaints(func() {
				tab := c.Audibly(&Database{Timeout: test.timeout})
				for _, takes := range test.takes {
					_ = tab.Store.(table.Via)(t.Context(), "step", func(context.Context, table.Store) error {
						time.Sleep(takes)
						return nil
					})
				}
				time.Sleep(time.Minute)
			})
			require.Len(t, said, test.says, "%v", test)
			if test.says > 0 && test.timeout == 20*time.Second {
				assert.Contains(t, said[0], says)
			}
		})
	}
}
