package operate

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spindle-lock/spindle/cmd/spindle/internal/database"
	"github.com/spindle-lock/spindle/cmd/spindle/internal/terminal"
	"github.com/spindle-lock/spindle/internal/elect"
	"github.com/spindle-lock/spindle/internal/operator"
	"github.com/spindle-lock/spindle/internal/table"
	"github.com/spindle-lock/spindle/internal/testkit/memstore"
	"github.com/spindle-lock/spindle/internal/testkit/steps"
)

// slow returns a table behind a proxy that takes so long for each request. Of a transaction, it delays the commit.
func slow(s table.Store, takes func(request int) time.Duration) table.Table {
	requests := 0
	return table.Table{Store: table.Via(func(ctx context.Context, _ string, do func(context.Context, table.Store) error) error {
		requests++
		return do(ctx, delayed{s, takes(requests)})
	})}
}

type delayed struct {
	table.Store
	by time.Duration
}

func (d delayed) wait(ctx context.Context) error {
	elect.Sleep(ctx, elect.SystemClock{}, d.by)
	return ctx.Err()
}

func (d delayed) Read(ctx context.Context, step string, bound table.Bound, keys table.Keys) ([]table.Row, time.Time, error) {
	if err := d.wait(ctx); err != nil {
		return nil, time.Time{}, err
	}
	return d.Store.Read(ctx, step, bound, keys)
}

func (d delayed) Commit(ctx context.Context, step string, writes []table.Write) error {
	if err := d.wait(ctx); err != nil {
		return err
	}
	return d.Store.Commit(ctx, step, writes)
}

func (d delayed) Transact(ctx context.Context, step string, fn func(context.Context, table.Reader) ([]table.Write, error)) (time.Time, error) {
	return d.Store.Transact(ctx, step, func(ctx context.Context, r table.Reader) ([]table.Write, error) {
		writes, err := fn(ctx, r)
		return writes, cmp.Or(err, d.wait(ctx))
	})
}

const (
	releasedLocks = 1000
	staleTickets  = 250
	timeout       = 10 * time.Second
)

func prunes(t *testing.T, locks table.Table) error {
	return (&pruning{Database: &database.Database{Timeout: timeout}, ages: operator.Ages{Released: time.Minute}}).run(t.Context(), locks)
}

// longReleased is a table of locks that were released.
func longReleased(t *testing.T) *memstore.Store {
	store := &memstore.Store{}
	var writes []table.Write
	for i := range releasedLocks {
		writes = append(writes, table.Write{Kind: table.Insert, Name: fmt.Sprintf("invoice-%04d", i),
			Set: []table.Cell{{Column: table.ColToken, Value: time.Now().Add(-time.Hour)}}})
	}
	require.NoError(t, store.Commit(t.Context(), "test", writes))
	return store
}

// The timeout is for each request: the batches of a large table take longer together.
func TestALargeTableIsPrunedThroughASlowProxy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := longReleased(t)
		began := time.Now()
		assert.NoError(t, prunes(t, slow(store, func(int) time.Duration { return timeout - time.Millisecond })))
		assert.Empty(t, store.Rows())
		assert.InDelta(t, 15*timeout, time.Since(began), float64(5*timeout), "there are five batches, of two requests at least")
	})
}

func TestARequestOfPruneThatIsNotAnsweredEndsIt(t *testing.T) {
	for last, left := range map[int]int{1: releasedLocks, 3: releasedLocks, 4: releasedLocks - 200, 5: releasedLocks - 200} { // a page, and two requests for each batch
		synctest.Test(t, func(t *testing.T) {
			store := longReleased(t)
			hangs := slow(store, func(request int) time.Duration {
				if request == last {
					return time.Hour
				}
				return 0
			})
			began := time.Now()
			err := prunes(t, hangs)
			assert.ErrorContains(t, err, fmt.Sprintf("after %d locks: no answer within 10s", releasedLocks-left))
			assert.ErrorContains(t, err, "the database can't be reached")
			assert.Equal(t, timeout, time.Since(began))
			assert.Equal(t, left, len(store.Rows()))
		})
	}
}

