package elect

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spindle-lock/spindle/internal/table"
)

// announce marks the term as leaving. Followers that see the mark poll more often, so they notice the release almost
// immediately. After committing the mark, announce waits for a third of the lease plus the announcement's round trip,
// so that every follower that polls at least three times per lease sees the mark.
//
// announce returns early if ctx or the term ends, or if it can't commit the mark within a third of the lease. It also
// returns early if heartbeats are failing and the remaining time is needed to stop the work.
//
// Once announce has been called, the term must end, even if the commit seemed to fail. Otherwise, a delayed commit
// could mark a term that is not leaving.
func (k *Keeper) announce(ctx context.Context) {
	limited, cancel := context.WithTimeout(ctx, k.lease/3)
	defer cancel()
	retry := Backoff{Max: k.lease / 10}
	for limited.Err() == nil && !k.Pressed() {
		sent := k.clock.Now()
		attempt, done := context.WithTimeout(limited, longestAttempt)
		err := k.table.Announce(attempt, k.token, k.names...)
		done()
		switch {
		case err == nil:
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
	for ctx.Err() == nil && !k.Pressed() {
		left := d - k.clock.Now().Since(began)
		if left <= 0 {
			return
		}
		Sleep(ctx, k.clock, min(left, max(k.Spare(), k.lease/50)))
	}
}

// Pressed reports whether heartbeats are failing and the remaining time is needed to stop the work.
func (k *Keeper) Pressed() bool { return k.inJeopardy() && k.Spare() <= 0 }

// Spare returns the time until the deadline, minus a sixth of the lease, which is reserved for stopping the work.
func (k *Keeper) Spare() time.Duration { return k.lasts() - k.lease/6 }

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

// Release ends the term, frees its locks, and makes the given writes in the same commit. It retries until ctx ends or
// the locks would expire anyway. It fails with table.ErrSuperseded if the term's token was no longer valid.
func (t *Term) Release(ctx context.Context, reason error, also ...table.Write) error {
	on := t.table.And(also...)
	return t.giveBack(ctx, reason, func(ctx context.Context, names ...string) error { return t.free(ctx, on, names...) })
}

// Finish is like Release, for a term with a single lock. The same commit also records that the process with this id has
// done the work that was due.
func (t *Term) Finish(ctx context.Context, reason error, due table.Due, id string, also ...table.Write) error {
	on := t.table.And(also...)
	return t.giveBack(ctx, reason, func(ctx context.Context, _ ...string) error {
		var lease time.Duration
		if t.freeRows {
			lease = t.lease
		}
		return on.Finish(ctx, t.token, lease, t.names[0], due, id)
	})
}

// free makes one attempt to free the given locks.
func (t *Term) free(ctx context.Context, on table.Table, names ...string) error {
	if t.freeRows {
		return on.ReleaseFree(ctx, t.token, t.lease, names...)
	}
	return on.Release(ctx, t.token, names...)
}

// Recorded reports whether key is known to have been recorded as done under the term.
func (t *Term) Recorded(ctx context.Context, key string) bool {
	ctx, cancel := context.WithTimeout(ctx, Attempt(t.lease))
	defer cancel()
	last, _, err := t.table.Done(ctx, table.Strong, t.names[0])
	return err == nil && last.Token == t.token && last.Key == key
}

// giveBack repeats the step that frees the locks until it succeeds, ctx ends, or the locks would expire anyway. If the
// step fails because the token is no longer valid, giveBack checks whether an earlier attempt was applied and only its
// reply was lost. The Spanner client may resend the commit even within a single call.
func (t *Term) giveBack(ctx context.Context, reason error, free func(context.Context, ...string) error) error {
	last, left := t.standing.Load(), t.lasts()
	t.End(reason)
	ctx, cancel := context.WithTimeout(ctx, max(left, 0))
	defer cancel()
	err := Insist(ctx, t.clock, t.lease, func(ctx context.Context) error { return free(ctx, t.names...) })
	switch {
	case err == nil:
		return nil
	case !errors.Is(err, table.ErrSuperseded):
		return fmt.Errorf("release: %w; the lock is left to expire", err)
	case t.left(last, t.clock.Now()) > 0 && t.released(ctx):
		return nil
	}
	if len(t.names) > 1 { // some of the term's locks may still be held under the token; what can't be released expires
		for _, name := range t.names {
			_ = Insist(ctx, t.clock, t.lease, func(ctx context.Context) error { return free(ctx, name) })
		}
	}
	return err
}

// Insist retries a step until it succeeds, ctx ends, the token is no longer valid, or the client is closed.
func Insist(ctx context.Context, clock Clock, lease time.Duration, free func(context.Context) error) error {
	for retry := (Backoff{Max: lease / 10}); ; {
		attempt, cancel := context.WithTimeout(ctx, min(lease/3, longestAttempt))
		err := free(attempt)
		cancel()
		if err == nil || errors.Is(err, table.ErrSuperseded) || table.FaultOf(err) == table.NoClient {
			return err
		}
		Sleep(ctx, clock, retry.Pause(clock))
		if ctx.Err() != nil {
			return err
		}
	}
}

// released reports whether the locks of this term, which has ended, were released under its token. It returns false if
// it can't find out.
func (t *Term) released(ctx context.Context) (yes bool) {
	_ = Insist(ctx, t.clock, t.lease, func(ctx context.Context) (err error) {
		yes, err = t.table.GivenBack(ctx, t.token, t.reclaims, t.names...)
		if hopeless(err) { // for example, the table was deleted
			return nil
		}
		return err
	})
	return yes
}
