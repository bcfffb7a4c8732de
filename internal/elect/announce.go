package elect

import (
	"context"
	"errors"
	"time"

	"github.com/spindle-lock/spindle/internal/table"
)

// announce tells the followers that the term is about to end. It returns a third of the lease and a round trip later:
// by then followers that look as often as they should have seen it. From then on they look often enough to find the
// release at once. It returns earlier if ctx ends or the term is over, if the announcement does not get through for a
// third of the lease, and, if heartbeats don't either, while there is time to stop the work.
//
// There is no way back: a late announcement would mark a term that continues.
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
			return // the next heartbeat finds the same
		}
		Sleep(limited, k.clock, retry.Pause(k.clock))
	}
}

// linger waits, but leaves the time needed to stop.
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

// pressed reports whether heartbeats fail and the remaining time is needed to stop.
func (k *Keeper) pressed() bool { return k.inJeopardy() && k.spare() <= 0 }

// spare returns the remaining time, less a sixth of the lease.
func (k *Keeper) spare() time.Duration { return k.Left() - k.lease/6 }

// requested waits for a handover request that the holder accepts. It looks once a lease. It returns "" if ctx ends
// before.
func (k *Keeper) requested(ctx context.Context) table.Request {
	for {
		Sleep(ctx, k.clock, Jitter(k.clock, k.lease))
		if ctx.Err() != nil {
			return ""
		}
		if by, _ := k.asked(ctx); by != "" { // an error is retried
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
