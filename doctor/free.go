package doctor

import (
	"context"
	"errors"
	"fmt"
	"time"

	"cloud.google.com/go/spanner"
	"google.golang.org/grpc/codes"

	"github.com/spindle-lock/spindle/internal/table"
)

// freeRows checks the way in which package lock hands a released lock to the next holder. It acquires a lock, releases
// it so that a free row remains, and claims it again in a commit that consumes the free row. It sends that commit
// twice, to imitate a duplicated request.
func (e *exam) freeRows(ctx context.Context) (string, error) {
	name := e.base + "/free"
	first, err := e.elect(ctx, "first", name)
	if err == nil {
		err = e.table.ReleaseFree(ctx, first, time.Minute, name)
	}
	if err != nil {
		return "", err
	}
	claim, err := e.freeClaim(ctx, name)
	if err != nil {
		return "", err
	}
	switch err := e.table.ClaimFree(ctx, claim); {
	case spanner.ErrCode(err) == codes.FailedPrecondition:
		return "", &finding{Warning, "a timestamp in the past is refused: " + oneLine(err), "locks from package lock are safe, but acquiring one takes twice as many requests",
			"report this output"}
	case err != nil && !isGone(err): // the row may be missing because the claim was applied
		return "", fmt.Errorf("claim: %w", err)
	}
	if err := e.table.ClaimFree(ctx, claim); !isGone(err) {
		return "", broken("claiming with a missing free row should have failed with NOT_FOUND, but got: %v", err)
	}
	switch outcome, err := e.table.Outcome(ctx, claim); {
	case err != nil:
		return "", err
	case outcome != table.Won:
		return "", broken("a claim was applied, but a read of the lock did not find the claim's nonce")
	}
	row, err := e.row(ctx, name)
	if err != nil {
		return "", err
	}
	if table.TokenAt(row.Token) != claim.Token || !row.Token.Before(row.Heartbeat) {
		return "", broken("after a claim, the lock row has heartbeat %v and token %v; want token %v and a later heartbeat", row.Heartbeat, row.Token, claim.Token.Time())
	}
	return "a released lock was claimed in one commit, and a duplicate of that commit was refused", e.table.ReleaseFree(ctx, claim.Token, time.Minute, name)
}

// freeClaim returns a claim for a lock that was released with a free row. Reads can be slightly stale and miss the
// release at first, so freeClaim retries for up to five seconds.
func (e *exam) freeClaim(ctx context.Context, name string) (table.FreeClaim, error) {
	for start := time.Now(); ; e.pause(ctx, 100*time.Millisecond) {
		seen, err := e.table.LookAtLeases(ctx, time.Now(), name)
		if err != nil {
			return table.FreeClaim{}, err
		}
		if claim, ok := table.NewFreeClaim("second", table.LeaseRecord{Lease: time.Minute, Nonce: e.base}, seen...); ok {
			return claim, nil
		}
		if time.Since(start) > 5*time.Second || ctx.Err() != nil {
			return table.FreeClaim{}, &finding{NotChecked, "a release was still not visible to reads after five seconds",
				"locks from package lock are safe, but acquiring one takes twice as many requests", "report this output"}
		}
	}
}

// isGone reports whether err may mean that a row does not exist.
func isGone(err error) bool {
	return errors.Is(err, table.ErrMissing) || errors.Is(err, table.ErrNotFound)
}
