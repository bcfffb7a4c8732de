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
var errLate = errors.New("it was acknowledged only after the term's deadline")

// freeClaim returns a claim by free rows. It reports false if the candidate does not use free rows or a lock has none.
func (c *Candidate) freeClaim(seen []table.Observation) (table.FreeClaim, bool) {
	if !c.FreeRows {
		return table.FreeClaim{}, false
	}
	p := c.LeaseRecord
	p.Nonce = strconv.FormatInt(int64(c.Clock.Random(math.MaxInt64)), 36)
	return table.NewFreeClaim(c.ID, p, seen...)
}

// claimFree sends the same blind commit until its outcome is known. It returns the instant from which the term's
// deadline counts. This is the instant before the first attempt, because any attempt may be the one that was applied.
// The claimant does nothing under the token until an attempt has been acknowledged or the claimant has read its own
// nonce in the lease row, because another claimant may have chosen the same token.
func (c *Candidate) claimFree(ctx context.Context, claim table.FreeClaim) (Instant, error) {
	running := context.WithoutCancel(ctx)
	sent := c.Clock.Now()
	late := func() bool { return c.Clock.Now().Since(sent) >= Limit(c.LeaseRecord.Lease) }
	retry := Backoff{First: c.LeaseRecord.Lease / 200, Max: c.LeaseRecord.Lease / 10}
	for {
		err := c.try(running, func(ctx context.Context) error { return c.Table.ClaimFree(ctx, claim) })
		if err == nil && !late() {
			return sent, nil
		}
		if Lasting(err) && !errors.Is(err, table.ErrMissing) { // a free row is missing if another claim was first
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
			case Lasting(answer):
				return sent, fmt.Errorf("claim: the outcome is unknown: %w", answer)
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

// resolve finds out whether a claim has won. If it has, beat is the instant at which the confirming heartbeat was sent.
// If First reports true for the error, the claim is lost. With any other error, or with none, the claim is still open
// or its outcome is unknown.
func (c *Candidate) resolve(ctx context.Context, claim table.FreeClaim) (won bool, beat Instant, err error) {
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

func (c *Candidate) outcome(ctx context.Context, claim table.FreeClaim) (outcome table.Outcome, err error) {
	err = c.try(ctx, func(ctx context.Context) error {
		outcome, err = c.Table.Outcome(ctx, claim)
		return err
	})
	return outcome, err
}

// giveUp makes sure that a claim can no longer be applied, or releases the locks if it already was.
func (c *Candidate) giveUp(ctx context.Context, claim table.FreeClaim) {
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

// refusedTime reports whether err can mean that Spanner refused the time that a claim has chosen as its token. In that
// case nothing was applied.
func refusedTime(err error) bool { return spanner.ErrCode(err) == codes.FailedPrecondition }
