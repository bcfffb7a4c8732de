package operator_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spindle-lock/spindle/internal/operator"
	"github.com/spindle-lock/spindle/internal/table"
	"github.com/spindle-lock/spindle/internal/testkit/memstore"
)

func wait(t *testing.T, tab table.Table, queue, id string) {
	t.Helper()
	ticket := table.Ticket{Queue: queue, Time: table.TokenAt(time.Now()), Nonce: "n" + id, ID: id, Grace: time.Second}
	require.NoError(t, tab.Queue(t.Context(), ticket.Put()))
}

// listed returns each lock of a list with its state and its waiters.
func listed(t *testing.T, tab table.Table, prefix string, all bool) (lines []string) {
	t.Helper()
	found, _, err := operator.List(t.Context(), tab, prefix, all)
	require.NoError(t, err)
	for _, l := range found {
		line := fmt.Sprintf("%.12s %s", l.Name, l.State())
		for _, w := range l.Waiters {
			line += " " + w.ID
		}
		lines = append(lines, line)
	}
	return lines
}

// A ticket that has expired is no waiter, however it is listed: neither of a lock that is held, nor of one that would not
// be listed without it. It is abandoned. A ticket of an older version does not expire.
func TestExpiredTicketsAreNotListed(t *testing.T) {
	for _, ahead := range []time.Duration{-time.Hour, 0, time.Hour} { // of Spanner's clock
		synctest.Test(t, func(t *testing.T) { expiredTicketsAreNotListed(t, ahead) })
	}
}

func expiredTicketsAreNotListed(t *testing.T, ahead time.Duration) {
	tab := table.Table{Store: &memstore.Store{Ahead: func() time.Duration { return ahead }}}
	hold(t, tab, "held", time.Hour)
	put := func(nonce string, lasts time.Duration, queues ...string) {
		for _, queue := range queues {
			ticket := table.Ticket{Queue: queue, Time: table.TokenAt(time.Now().Add(ahead)), Nonce: nonce, ID: nonce, Lasts: lasts}
			require.NoError(t, tab.Queue(t.Context(), ticket.Put()))
		}
	}
	put("gone", 30*time.Second, "held", "free")
	put("old", 0, "held")
	check := func(waiters int, locks ...string) {
		t.Helper()
		assert.Equal(t, locks, listed(t, tab, "", true))
		for name, want := range map[string]int{"held": waiters, "free": waiters - 1} {
			one, err := operator.ListOne(t.Context(), tab, name)
			require.NoError(t, err)
			assert.Len(t, one.Waiters, want, name)
			assert.Equal(t, want > 0, one.LongestWait() > 0, name)
			more, _, err := operator.ListWith(t.Context(), tab, "h", false, name)
			require.NoError(t, err)
			assert.Len(t, more[len(more)-1].Waiters, map[string]int{"held": waiters, "free": 0}[more[len(more)-1].Name], name)
		}
	}
	stale := func() (n int) {
		for writes, err := range operator.StaleTickets(t.Context(), tab) {
			require.NoError(t, err)
			n += len(writes)
		}
		return n
	}
	time.Sleep(30 * time.Second)
	check(2, "free free gone", "held held gone old")
	assert.Zero(t, stale())
	time.Sleep(time.Second)
	check(1, "held held old")
	assert.Equal(t, 2, stale())
	var many []table.Write
	for i := range table.MostTickets {
		many = append(many, table.Ticket{Queue: "held", Time: table.Token(i), Nonce: "many", Lasts: time.Second}.Put())
	}
	require.NoError(t, tab.Queue(t.Context(), many...))
	time.Sleep(2 * time.Second)
	one, err := operator.ListOne(t.Context(), tab, "held")
	require.NoError(t, err)
	assert.True(t, one.Cut, "those behind were not read")
}