// What prune says is what it did, for people and for programs, and a dry run says what would be done without doing it.
func TestPruneSaysWhatItDid(t *testing.T) {
	const since = " (released at least 1h0m0s ago"
	const old = " or expired at least 24h0m0s ago)"
	for _, c := range []struct {
		released, expired, tickets int
		ages                       operator.Ages
		out                        string // for people, without the verb
		locks                      int
	}{
		{0, 0, 0, operator.Ages{Released: time.Hour}, "0 locks" + since + ")", 0},
		{1, 1, 0, operator.Ages{Released: time.Hour}, "1 lock" + since + ")", 1},
		{1, 1, 1, operator.Ages{Released: time.Hour}, "1 lock" + since + "), and 1 stale ticket", 1},
		{2, 1, 0, operator.Ages{Released: time.Hour, Expired: table.MaxLease}, "3 locks" + since + old, 3},
		{0, 2, 3, operator.Ages{Released: time.Hour, Expired: table.MaxLease}, "2 locks" + since + old + ", and 3 stale tickets", 2},
		{250, 0, 250, operator.Ages{Released: time.Hour}, "250 locks" + since + "), and 250 stale tickets", 250},
	} {
		for _, format := range []string{"table", "json"} {
			for _, dry := range []bool{false, true} {
				synctest.Test(t, func(t *testing.T) {
					tab := table.Table{Store: &memstore.Store{}}
					var names []string
					for i := range c.expired {
						names = append(names, fmt.Sprintf("dead%d\x1b", i))
						steps.Hold(t, tab, names[i], time.Hour)
					}
					var writes []table.Write
					for i := range c.tickets {
						writes = append(writes, table.Ticket{Queue: "q", Time: table.TokenAt(time.Now()), Nonce: fmt.Sprint(i), Lasts: time.Minute}.Put())
					}
					require.NoError(t, tab.Queue(t.Context(), writes...))
					time.Sleep(time.Hour + table.MaxLease + time.Second)
					if c.ages.Expired == 0 {
						names = nil
					}
					writes = nil
					for i := range c.released {
						names = append(names, fmt.Sprintf("done%03d\x1b", i))
						writes = append(writes, table.Write{Kind: table.Insert, Name: names[len(names)-1], Set: []table.Cell{{Column: table.ColToken, Value: time.Now().Add(-2 * time.Hour)}}})
					}
					require.NoError(t, tab.Store.Commit(t.Context(), "test", append(writes, table.Ticket{Queue: "q", Time: table.TokenAt(time.Now()), Nonce: "waits", Lasts: time.Minute}.Put())))
					steps.Hold(t, tab, "held", time.Hour)
					require.NoError(t, tab.Release(t.Context(), steps.Hold(t, tab, "just", time.Hour), "just"))
					before := tab.Store.(*memstore.Store).Rows()

					p := &pruning{Database: &database.Database{Timeout: timeout}, f: formatted(t, format), ages: c.ages, dryRun: dry}
					out, said, err := prints(t, func() error { return p.run(t.Context(), tab) })
					require.NoError(t, err)
					var want, tells string
					for _, name := range names {
						switch {
						case dry && p.f.Objects():
							text, _ := json.Marshal(PrunableJSON{name})
							want += string(text) + "\n"
						case dry:
							want += terminal.Show(name) + "\n"
						}
					}
					switch {
					case p.f.Objects():
						want += fmt.Sprintf(`{"dry_run":%v,"locks":%d,"tickets":%d}`+"\n", dry, c.locks, c.tickets)
					case dry:
						tells = "would prune " + c.out + "\n"
					default:
						want = "pruned " + c.out + "\n"
					}
					assert.Equal(t, want, out)
					assert.Equal(t, tells, said)
					after := tab.Store.(*memstore.Store).Rows()
					if dry {
						assert.Equal(t, before, after)
						return
					}
					leases := 0
					if c.ages.Expired > 0 {
						leases = c.expired
					}
					assert.Equal(t, len(before)-c.locks-leases-c.tickets, len(after))
					for _, name := range names {
						assert.NotContains(t, after, name)
					}
				})
			}
		}
	}
}

// An interrupted prune ends with the next request, says what interrupted it and how far it came, and leaves the rest.
func TestAnInterruptedPruneStopsAndSaysHowFarItCame(t *testing.T) {
	for _, c := range []struct {
		last, pruned int // the request that is sent when the interruption comes; what is pruned, first the 1000 locks
		dry          bool
	}{{1, 0, false}, {2, 0, false}, {3, 0, false}, {4, 200, false}, {7, 400, false}, {11, 800, false}, {12, 1000, false}, {13, 1000, false}, {14, 1200, false}, {1, 0, true}, {3, 200, true}} {
		synctest.Test(t, func(t *testing.T) {
			store := longReleased(t)
			then := table.TokenAt(time.Now())
			for i := range staleTickets {
				require.NoError(t, table.Table{Store: store}.Queue(t.Context(), table.Ticket{Queue: "q", Time: then, Nonce: fmt.Sprint("n", i), Lasts: time.Second}.Put()))
			}
			time.Sleep(time.Minute)
			ctx, interrupt := context.WithCancelCause(t.Context())
			sent := 0
			interrupted := slow(store, func(request int) time.Duration {
				if sent = request; request == c.last {
					interrupt(errors.New("interrupt signal received"))
					return time.Hour
				}
				return 0
			})
			p := &pruning{Database: &database.Database{Timeout: timeout}, f: formatted(t, "table"), ages: operator.Ages{Released: time.Minute}, dryRun: c.dry}
			pruned := terminal.Count(min(c.pruned, releasedLocks), "lock")
			if c.pruned > releasedLocks {
				pruned += " and " + terminal.Count(c.pruned-releasedLocks, "stale ticket")
			}
			began := time.Now()
			_, _, err := prints(t, func() error { return p.run(ctx, interrupted) })
			assert.ErrorContains(t, err, fmt.Sprintf("stopped after %s: interrupt signal received", pruned))
			assert.Zero(t, time.Since(began), "it does not wait for the answer")
			assert.Equal(t, c.last, sent, "it goes on")
			left := releasedLocks + staleTickets
			if !c.dry {
				left -= c.pruned
			}
			assert.Equal(t, left, len(store.Rows()))
		})
	}
}
