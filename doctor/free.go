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

// freeRows acquires a lock the way package lock does. It releases the lock with a free row, and then claims it by that
// row. It sends the claim twice, to imitate a duplicated request.
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
		return "", &finding{Warning, "a timestamp in the past is refused: " + oneLine(err), "locks from package lock are safe, but take twice as many requests",
			"report this text"}
	case err != nil && !isGone(err): // the row may be missing because the claim was applied
		return "", fmt.Errorf("claim: %w", err)
	}
	if err := e.table.ClaimFree(ctx, claim); !isGone(err) {
		return "", broken("a claim whose free row is missing returned: %v", err)
	}
	switch outcome, err := e.table.Outcome(ctx, claim); {
	case err != nil:
		return "", err
	case outcome != table.Won:
		return "", broken("a claim that was applied can't be found by its nonce")
	}
	row, err := e.row(ctx, name)
	if err != nil {
		return "", err
	}
	if table.TokenAt(row.Token) != claim.Token || !row.Token.Before(row.Heartbeat) {
		return "", broken("a holder's heartbeat, %v, is not later than its token, %v, which should be %v", row.Heartbeat, row.Token, claim.Token.Time())
	}
	return "a released lock is claimed exactly once, in one commit", e.table.ReleaseFree(ctx, claim.Token, time.Minute, name)
}

// freeClaim returns the claim of a lock that was released with a free row. It tries for a few seconds, because a
// slightly stale read does not show the release.
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
			return table.FreeClaim{}, &finding{NotChecked, "no read shows a release within five seconds",
				"locks from package lock are safe, but take twice as many requests", "report this text"}
		}
	}
}

// isGone reports whether err may mean that a row does not exist.
func isGone(err error) bool {
	return errors.Is(err, table.ErrMissing) || errors.Is(err, table.ErrNotFound)
}