// Whatever names are listed, each waiter is listed with the lock that it waits for, and never as a lock of its own.
func TestWaitersAreListedWithTheirLocks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tab := table.Table{Store: &memstore.Store{}}
		long := strings.Repeat("ü", table.MaxName/2)
		for _, name := range []string{"a", "a/b", "held", "pool/slot/0001", "pool/slot/0002", long} {
			hold(t, tab, name, time.Hour)
		}
		require.NoError(t, tab.Release(t.Context(), hold(t, tab, "quiet", time.Hour), "quiet"))
		require.NoError(t, tab.Release(t.Context(), hold(t, tab, "released", time.Hour), "released"))
		for i, queue := range []string{"a", "a/b", "a", "pool/slot/", "none", "released", long, "empty/slot/", "a b", "#"} {
			time.Sleep(time.Second)
			wait(t, tab, queue, fmt.Sprint(i))
		}
		by := func(key string) {
			require.NoError(t, tab.Store.Commit(t.Context(), "by hand", []table.Write{{Kind: table.Put, Name: key}}))
		}
		by("!wait/odd/x")
		by("!wait/")
		by("!wait/job_0000000000000001/0000000000000001/n") // no lock can have that name

		rest := []string{"held held", "none free 4", "pool/slot/00 held 3", "pool/slot/00 held"}
		some := append([]string{"# free 9", "a held 0 2", "a b free 8", "a/b held 1", "empty/slot/0 free 7"}, rest...)
		for _, tc := range []struct {
			prefix string
			all    bool
			want   []string
		}{
			{"", false, append(some, "released released 5", "üüüüüüüüüüüü held 6")},
			{"", true, append(some, "quiet released", "released released 5", "üüüüüüüüüüüü held 6")},
			{"a", false, some[1:4]},
			{"a/", true, []string{"a/b held 1"}},
			{"rel", false, []string{"released released 5"}},
			{"pool/slot/0002", false, []string{"pool/slot/00 held 3"}},
			{"pool/sl", true, rest[2:]},
			{"empty/slot/0", false, []string{"empty/slot/0 free 7"}},
			{"üü", false, []string{"üüüüüüüüüüüü held 6"}},
			{"!wait", true, nil},
			{"qu", false, nil},
		} {
			assert.Equal(t, tc.want, listed(t, tab, tc.prefix, tc.all), "%q %v", tc.prefix, tc.all)
		}

		named, _, err := operator.ListWith(t.Context(), tab, "he", false, "pool/slot/0002", "pool/slot/0001", "pool/slot/0003")
		require.NoError(t, err)
		require.Len(t, named, 4)
		for i, want := range []int{0, 1, 0, 0} {
			assert.Len(t, named[i].Waiters, want, "%s: those of a semaphore are listed once", named[i].Name)
		}

		for name, want := range map[string]string{"a": "0 2", "none": "4", "held": "", "pool/slot/0002": "3", long: "6", "released": "5"} {
			l, err := operator.ListOne(t.Context(), tab, name)
			require.NoError(t, err)
			var ids []string
			for _, w := range l.Waiters {
				ids = append(ids, w.ID)
			}
			assert.Equal(t, want, strings.Join(ids, " "), "%.20s", name)
			assert.False(t, l.Cut)
		}
		l, err := operator.ListOne(t.Context(), tab, "a")
		require.NoError(t, err)
		assert.Equal(t, 9*time.Second, l.LongestWait().Round(time.Second))
	})
}

// counted is a Store that counts the rows that it reads.
type counted struct {
	table.Store
	rows, reads int
}

func (c *counted) Read(ctx context.Context, step string, bound table.Bound, keys table.Keys) ([]table.Row, time.Time, error) {
	rows, at, err := c.Store.Read(ctx, step, bound, keys)
	c.reads, c.rows = c.reads+1, c.rows+len(rows)
	return rows, at, err
}

// A long queue does not make it expensive to look at a single lock.
func TestOfALongQueueTheFirstAreRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &counted{Store: &memstore.Store{}}
		tab := table.Table{Store: store}
		hold(t, tab, "m", time.Hour)
		var writes []table.Write
		for i := range 10_000 {
			writes = append(writes, table.Ticket{Queue: "m", Time: table.Token(i + 1), Nonce: "n"}.Put())
		}
		require.NoError(t, tab.Queue(t.Context(), writes...))
		store.rows, store.reads = 0, 0
		l, err := operator.ListOne(t.Context(), tab, "m")
		require.NoError(t, err)
		assert.True(t, l.IsHeld())
		assert.Len(t, l.Waiters, table.MostTickets)
		assert.True(t, l.Cut)
		assert.Equal(t, table.Token(1), l.Waiters[0].Time)
		assert.Less(t, store.rows, 300)
		assert.LessOrEqual(t, store.reads, 3)
	})
}

