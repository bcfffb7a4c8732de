package elect

import (
	"context"
	"errors"
	"time"

	"github.com/spindle-lock/spindle/internal/table"
)

// announce tells the followers that the term is about to end, and returns when those that look as often as they
// should have seen it: a third of the lease and a round trip later. From then on they look so often that the
// release is found at once. It returns before that if ctx ends or the term is over, if the announcement does not
// get through for a third of the lease, and, if heartbeats don't either, while there is time to stop the work.
//
// There is no way back: an announcement that comes late would mark a term that goes on.
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
			return // which the next heartbeat is told too
		}
		Sleep(limited, k.clock, retry.Pause(k.clock))
	}
}

// linger waits, but not into the time that is needed to stop.
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

// pressed reports whether heartbeats fail and the time that is left is needed to stop in.
func (k *Keeper) pressed() bool { return k.inJeopardy() && k.spare() <= 0 }

// spare is the time that is left, less a sixth of the lease.
func (k *Keeper) spare() time.Duration { return k.Left() - k.lease/6 }

// requested waits for a request to hand the lock over that the holder is to accept, for which it looks once a lease.
// It returns "" if ctx ends before.
func (k *Keeper) requested(ctx context.Context) table.Request {
	for {
		Sleep(ctx, k.clock, Jitter(k.clock, k.lease))
		if ctx.Err() != nil {
			return ""
		}
		if by, _ := k.asked(ctx); by != "" { // what fails is asked again
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
