package operator

import (
	"context"
	"fmt"
	"iter"
	"slices"
	"time"

	"github.com/spindle-lock/spindle/internal/table"
)

// batch is the number of locks in one transaction or read.
const batch = 200

var page = 50_000 // the number of rows in one reply; a test makes it small

// Ages determine which locks are pruned. They are measured by Spanner's clock.
type Ages struct {
	Released time.Duration // the minimum time since the release

	// Expired is how long ago a failed holder's lease must have expired before the lock is pruned. For a claim that was
	// never confirmed, it is the minimum age of the claim. If Expired is zero, only released locks are pruned.
	Expired time.Duration
}

// Check returns an error if an age is too short. After the lease of a failed holder has expired, candidates wait for
// the lock delay, which is at most MaxLease, before they claim the lock. If the lease expired at least MaxLease ago,
// the lock delay is over, so the rows are no longer needed.
func (a Ages) Check() error {
	switch {
	case a.Released < 0:
		return fmt.Errorf("the age of released locks is %v, but must not be negative; 24h is a good choice", a.Released)
	case a.Expired != 0 && a.Expired < table.MaxLease:
		return fmt.Errorf("the age of expired locks is %v, but must be at least %v, the longest lease; 168h is a good choice", a.Expired, table.MaxLease)
	}
	return nil
}

// are reports whether the lock in a row may be old enough to be pruned. It is a first filter, before the lease rows are
// read. It skips the locks of groups, because the row of a former member shows that the member's term has ended.
func (a Ages) are(row table.Row, at time.Time) bool {
	if _, part := table.PartOf(row.Name); part || row.Token.IsZero() || table.CheckKey(row.Name) != nil {
		return false
	}
	if row.Heartbeat.IsZero() {
		return at.Sub(row.Token) >= a.Released
	}
	return a.Expired != 0 && at.Sub(row.Heartbeat) >= a.Expired
}

// end returns the observation of a lock, including all its lease rows, and reports whether the lock is old enough to be
// pruned. However old the lock is, end reports false in these cases:
//
//   - A lease row can't be read.
//   - The lock has a lease row for a token other than the lock row's token. This happens only if the table was changed
//     by hand.
//   - The lock was broken less than MaxLease ago. The former holder may still need the record of the break, to find out
//     whether its own release was applied.
func (a Ages) end(name string, rows table.Rows) (table.Observation, bool) {
	o, err := rows.Lock(name)
	leases := rows.Leases(name)
	switch own := table.LeaseKey(name, o.Token); {
	case err != nil, !a.are(rows.Row(name), rows.At), rows.At.Sub(rows.Row(table.BrokenRow(name)).Heartbeat) < table.MaxLease:
		return o, false
	case len(leases) == 0:
		return o, true
	case !o.Freed.IsZero():
		return o, len(leases) == 1 && rows.At.Sub(o.Freed) >= a.Released
	case len(leases) > 1 || leases[0].Name != own || o.LeaseRecord == nil:
		return o, false
	}
	return o, rows.At.Sub(o.Heartbeat) >= o.LeaseRecord.Lease+a.Expired
}

// Prunable yields the locks that are old enough to be pruned, sorted by name, in batches of up to 200. Each batch can
// be passed to Table.Prune. Before Prunable yields a lock, it reads the lock again, together with the lease rows.
func Prunable(ctx context.Context, t table.Table, ages Ages) iter.Seq2[[]table.Observation, error] {
	return scan(ctx, t, "", ages.are, func(names []string, about time.Time) (seen []table.Observation, err error) {
		keys := table.WithLeases(names, about)
		for _, name := range names {
			keys.Names = append(keys.Names, table.BrokenRow(name))
		}
		rows, err := t.Read(ctx, "prune", table.Present, keys)
		for _, name := range names {
			if o, old := ages.end(name, rows); old {
				seen = append(seen, o)
			}
		}
		return seen, err
	})
}

// StaleTickets yields the writes that delete abandoned tickets, in batches of up to 200. Each batch can be passed to
// Table.Queue. A ticket counts as abandoned once it has expired or, if it has no expiry time, MaxLease after it was
// last written. If the waiter is still running, it writes its ticket again.
func StaleTickets(ctx context.Context, t table.Table) iter.Seq2[[]table.Write, error] {
	stale := func(row table.Row, at time.Time) bool {
		t, _, _ := table.TicketOf(row)
		return t.Expired(at) || t.Lasts == 0 && at.Sub(t.Beat) > table.MaxLease
	}
	return scan(ctx, t, table.TicketPrefix, stale, func(keys []string, _ time.Time) (writes []table.Write, err error) {
		for _, key := range keys {
			writes = append(writes, table.Write{Kind: table.Delete, Name: key})
		}
		return writes, nil
	})
}

// scan reads the rows whose keys begin with the prefix, and selects rows with the function choose. It passes the keys
// of these rows, in batches, to the function use, and yields the results.
func scan[T any](ctx context.Context, t table.Table, prefix string, choose func(table.Row, time.Time) bool, use func(keys []string, at time.Time) (T, error)) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		for last, full := prefix, true; full; {
			rows, at, err := t.Store.Read(ctx, "prune", table.Present, table.Keys{All: true, Prefix: prefix, After: last, Limit: page})
			if err != nil {
				var none T
				yield(none, err)
				return
			}
			var chosen []string
			for _, row := range rows {
				if last = row.Name; choose(row, at) {
					chosen = append(chosen, row.Name)
				}
			}
			for keys := range slices.Chunk(chosen, batch) {
				some, err := use(keys, at)
				if !yield(some, err) || err != nil {
					return
				}
			}
			full = len(rows) == page
		}
	}
}