// A ticket that does not say for how long it counts, and has not been written for a day, belongs to a process that no longer
// runs. Other tickets are kept.
func TestStaleTicketsAreThoseThatNobodyWrites(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &memstore.Store{}
		tab := table.Table{Store: store}
		stale := func() (n int) {
			for deletes, err := range operator.StaleTickets(t.Context(), tab) {
				require.NoError(t, err)
				assert.LessOrEqual(t, len(deletes), 200)
				require.NoError(t, tab.Queue(t.Context(), deletes...))
				n += len(deletes)
			}
			return n
		}
		release(t, tab, "m")
		require.NoError(t, tab.Queue(t.Context(), table.Ticket{Queue: "m", Nonce: "long", ID: "long", Lasts: 3 * table.MaxLease}.Put()))
		for i := range 450 {
			wait(t, tab, "m", fmt.Sprint(i))
		}
		time.Sleep(table.MaxLease)
		assert.Zero(t, stale())
		wait(t, tab, "m", "new")
		time.Sleep(time.Hour)
		assert.Equal(t, 450, stale())
		assert.Equal(t, []string{"m released long new"}, listed(t, tab, "", false))
		assert.Contains(t, store.Rows(), "m")
		assert.Zero(t, stale())
	})
}

// The listing of a slot says if there may be more waiters than it shows, in whichever of its queues they are.
func TestAListingSaysIfItIsCut(t *testing.T) {
	lengths := []int{0, 1, table.MostTickets - 1, table.MostTickets, 3 * table.MostTickets}
	for _, slot := range lengths {
		for _, all := range lengths {
			synctest.Test(t, func(t *testing.T) {
				tab := table.Table{Store: &memstore.Store{}}
				for queue, n := range map[string]int{"s/slot/0000": slot, "s/slot/": all} {
					for i := range n {
						require.NoError(t, tab.Queue(t.Context(), table.Ticket{Queue: queue, Time: table.Token(i + 1), Nonce: "n"}.Put()))
					}
				}
				one, err := operator.ListOne(t.Context(), tab, "s/slot/0000")
				require.NoError(t, err)
				assert.Equal(t, slot >= table.MostTickets || all >= table.MostTickets, one.Cut, "%d and %d", slot, all)
				assert.GreaterOrEqual(t, len(one.Waiters), min(slot, table.MostTickets)+min(all, table.MostTickets))
			})
		}
	}
}

// Waiters are listed in the order in which they get the lock, in whichever queue each of them waits, and the longest wait
// is that of whoever came first, even if others go before it because of their priority, and even if it has renewed its
// ticket since.
func TestWaitersAreListedInTheirOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tab := table.Table{Store: &memstore.Store{}}
		var renewals []table.Write
		for i, w := range []struct {
			queue string
			rank  int
		}{{"s/slot/", 9}, {"s/slot/0000", 1}, {"s/slot/", 0}, {"s/slot/0000", 0}, {"s/slot/", 1}} {
			ticket := table.Ticket{Queue: w.queue, Time: table.TurnFor(table.TokenAt(time.Now()), w.rank), Nonce: "n", ID: fmt.Sprint(i), Rank: w.rank}
			require.NoError(t, tab.Queue(t.Context(), ticket.Put()))
			renewals = append(renewals, ticket.Renew())
			time.Sleep(time.Second)
		}
		require.NoError(t, tab.Queue(t.Context(), renewals...))
		one, err := operator.ListOne(t.Context(), tab, "s/slot/0000")
		require.NoError(t, err)
		all, _, err := operator.List(t.Context(), tab, "", true)
		require.NoError(t, err)
		require.Len(t, all, 1)
		for _, l := range []operator.Listing{one, all[0]} {
			var ids string
			for _, w := range l.Waiters {
				ids += w.ID
			}
			assert.Equal(t, "23140", ids)
			l.At = time.Now()
			assert.Equal(t, 5*time.Second, l.LongestWait())
		}
	})
}

// A ticket is kept as long as it counts, and one that does not say how long for as long as any term may last.
func TestATicketIsStaleOnceItCannotCount(t *testing.T) {
	for lasts, age := range map[time.Duration]time.Duration{0: table.MaxLease, time.Minute: time.Minute, 2 * table.MaxLease: 2 * table.MaxLease} {
		for off, stale := range map[time.Duration]bool{-time.Microsecond: false, 0: false, time.Microsecond: true} {
			synctest.Test(t, func(t *testing.T) {
				store := &memstore.Store{}
				tab := table.Table{Store: store}
				ticket := table.Ticket{Queue: "m", Time: 5, Nonce: "n", Lasts: lasts}
				require.NoError(t, tab.Queue(t.Context(), ticket.Put()))
				time.Sleep(time.Until(store.Rows()[ticket.Row()].Heartbeat.Add(age + off)))
				var want, found []string
				if stale {
					want = []string{ticket.Row()}
				}
				for deletes, err := range operator.StaleTickets(t.Context(), tab) {
					require.NoError(t, err)
					for _, w := range deletes {
						assert.Equal(t, table.Delete, w.Kind)
						found = append(found, w.Name)
					}
				}
				assert.Equal(t, want, found, "%v after a life of %v", off, lasts)
			})
		}
	}
}
