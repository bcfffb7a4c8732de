package telemetry

import (
	"context"
	"time"

	"go.opentelemetry.io/otel/attribute"
	otelcodes "go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"
	"google.golang.org/grpc/codes"

	"github.com/spindle-lock/spindle/internal/elect"
	"github.com/spindle-lock/spindle/internal/table"
)

// start begins a span about the locks. In a loop, the span begins a new trace, unless it is a child of another span of
// the Watch.
func (w *Watch) start(ctx context.Context, within trace.Span, what string, opts ...trace.SpanStartOption) (context.Context, trace.Span) {
	switch {
	case within != nil:
		ctx = trace.ContextWithSpan(ctx, within)
	case w.scope.Loop:
		opts = append(opts, trace.WithNewRoot())
	}
	return w.tracer.Start(ctx, "spindle."+what, append(opts, trace.WithAttributes(w.scope.named()...))...)
}

// named returns the attributes that name the locks in a span.
func (s Scope) named() []attribute.KeyValue {
	if len(s.Locks) == 1 {
		return []attribute.KeyValue{keyTable.String(s.Table), keyLock.String(s.Locks[0])}
	}
	return []attribute.KeyValue{keyTable.String(s.Table), keyLocks.StringSlice(s.Locks)}
}

func ofToken(t table.Token) attribute.KeyValue { return keyToken.Int64(int64(t)) }

// startCall begins the span of a call, or returns no span if the call gets none yet. A poll gets its span later, if it
// fails or leads to an election. A heartbeat outside an election gets a span only if it fails.
func (w *Watch) startCall(ctx context.Context, step string) (context.Context, trace.Span) {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch step {
	case "claim":
		if w.election == nil { // a blind claim can be resent
			w.startElection(ctx)
		}
	case "confirm", "withdraw", "heartbeat", "valid":
		if w.election == nil {
			return ctx, nil
		}
	case "announce", "release", "finish":
		return w.start(ctx, w.handover, step)
	default:
		return ctx, nil
	}
	return w.start(ctx, w.election, step)
}

// startElection begins the span of an election. The span's start time is the beginning of the attempt's first poll. The
// span is created only at the claim, because not every poll leads to an election.
func (w *Watch) startElection(ctx context.Context) {
	var opts []trace.SpanStartOption
	if w.looks != nil {
		opts = append(opts, trace.WithTimestamp(w.looks[0].began))
	}
	_, w.election = w.start(ctx, nil, "election", opts...)
	for _, look := range w.looks {
		w.emit(ctx, w.election, look)
	}
}

// emit makes a span for a finished call.
func (w *Watch) emit(ctx context.Context, within trace.Span, c call) {
	_, span := w.start(ctx, within, c.step, trace.WithTimestamp(c.began))
	end(span, c)
}

// endCall ends the span of a call. A failed call always has a span.
func (w *Watch) endCall(ctx context.Context, c call, span trace.Span) {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case span != nil:
		end(span, c)
	case c.code != codes.OK:
		w.emit(ctx, nil, c)
	case c.step == "observe", c.step == "lease-record":
		w.looks = append(w.looks, c)
	}
}

func end(span trace.Span, c call) {
	if span.SetAttributes(keyOutcome.String(c.outcome("done"))); c.code != codes.OK {
		fail(span, c.err)
	}
	span.End(trace.WithTimestamp(c.ended))
}

func fail(span trace.Span, err error) {
	span.RecordError(err)
	span.SetStatus(otelcodes.Error, err.Error())
}

// endElection ends the span of the election, if the attempt led to one.
func (w *Watch) endElection(step elect.Step) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.looks = nil
	if w.election == nil {
		return
	}
	switch {
	case step.Term != nil:
		w.election.SetAttributes(keyOutcome.String("elected"), ofToken(step.Term.Token()))
	case step.Err != nil:
		w.election.SetAttributes(keyOutcome.String("failed"))
		fail(w.election, step.Err)
	default:
		w.election.SetAttributes(keyOutcome.String("overtaken"))
	}
	w.election.End()
	w.election = nil
}

// Leaving begins the span of a handover, before the announcement.
func (t *Term) Leaving(ctx context.Context) {
	w := t.watch
	w.mu.Lock()
	defer w.mu.Unlock()
	_, w.handover = w.start(ctx, nil, "handover", trace.WithAttributes(ofToken(t.term.Token())))
}

// Released ends the span of a handover. The argument is the result of the release, which can take several calls.
func (t *Term) Released(err error) {
	if err == nil {
		t.watch.endHandover("")
	} else {
		t.watch.endHandover(string(ReasonOf(err, notReleased)))
	}
}

const notReleased = "not released"

// endHandover ends the span of a handover, which succeeded if why is "".
func (w *Watch) endHandover(why string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.handover != nil {
		if why != "" {
			w.handover.SetStatus(otelcodes.Error, why)
		}
		w.handover.End()
		w.handover = nil
	}
}

// Fenced reports that a write under the token was refused. The write began at the given time.
func (s Scope) Fenced(ctx context.Context, token table.Token, began time.Time, err error) {
	count := fenced(s.Meter())
	for _, lock := range s.Locks {
		count.Add(ctx, 1, metric.WithAttributeSet(s.Attributes(lock)))
	}
	_, span := s.Tracer().Start(ctx, "spindle.fence", trace.WithTimestamp(began), trace.WithAttributes(append(s.named(), ofToken(token))...))
	fail(span, err)
	span.End()
}
