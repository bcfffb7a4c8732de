package ddl

import (
	"context"
	"fmt"
	"time"

	"cloud.google.com/go/spanner"

	"github.com/spindle-lock/spindle/internal/operator"
	"github.com/spindle-lock/spindle/internal/table"
)

// A PruneOption changes what [Prune] deletes.
type PruneOption func(*ages)

type ages operator.Ages

// Expired makes Prune also delete the rows of abandoned locks. A lock is abandoned if its lease expired at least the
// given time ago and no candidate has claimed it since, or if a claim has been unconfirmed for at least that time. The
// time must be at least 24 hours, which is the longest possible lease. One week is a good choice.
//
// Prune deletes a lock row and its lease row together, and only if no heartbeat or claim has changed the lock row since
// Prune read it. If the holder resumes later, its token is no longer valid, just as after a takeover. Its heartbeats,
// its confirmation and its fenced writes then fail. Prune skips a lock if a lease row cannot be read, or does not
// belong to the token in the lock row.
func Expired(older time.Duration) PruneOption { return func(a *ages) { a.Expired = older } }

// Prune deletes the rows of locks that were released at least the given time ago, by Spanner's clock, and have not been
// claimed since. It returns the number of locks that it deleted, even if it also returns an error. To continue after an
// error, call Prune again.
//
// Prune is safe while candidates and holders are running, and several processes can prune at the same time. It deletes
// a lock's rows only if the lock row has not changed since Prune read it. A lock without a row is free, and its next
// token is still larger than its last one.
//
// Prune does not delete expired locks unless the option [Expired] is given. It never deletes the rows of groups, the
// rows in which lock.Once records the last completed key, or the rows of locks that an operator released within the
// last day.
//
// A good value for older is 24 hours, which is the longest possible lease. With a shorter time, a candidate may wait
// for one lease duration although the lock is free. This happens if the candidate has seen the last holder, and does
// not poll the lock between the release and the deletion of the row.
//
// Prune also deletes abandoned tickets. A process that waits for a lock with package lock renews its ticket. A ticket
// that was not renewed in time counts as abandoned. If a ticket does not contain its lifetime, it counts as abandoned
// one day after it was last written. Deleted tickets are not included in the number that Prune returns.
//
// Prune reads the whole table, page by page. It needs the same permissions as a candidate.
func Prune(ctx context.Context, db *spanner.Client, name string, older time.Duration, opts ...PruneOption) (int, error) {
	if err := checkName(name); err != nil {
		return 0, err
	}
	given := ages{Released: older}
	for _, opt := range opts {
		opt(&given)
	}
	ages := operator.Ages(given)
	if err := ages.Check(); err != nil {
		return 0, fmt.Errorf("ddl: cannot prune: %w", err)
	}
	t := table.Table{Store: table.Spanner{DB: db, Table: name}}
	pruned := 0
	for seen, err := range operator.Prunable(ctx, t, ages) {
		if err == nil {
			var n int
			n, err = t.Prune(ctx, seen...)
			pruned += n
		}
		if err != nil {
			return pruned, fmt.Errorf("ddl: pruning table %s failed after %d locks were deleted: %w", name, pruned, err)
		}
	}
	for tickets, err := range operator.StaleTickets(ctx, t) {
		if err == nil {
			err = t.Queue(ctx, tickets...)
		}
		if err != nil {
			return pruned, fmt.Errorf("ddl: pruning the tickets in table %s failed, after %d locks were deleted: %w", name, pruned, err)
		}
	}
	return pruned, nil
}
