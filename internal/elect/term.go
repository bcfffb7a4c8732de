package elect

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/spindle-lock/spindle/internal/table"
)

// ErrExpired says that a term ended by itself, by the local clock.
var ErrExpired = errors.New("the lease expired: no heartbeat was acknowledged in time")

// Term is one time of holding locks, from the confirmation to the end. Renew, Beat, End and Release are for the
// goroutine that keeps it; the other methods are for any.
type Term struct {
	// Jeopardy and Safe, if set before Renew, are called when a heartbeat fails after one that did not,
	// and when one is acknowledged again.
	Jeopardy func(error)
	Safe     func()

	table table.Table
	clock Clock
	token table.Token
	names []string
	lease time.Duration

	acknowledged atomic.Pointer[Instant] // before the last acknowledged heartbeat was sent; nil: over
	ctx          context.Context
	end          context.CancelCauseFunc
	deadline     *time.Timer // ends ctx on time, whatever the keeper is waiting for

	began     Instant
	last      atomic.Int64  // how long after that the last acknowledged heartbeat was sent
	ignoreFor time.Duration // how long it ignores preferences

	freeRows bool   // it leaves free rows
	reclaims string // the id that may claim the locks back at once; "": none may

	jeopardy atomic.Bool // the last heartbeat was not acknowledged
	retry    Backoff
}

func newTerm(ctx context.Context, c *Candidate, token table.Token, sent Instant, names []string, ignoreFor time.Duration) *Term {
	t := &Term{table: c.Table, clock: c.Clock, token: token, names: names, lease: c.LeaseRecord.Lease, began: sent, ignoreFor: ignoreFor, freeRows: c.FreeRows}
	t.retry.Max = t.lease / 10
	if c.Reclaim {
		t.reclaims = c.ID
	}
	t.acknowledged.Store(&sent)
	t.ctx, t.end = context.WithCancelCause(ctx)
	t.deadline = c.Clock.AfterFunc(t.Left(), func() { t.end(ErrExpired) })
	return t
}

// Token is the term's fencing token.
func (t *Term) Token() table.Token { return t.token }

// Names are those of the locks that it holds.
func (t *Term) Names() []string { return t.names }

// Context ends when the term does, or the work is told to stop. Its cause is the reason.
func (t *Term) Context() context.Context { return t.ctx }

// Held reports whether the term's deadline has not passed, and nothing else has ended it.
func (t *Term) Held() bool {
	sent := t.acknowledged.Load()
	return sent != nil && t.clock.Now().Since(*sent) < t.limit()
}

// Age is the time since the last acknowledged heartbeat was sent.
func (t *Term) Age() time.Duration { return t.limit() - t.Left() }

// Silence is how long the machine has run since the last acknowledged heartbeat was sent, or 0 once the term is over.
func (t *Term) Silence() time.Duration {
	sent := t.acknowledged.Load()
	if sent == nil {
		return 0
	}
	return t.clock.Now().Ran(*sent)
}

// kept is how long heartbeats have been acknowledged, whether the term is over or not.
func (t *Term) kept() time.Duration { return time.Duration(t.last.Load()) }

// Left is the time until the deadline. It is negative once the term is over.
func (t *Term) Left() time.Duration {
	sent := t.acknowledged.Load()
	if sent == nil {
		return -1
	}
	return t.limit() - t.clock.Now().Since(*sent)
}

func (t *Term) limit() time.Duration { return Limit(t.lease) }

// Limit is how long after the request was sent that Spanner acknowledged last a holder stops by itself. The hundredth
// is for the rate of its clock: 20 times what ntpd lets a clock run off while it corrects it.
func Limit(lease time.Duration) time.Duration { return lease - lease/100 }

// Renew sends a heartbeat each interval until the term is lost, and returns why, or until stop is
// closed, and returns nil: the term still stands then.
func (t *Term) Renew(interval time.Duration, stop <-chan struct{}) error {
	next := t.clock.Timer(t.untilBeat(interval))
	defer next.Stop()
	for {
		select {
		case <-stop:
			if t.Left() <= 0 {
				return ErrExpired
			}
			return nil
		case <-next.C:
			pause, err := t.Beat(interval)
			if err != nil {
				return err
			}
			next.Reset(pause)
		}
	}
}

// Beat sends one heartbeat and says how long to pause before the next, for those that have to do something
// between two; Renew is for the others. It fails only if the term is over. An attempt is given half of the
// time that is left, so that there is a next one.
func (t *Term) Beat(interval time.Duration) (time.Duration, error) {
	sent := t.clock.Now()
	left := t.Left()
	if left <= 0 {
		return 0, ErrExpired
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.ctx), min(left, max(left/2, t.lease/50), longestAttempt))
	defer cancel()
	err := t.table.Heartbeat(ctx, t.token, t.names...)
	switch {
	case errors.Is(err, table.ErrSuperseded):
		return 0, err
	case err != nil:
		t.endanger(err)
		return min(t.retry.Pause(t.clock), max(t.Left()/2, time.Millisecond)), nil
	case !t.extend(sent):
		return 0, ErrExpired
	}
	return t.untilBeat(interval), nil
}

