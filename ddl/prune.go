package ddl

import (
	"context"
	"fmt"
	"time"

	"cloud.google.com/go/spanner"

	"github.com/spindle-lock/spindle/internal/table"
)

// A PruneOption changes what [Prune] deletes.
type PruneOption func(*table.Ages)

// Expired makes Prune also delete the rows of locks whose holders have died and that no candidate has claimed again.
// These are locks whose lease ended longer ago than the given age, and unconfirmed claims of at least that age.
// The age must be at least 24 hours, which is the longest possible lease. One week is a good choice.
//
// A lock row and its lease rows are deleted together, and only if no heartbeat has arrived since Prune read them. If
// the holder resumes after that, its token is no longer valid, just as after a takeover, so its heartbeats, its
// confirmation and its fenced writes fail. Prune skips a lock if its lease row cannot be read, or if its rows were
// changed by hand.
func Expired(older time.Duration) PruneOption { return func(a *table.Ages) { a.Expired = older } }

// Prune deletes the rows of locks that have been released for at least the given age, by Spanner's clock, and were not
// claimed again. It returns the number of locks that it deleted, even if it also returns an error. After an error, a
// later call continues with the rest.
//
// Prune is safe while candidates and holders are running, and several processes can prune at the same time. It deletes
// a row only if the lock is still released, and has not changed since Prune read its age. A lock without a row is free,
// and its next token is still larger than its last. Prune does not delete expired locks unless the option [Expired] is
// given. It never deletes rows of groups, rows that record the last key done under a lock (see lock.Once), or locks
// that an operator released within the last day.
//
// A good age is 24 hours, which is the longest possible lease. With a shorter age, a candidate that has seen the last
// holder can wait one lease duration for a lock that is free. This happens if it does not look at the lock between the
// release and the deletion of the row.
//
// Prune also deletes the tickets of processes that waited for a lock with package lock, one day after they were last
// written. The result does not count tickets.
//
// Prune reads the whole table, page by page. It needs the same permissions as a candidate.
func Prune(ctx context.Context, db *spanner.Client, name string, older time.Duration, opts ...PruneOption) (int, error) {
	if err := checkName(name); err != nil {
		return 0, err
	}
	ages := table.Ages{Released: older}
	for _, opt := range opts {
		opt(&ages)
	}
	if err := ages.Check(); err != nil {
		return 0, fmt.Errorf("ddl: cannot prune: %w", err)
	}
	t := table.Table{Store: table.Spanner{DB: db, Table: name}}
	pruned := 0
	for seen, err := range t.Prunable(ctx, ages) {
		if err == nil {
			var n int
			n, err = t.Prune(ctx, seen...)
			pruned += n
		}
		if err != nil {
			return pruned, fmt.Errorf("ddl: pruning table %s failed after %d locks: %w", name, pruned, err)
		}
	}
	for tickets, err := range t.StaleTickets(ctx) {
		if err == nil {
			err = t.Queue(ctx, tickets...)
		}
		if err != nil {
			return pruned, fmt.Errorf("ddl: pruning the tickets in table %s failed after %d locks: %w", name, pruned, err)
		}
	}
	return pruned, nil
}
