package telemetry

import (
	"context"
	"errors"
	"slices"
	"time"

	"cloud.google.com/go/spanner"
	"go.opentelemetry.io/otel/metric"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/spindle-lock/spindle/internal/table"
)

// Table returns a table that reports each step to the Watch. The Watch's candidate must use this table.
func (w *Watch) Table(t table.Table) table.Table {
	store := t.Store
	t.Store = table.Via(func(ctx context.Context, step string, send func(context.Context, table.Store) error) error {
		return w.send(ctx, step, func(ctx context.Context) error { return send(ctx, store) })
	})
	return t
}

// call is a call that has finished.
type call struct {
	step         string
	began, ended time.Time
	err          error
	code         codes.Code // OK unless the call failed
}

func (w *Watch) send(ctx context.Context, step string, send func(context.Context) error) error {
	within, span := w.startCall(ctx, step)
	c := call{step: step, began: time.Now()}
	c.err = send(within)
	c.ended = time.Now()
	c.code = failure(ctx, c.err)
	if step == "heartbeat" {
		w.beat(c)
	}
	if c.code != codes.OK {
		of := metric.WithAttributes(keyStep.String(step), keyCode.String(c.code.String()))
		for _, lock := range w.locks {
			w.meter.failures.Add(context.Background(), 1, lock, of)
		}
	}
	w.endCall(ctx, c, span)
	return c.err
}

func (w *Watch) beat(c call) {
	w.record(w.meter.heartbeat, c.ended.Sub(c.began), metric.WithAttributes(keyOutcome.String(c.outcome("acknowledged"))))
	if c.err != nil {
		return
	}
	w.mu.Lock()
	terms := slices.Clone(w.terms)
	w.mu.Unlock()
	for _, t := range terms { // the heartbeat extends only one term, but the time left is correct for the others too
		w.meter.beat(t, t.term.Left())
	}
}

// outcome returns the outcome of a call, which is the argument if the call succeeded.
func (c call) outcome(done string) string {
	switch {
	case c.err == nil:
		return done
	case c.code != codes.OK:
		return "failed"
	case errors.Is(c.err, table.ErrSuperseded), errors.Is(c.err, table.ErrMissing):
		return string(Superseded)
	case errors.Is(c.err, table.ErrChanged), errors.Is(c.err, table.ErrAborted):
		return "overtaken"
	}
	return "canceled" // whatever error the request had when the caller gave up
}

// failure returns the status code of a failed call. It returns OK if another candidate was first or the token was
// superseded, because these answers are part of normal operation. It also returns OK if the caller canceled the call,
// unless the reason was a slow answer.
func failure(ctx context.Context, err error) codes.Code {
	cause := context.Cause(ctx)
	switch {
	case err == nil, errors.Is(ctx.Err(), context.Canceled) && table.FaultOf(cause) != table.Unreachable:
		return codes.OK
	case table.Refused(err): // also if it says that the token was superseded because the whole table is gone
		return spanner.ErrCode(err)
	case errors.Is(err, table.ErrChanged), errors.Is(err, table.ErrAborted), errors.Is(err, table.ErrSuperseded), errors.Is(err, table.ErrMissing):
		return codes.OK
	}
	if code := spanner.ErrCode(err); code != codes.Unknown && code != codes.Canceled || cause == nil {
		return code
	}
	return status.FromContextError(cause).Code()
}
