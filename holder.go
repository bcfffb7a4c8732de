package spindle

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spindle-lock/spindle/internal/table"
)

// Reasons why a term ended, in Event.Err of Lost and as the cause of a leader's ctx.
var (
	// ErrSuperseded: the lock was claimed by another, or somebody deleted its row.
	ErrSuperseded = table.ErrSuperseded
	// ErrExpired: no heartbeat was acknowledged for a lease, by the local clock.
	ErrExpired = errors.New("the lease expired: no heartbeat was acknowledged in time")
)

// longestAttempt limits one attempt of whatever step: a server that hangs must not cost a long lease.
const longestAttempt = 10 * time.Second

// term is one time of holding the lock, from the confirmation to the end.
type term struct {
	token    Token
	jeopardy bool // the last heartbeat was not acknowledged
	retry    backoff

	ctx      context.Context // the guarded work's
	end      context.CancelCauseFunc
	deadline *time.Timer   // ends ctx on time, whatever the loop is waiting for
	returned chan struct{} // closed when the guarded work has returned
}

// hold keeps the lock from the confirmation until the term is lost or ctx ends. It returns once the
// guarded work has returned, with an error only where a stop could not be completed.
func (e *elector) hold(ctx context.Context, token table.Token, sent instant) error {
	h := &holding{token: Token(token), sent: sent, limit: e.limit()}
	if ctx.Err() != nil {
		return e.release(ctx, h)
	}
	e.held.Store(h)
	t := e.begin(ctx)
	if reason := e.renew(ctx, t); reason != nil {
		e.finish(t, reason)
		return e.outlive(ctx, t)
	}
	h = e.held.Load()
	e.finish(t, context.Cause(ctx))
	if err := e.await(t.returned, "the leader function"); err != nil {
		return err // and the lock is left to expire
	}
	return e.release(ctx, h)
}

// limit is how long after a heartbeat was sent the holder stops by itself. The hundredth is for the
// rate of its clock: 20 times what ntpd lets a clock run off while it corrects it.
func (e *elector) limit() time.Duration { return e.config.lease - e.config.lease/100 }

func (e *elector) begin(ctx context.Context) *term {
	left := e.left()
	t := &term{token: e.held.Load().token, retry: backoff{max: e.config.lease / 10}, returned: make(chan struct{})}
	t.ctx, t.end = context.WithCancelCause(ctx)
	t.deadline = e.clock.afterFunc(left, func() { t.end(ErrExpired) })
	e.log.Info("elected", "token", t.token)
	e.emit(Event{Kind: Elected, Token: t.token, Deadline: time.Now().Add(left)})
	if e.config.lead == nil {
		close(t.returned)
		return t
	}
	go func() {
		defer close(t.returned)
		e.config.lead(t.ctx, t.token)
	}()
	return t
}

// renew sends heartbeats until the term has to end: with the reason why it was lost, or nil once ctx
// has ended and the guarded work has returned, or has had a lease to do so.
func (e *elector) renew(ctx context.Context, t *term) error {
	next := e.clock.timer(e.untilBeat(e.held.Load().sent))
	defer next.Stop()
	stop := ctx.Done()
	var returned <-chan struct{}
	var giveUp <-chan time.Time
	for {
		select {
		case <-stop:
			stop, returned = nil, t.returned
			bound := e.clock.timer(e.patience())
			defer bound.Stop()
			giveUp = bound.C
		case <-returned:
			return nil
		case <-giveUp:
			return nil
		case <-next.C:
			pause, err := e.beat(t)
			if err != nil {
				return err
			}
			next.Reset(pause)
		}
	}
}

// beat sends one heartbeat and says how long to pause before the next. It fails only where the term
// is over. An attempt is given half of the time that is left, so that there is always a next one.
func (e *elector) beat(t *term) (time.Duration, error) {
	sent := e.clock.now()
	left := e.left()
	if left <= 0 {
		return 0, ErrExpired
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.ctx), min(left, max(left/2, e.config.lease/50), longestAttempt))
	defer cancel()
	err := e.table.Heartbeat(ctx, table.Token(t.token), e.name)
	switch {
	case errors.Is(err, ErrSuperseded):
		return 0, err
	case err != nil:
		e.endanger(t, err)
		return min(t.retry.pause(), max(e.left()/2, time.Millisecond)), nil
	case !e.extend(t, sent):
		return 0, ErrExpired
	}
	return e.untilBeat(sent), nil
}

// untilBeat is the time until the next heartbeat, which is counted from when the last one was sent.
func (e *elector) untilBeat(sent instant) time.Duration {
	return max(e.config.heartbeat-e.clock.now().since(sent), 0)
}

// extend moves the deadline, unless it has passed: a term whose guarded work was told that it is over
// does not come back.
func (e *elector) extend(t *term, sent instant) bool {
	if e.left() <= 0 || !t.deadline.Stop() {
		return false
	}
	e.held.Store(&holding{token: t.token, sent: sent, limit: e.limit()})
	left := e.left()
	t.deadline.Reset(left)
	if t.jeopardy {
		t.jeopardy = false
		t.retry.reset()
		e.log.Info("safe: a heartbeat was acknowledged again", "token", t.token)
		e.emit(Event{Kind: Safe, Token: t.token, Deadline: time.Now().Add(left)})
	}
	return true
}

func (e *elector) endanger(t *term, err error) {
	if t.jeopardy {
		e.log.Debug("heartbeat failed again", "token", t.token, "err", err)
		return
	}
	t.jeopardy = true
	e.log.Warn("jeopardy: a heartbeat failed", "token", t.token, "left", e.left(), "err", err)
	e.emit(Event{Kind: Jeopardy, Token: t.token, Err: e.wrap("heartbeat", err), Deadline: time.Now().Add(e.left())})
}

// left is how long the holding is still good for.
func (e *elector) left() time.Duration {
	h := e.held.Load()
	return h.limit - e.clock.now().since(h.sent)
}

// finish ends the term for everybody who looks at it.
func (e *elector) finish(t *term, reason error) {
	e.held.Store(nil)
	t.deadline.Stop()
	t.end(reason)
	e.log.Info("lost", "token", t.token, "reason", reason)
	e.emit(Event{Kind: Lost, Token: t.token, Err: reason})
}

// outlive waits for the guarded work of a lost term to return: two terms never run side by side.
func (e *elector) outlive(ctx context.Context, t *term) error {
	select {
	case <-t.returned:
		return nil
	case <-ctx.Done():
		return e.await(t.returned, "the leader function")
	}
}

// release frees the lock, trying until it would expire anyway. One that is not held any more needs no
// release.
func (e *elector) release(ctx context.Context, h *holding) error {
	left := h.limit - e.clock.now().since(h.sent)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), max(left, 0))
	defer cancel()
	retry := backoff{max: e.config.lease / 10}
	for {
		err := e.try(ctx, func(ctx context.Context) error {
			return e.table.Release(ctx, table.Token(h.token), e.name)
		})
		if err == nil || errors.Is(err, ErrSuperseded) {
			return nil
		}
		e.sleep(ctx, retry.pause())
		if ctx.Err() != nil {
			return e.wrap("release", fmt.Errorf("%w: the lock is left to expire", err))
		}
	}
}
