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

// Expired makes Prune also delete the rows of dead holders, under names that nobody asks for again: of locks whose
// lease ended at least older ago, and of unconfirmed claims of that age. The age must be at least 24 hours, the longest
// lease, and a week is a good one.
//
// Locks and lease rows go together, if no heartbeat has come since they were seen. A holder that wakes up after that
// finds, as after a takeover, that its token is not valid any more: its heartbeats, its confirmation and its fenced
// writes fail. A lock is left alone if its lease row can't be read, or somebody has changed its rows by hand.
func Expired(older time.Duration) PruneOption { return func(a *table.Ages) { a.Expired = older } }

// Prune deletes the rows of locks that were released at least older ago, by Spanner's clock, and were not claimed
// since. It returns how many locks it deleted, even with an error: those are gone, and a later Prune continues.
//
// It is safe while candidates and holders run, and several may prune at once: a row is deleted only if its lock is
// still released as it was when its age was read. A lock without a row is free, and its next token is still larger.
// Expired locks are not pruned without [Expired]. Prune leaves groups alone, what was done last under a lock
// (lock.Once), and a lock that an operator released within the last day.
//
// 24 hours, the longest lease, is a good age. With a shorter one, a candidate that saw the last holder, and does not
// look at the lock between its release and the end of that time, waits one lease for a free lock.
//
// Prune also deletes the tickets of processes that waited for a lock (package lock), a day after they were written
// last. They are not counted.
//
// Prune reads the whole table, in pages. It needs the permissions of a candidate.
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
			return pruned, fmt.Errorf("ddl: cannot prune table %s any further, after %d locks: %w", name, pruned, err)
		}
	}
	for tickets, err := range t.StaleTickets(ctx) {
		if err == nil {
			err = t.Queue(ctx, tickets...)
		}
		if err != nil {
			return pruned, fmt.Errorf("ddl: cannot prune the tickets of waiters in table %s, after %d locks: %w", name, pruned, err)
		}
	}
	return pruned, nil
}
