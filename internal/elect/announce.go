package elect

import (
	"context"
	"errors"
	"time"

	"github.com/spindle-lock/spindle/internal/table"
)

// announce marks the term as leaving. Followers that see the mark poll more often, so they notice the release almost
// immediately. After committing the mark, announce waits for a third of the lease plus the announcement's round trip,
// so that every follower that polls on schedule sees the mark.
//
// announce returns early if ctx or the term ends, or if it can't commit the mark within a third of the lease. It also
// returns early if heartbeats are failing and the remaining time is needed to stop the work.
//
// Once announce has been called, the term must end, even if announce fails. A delayed commit might still be applied,
// and would mark a term that is not leaving.
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

// linger waits for d, or until heartbeats are failing and the remaining time is needed to stop the work.
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

// pressed reports whether heartbeats are failing and the remaining time is needed to stop the work.
func (k *Keeper) pressed() bool { return k.inJeopardy() && k.spare() <= 0 }

// spare returns the time until the deadline, minus a sixth of the lease, which is reserved for stopping the work.
func (k *Keeper) spare() time.Duration { return k.Left() - k.lease/6 }

// requested polls for handover requests, about once per lease duration, and returns the first one that the holder
// accepts. It returns "" if ctx ends first.
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