// untilBeat is the time until the next heartbeat, which is counted from when the last one was sent. It is a
// twentieth more or less at random, since locks that were elected together would go on to beat together.
func (t *Term) untilBeat(interval time.Duration) time.Duration {
	interval += t.clock.Random(interval/10+1) - interval/20
	return max(min(interval, t.lease-t.lease/10)-t.clock.Now().Since(*t.acknowledged.Load()), 0)
}

// extend moves the deadline, unless it has passed: a term whose guarded work was told that it is over
// does not come back.
func (t *Term) extend(sent Instant) bool {
	if t.Left() <= 0 || !t.deadline.Stop() {
		return false
	}
	t.acknowledged.Store(&sent)
	t.last.Store(int64(sent.Since(t.began)))
	t.deadline.Reset(t.Left())
	if t.jeopardy.Swap(false) {
		t.retry.Reset()
		if t.Safe != nil {
			t.Safe()
		}
	}
	return true
}

func (t *Term) endanger(err error) {
	if !t.jeopardy.Swap(true) && t.Jeopardy != nil {
		t.Jeopardy(fmt.Errorf("heartbeat: %w", err))
	}
}

// End ends the term for everybody who looks at it. The locks stay as they are in the table.
func (t *Term) End(reason error) {
	t.acknowledged.Store(nil)
	t.deadline.Stop()
	t.end(reason)
}

// Release ends the term and frees its locks, trying until ctx ends or they would expire anyway. It fails
// with table.ErrSuperseded if the term was over before.
func (t *Term) Release(ctx context.Context, reason error) error {
	return t.giveBack(ctx, reason, func(ctx context.Context) error { return t.free(ctx, t.names...) })
}

// Finish is Release of a term's only lock, in the commit that records due as done under it, by id.
func (t *Term) Finish(ctx context.Context, reason error, due table.Due, id string) error {
	return t.giveBack(ctx, reason, func(ctx context.Context) error {
		if t.freeRows {
			return t.table.FinishFree(ctx, t.token, t.lease, t.names[0], due, id)
		}
		return t.table.Finish(ctx, t.token, t.names[0], due, id)
	})
}

// free is one attempt to free names.
func (t *Term) free(ctx context.Context, names ...string) error {
	if t.freeRows {
		return t.table.ReleaseFree(ctx, t.token, t.lease, names...)
	}
	return t.table.Release(ctx, t.token, names...)
}

// Recorded reports whether key is known to have been recorded as done under the term.
func (t *Term) Recorded(ctx context.Context, key string) bool {
	ctx, cancel := context.WithTimeout(ctx, Attempt(t.lease))
	defer cancel()
	last, _, err := t.table.Done(ctx, table.Strong, t.names[0])
	return err == nil && last.Token == t.token && last.Key == key
}

// giveBack tries until ctx ends or the locks would expire anyway. If it is refused, as the token is not valid any more, an
// earlier attempt may have been applied whose reply was lost: below this one, as the client sends such a commit again by
// itself.
func (t *Term) giveBack(ctx context.Context, reason error, free func(context.Context) error) error {
	last, left := t.acknowledged.Load(), t.Left()
	t.End(reason)
	ctx, cancel := context.WithTimeout(ctx, max(left, 0))
	defer cancel()
	err := Insist(ctx, t.clock, t.lease, free)
	switch {
	case err == nil:
		return nil
	case !errors.Is(err, table.ErrSuperseded):
		return fmt.Errorf("release: %w: left to expire", err)
	case last != nil && t.clock.Now().Since(*last) < t.limit() && t.released(ctx):
		return nil
	}
	t.releaseRest(ctx)
	return err
}

// Insist makes attempts at a step until one succeeds, ctx ends, or the token is not valid any more.
func Insist(ctx context.Context, clock Clock, lease time.Duration, free func(context.Context) error) error {
	for retry := (Backoff{Max: lease / 10}); ; {
		attempt, cancel := context.WithTimeout(ctx, min(lease/3, longestAttempt))
		err := free(attempt)
		cancel()
		if err == nil || errors.Is(err, table.ErrSuperseded) {
			return err
		}
		Sleep(ctx, clock, retry.Pause(clock))
		if ctx.Err() != nil {
			return err
		}
	}
}

// released reports whether the locks were given back by this term, which is over, and its lease was not when that was found.
func (t *Term) released(ctx context.Context) (yes bool) {
	_ = Insist(ctx, t.clock, t.lease, func(ctx context.Context) (err error) {
		yes, err = t.table.GivenBack(ctx, t.token, t.reclaims, t.names...)
		if Lasting(err) { // there is no table any more, say
			return nil
		}
		return err
	})
	return yes
}

// releaseRest frees those of several locks that are still held under the token. What fails expires.
func (t *Term) releaseRest(ctx context.Context) {
	if len(t.names) == 1 {
		return
	}
	for _, name := range t.names {
		_ = t.free(ctx, name)
	}
}
