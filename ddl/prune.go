package ddl

import (
	"context"
	"fmt"
	"time"

	"cloud.google.com/go/spanner"

	"github.com/spindle-lock/spindle/internal/table"
)

// Prune deletes the rows of locks that were released at least older ago, by
// Spanner's clock, and were not claimed since. It returns how many rows it
// deleted, even with an error: those are gone, and a later Prune goes on.
//
// It is safe while candidates and holders run, and several may prune at once: a row
// is deleted only if its lock is still released as it was when its age was read.
// A lock without a row is free, and its next token is still larger.
// Locks that expired are not pruned.
//
// 24 hours, the longest lease, is a good age. With a shorter one, a candidate
// that saw the last holder, and does not look at the lock between its release
// and the end of that time, waits one lease for a lock that is free.
//
// It reads the whole table, in pages. It needs the permissions of a candidate.
func Prune(ctx context.Context, db *spanner.Client, name string, older time.Duration) (int, error) {
	if err := checkName(name); err != nil {
		return 0, err
	}
	if older < 0 {
		return 0, fmt.Errorf("ddl: cannot prune what was released %v ago: the age must not be negative, and 24h is a good one", older)
	}
	t := table.Table{Store: table.Spanner{DB: db, Table: name}}
	pruned := 0
	for seen, err := range t.Released(ctx, older) {
		if err == nil {
			var n int
			n, err = t.Prune(ctx, seen...)
			pruned += n
		}
		if err != nil {
			return pruned, fmt.Errorf("ddl: cannot prune table %s any further, after %d locks: %w", name, pruned, err)
		}
	}
	return pruned, nil
}
