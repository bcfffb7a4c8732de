package elect

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strconv"

	"google.golang.org/grpc/codes"

	"cloud.google.com/go/spanner"

	"github.com/spindle-lock/spindle/internal/table"
)

// errLate says that a claim was acknowledged only after its term would have ended.
var errLate = errors.New("the acknowledgement arrived after the term's deadline")

// freeClaim returns a claim that uses free rows. It reports false if the candidate does not use free rows or a lock has
// none.
func (c claimant) freeClaim(seen []table.Observation) (table.FreeClaim, bool) {
	if !c.FreeRows {
		return table.FreeClaim{}, false
	}
	p := c.LeaseRecord
	p.Nonce = strconv.FormatInt(int64(c.Clock.Random(math.MaxInt64)), 36)
	return table.NewFreeClaim(c.ID, p, seen...)
}

// claimFree claims the locks in one blind commit. It resends the commit until it knows the outcome, ctx ends, or the
// term would be over. It returns the time from which the term's deadline is measured. If a heartbeat has shown that the
// claim won, this is the time before that heartbeat. Otherwise, it is the time before the first attempt, because any of
// the attempts may have been applied.
//
// Another claimant may have chosen the same token. This claimant therefore does nothing under the token until an
// attempt has been acknowledged, or until it has read its own nonce in the lease row.
func (c claimant) claimFree(ctx context.Context, claim table.FreeClaim) (Instant, error) {
	running := context.WithoutCancel(ctx)
	sent := c.Clock.Now()
	late := func() bool { return c.Clock.Now().Since(sent) >= Limit(c.LeaseRecord.Lease) }
	retry := Backoff{Max: c.LeaseRecord.Lease / 10}
	for unknown := false; ; unknown = true {
		err := c.try(running, func(ctx context.Context) error { return c.on.ClaimFree(ctx, claim) })
		if err == nil && !late() {
			return sent, nil
		}
		if table.Refused(err) {
			if unknown { // an earlier attempt may have been applied
				c.giveUp(running, claim)
			}
			return sent, fmt.Errorf("claim: %w", err)
		}
		if err == nil {
			err = errLate
		} else {
			won, beat, answer := c.resolve(running, claim)
			switch {
			case won:
				return beat, nil
			case First(answer):
				return sent, fmt.Errorf("claim: %w: %w", table.ErrChanged, err)
			case hopeless(answer):
				return sent, fmt.Errorf("claim: the outcome is unknown: %w", answer)
			case answer != nil:
				err = answer // err may only mean that an earlier attempt was applied and its reply was lost
			}
		}
		if !late() {
			Sleep(ctx, c.Clock, retry.Pause(c.Clock))
		}
		if ctx.Err() != nil || late() {
			c.giveUp(running, claim)
			return sent, fmt.Errorf("claim: the outcome is unknown: %w", err)
		}
	}
}

// resolve finds out whether a claim has won. If so, resolve sends a heartbeat. It reports true, and the time just
// before the heartbeat, only if the heartbeat succeeds. If the claim has lost, First(err) is true. In all other cases,
// the claim may have won or might still win.
func (c claimant) resolve(ctx context.Context, claim table.FreeClaim) (won bool, beat Instant, err error) {
	switch outcome, err := c.outcome(ctx, claim); {
	case err != nil || outcome == table.Open:
		return false, beat, err
	case outcome == table.Lost:
		return false, beat, table.ErrChanged
	}
	beat = c.Clock.Now()
	err = c.try(ctx, func(ctx context.Context) error { return c.Table.Heartbeat(ctx, claim.Token, claim.Names()...) })
	return err == nil, beat, err
}

func (c claimant) outcome(ctx context.Context, claim table.FreeClaim) (outcome table.Outcome, err error) {
	err = c.try(ctx, func(ctx context.Context) error {
		outcome, err = c.Table.Outcome(ctx, claim)
		return err
	})
	return outcome, err
}

// giveUp retracts a claim, so that it can no longer be applied, or releases the locks if it was applied already. If
// neither succeeds in time, any locks that the claim wins are left to expire.
func (c claimant) giveUp(ctx context.Context, claim table.FreeClaim) {
	c.insist(ctx, func(ctx context.Context) error {
		retracted := c.Table.Retract(ctx, claim)
		if !errors.Is(retracted, table.ErrChanged) {
			return retracted
		}
		switch outcome, err := c.Table.Outcome(ctx, claim); {
		case err != nil:
			return err
		case outcome == table.Won:
			return c.Table.ReleaseFree(ctx, claim.Token, c.LeaseRecord.Lease, claim.Names()...)
		case outcome == table.Open:
			return retracted
		}
		return nil
	})
}

// hopeless reports whether it is pointless to repeat a step, because the request is wrong, or the table or database is
// gone.
func hopeless(err error) bool {
	fault := table.FaultOf(err)
	return fault.Kind == table.Lasting || fault == table.NoTable || fault == table.NoDatabase
}

// refusedTime reports whether err could mean that Spanner rejected the claim's token, which is a timestamp that the
// claimant chose. After such a rejection, nothing was applied.
func refusedTime(err error) bool { return spanner.ErrCode(err) == codes.FailedPrecondition }
