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

// freeRows takes a lock as package lock does: it releases the lock with a free row, and claims it by that row. It sends
// the claim twice, like a duplicate.
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
		return "", &finding{Warning, "a time that has passed is refused: " + oneLine(err), "locks of package lock are safe, and take twice as many requests",
			"report it with this text"}
	case err != nil && !isGone(err): // otherwise it may have been applied all the same
		return "", fmt.Errorf("claim: %w", err)
	}
	if err := e.table.ClaimFree(ctx, claim); !isGone(err) {
		return "", broken("a claim whose free row is gone ended with: %v", err)
	}
	switch outcome, err := e.table.Outcome(ctx, claim); {
	case err != nil:
		return "", err
	case outcome != table.Won:
		return "", broken("a claim that was applied is not known by its nonce")
	}
	row, err := e.row(ctx, name)
	if err != nil {
		return "", err
	}
	if table.TokenAt(row.Token) != claim.Token || !row.Token.Before(row.Heartbeat) {
		return "", broken("a holder's heartbeat, %v, is not later than its token, %v, which was to be %v", row.Heartbeat, row.Token, claim.Token.Time())
	}
	return "a released lock is claimed once, by one commit", e.table.ReleaseFree(ctx, claim.Token, time.Minute, name)
}

// freeClaim returns the claim of a lock that was released with a free row. If reads are of the past, that takes a
// moment.
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
			return table.FreeClaim{}, &finding{NotChecked, "five seconds after a release, no read shows it",
				"locks of package lock are safe, and take twice as many requests", "report it with this text"}
		}
	}
}

// isGone reports whether err may be about a row that does not exist.
func isGone(err error) bool {
	return errors.Is(err, table.ErrMissing) || errors.Is(err, table.ErrNotFound)
}
