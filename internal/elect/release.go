package elect

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spindle-lock/spindle/internal/table"
)

// Release ends the term and frees its locks, and also makes the other writes. It retries until ctx ends or the locks would
// expire anyway. It fails with table.ErrSuperseded if the term had already ended.
func (t *Term) Release(ctx context.Context, reason error, also ...table.Write) error {
	on := t.table.And(also...)
	return t.giveBack(ctx, reason, func(ctx context.Context, names ...string) error { return t.free(ctx, on, names...) })
}

// Finish is like Release, for a term with a single lock. The same commit also records due as done by id.
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

// free makes one attempt to free names.
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

// giveBack calls free until it succeeds, ctx ends, or the locks would expire anyway. If free is refused because the
// token is no longer valid, giveBack checks whether an earlier attempt was applied and only its reply was lost. Even a
// single call of free can make several attempts, because the Spanner client resends commits.
func (t *Term) giveBack(ctx context.Context, reason error, free func(context.Context, ...string) error) error {
	last, left := t.standing.Load(), t.Left()
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
			_ = free(ctx, name)
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
// it can't find out before ctx ends.
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
