package elect

import (
	"context"
	"errors"
	"time"

	"github.com/spindle-lock/spindle/internal/table"
)

// announce marks the term as leaving, so that the followers look often and find the release almost immediately. After
// the announcement it waits for a third of the lease plus the announcement's round trip. By then, every follower that
// looks as often as it should has seen the mark. It returns earlier if ctx or the term ends, if no announcement
// succeeds within a third of the lease, or if heartbeats fail too and the remaining time is needed to stop the work.
//
// Once announce has been called, the term has to end: even if it fails, a delayed announcement might still commit, and
// it would mark a term that continues.
func (k *Keeper) announce(ctx context.Context) {
	limited, cancel := context.WithTimeout(ctx, k.lease/3)
	defer cancel()
	retry := Backoff{Max: k.lease / 10}
	for limited.Err() == nil && !k.pressed() {
		sent := k.clock.Now()
		attempt, done := context.WithTimeout(limited, longestAttempt)
		err := k.table.Announce(attempt, k.token, k.names...)
		done()
		switch {
		case err == nil:
			k.Notify(TermEvent{What: Marked})
			k.linger(ctx, k.lease/3+k.clock.Now().Since(sent))
			return
		case errors.Is(err, table.ErrSuperseded):
			return // the next heartbeat fails with the same error
		}
		Sleep(limited, k.clock, retry.Pause(k.clock))
	}
}

// linger waits for d, or until heartbeats fail and the remaining time is needed to stop the work.
func (k *Keeper) linger(ctx context.Context, d time.Duration) {
	began := k.clock.Now()
	for ctx.Err() == nil && !k.pressed() {
		left := d - k.clock.Now().Since(began)
		if left <= 0 {
			return
		}
		Sleep(ctx, k.clock, min(left, max(k.spare(), k.lease/50)))
	}
}

// pressed reports whether heartbeats fail and the remaining time is needed to stop the work.
func (k *Keeper) pressed() bool { return k.inJeopardy() && k.spare() <= 0 }

// spare returns the time until the deadline, minus a sixth of the lease that is reserved for stopping the work.
func (k *Keeper) spare() time.Duration { return k.Left() - k.lease/6 }

// requested waits for a handover request that the holder accepts, and returns it. It checks about once per lease, and
// returns "" if ctx ends first.
func (k *Keeper) requested(ctx context.Context) table.Request {
	for {
		Sleep(ctx, k.clock, Jitter(k.clock, k.lease))
		if ctx.Err() != nil {
			return ""
		}
		if by, _ := k.asked(ctx); by != "" { // after an error it tries again
			return by
		}
	}
}

func (k *Keeper) asked(ctx context.Context) (table.Request, error) {
	ctx, cancel := context.WithTimeout(ctx, min(k.lease/3, longestAttempt))
	defer cancel()
	operator, preference, err := k.table.Asked(ctx, k.names[0], k.token)
	switch {
	case err != nil:
		return "", err
	case operator:
		return table.ByOperator, nil
	case preference && k.clock.Now().Since(k.began) >= k.ignoreFor:
		return table.ByPreference, nil
	}
	return "", nil
}
