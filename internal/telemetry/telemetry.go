// Package telemetry reports on locks to OpenTelemetry. It uses OpenTelemetry's API but not its SDK, and costs next to
// nothing unless the program has configured OpenTelemetry.
//
//   - telemetry.go: the reports on candidates and terms
//   - instruments.go: the metrics; standing.go: the metrics that are read at collection
//   - rpc.go: the requests to the table
//   - span.go: elections, handovers, releases, and refused writes
//
// A loop that uses the candidates and terms of internal/elect reports like this:
//
//	w := scope.Watch()
//	defer w.Close()
//	candidate.Table = w.Table(candidate.Table)
//	step := candidate.Try(...)
//	w.Tried(step)
//	term := w.Elected(step.Term)
//	term.Leaving(ctx)                                     // before an announcement
//	term.Over(telemetry.ReasonOf(err, telemetry.Stopped)) // before the release
//	term.Released(err)
//
// A candidate can hold several terms at the same time. Over must be called for each term. Use Scope.Meter to create
// additional metrics.
package telemetry

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"

	"github.com/spindle-lock/spindle/internal/elect"
	"github.com/spindle-lock/spindle/internal/table"
)

const library = "github.com/spindle-lock/spindle"

const (
	keyTable   = attribute.Key("spindle.table")
	keyLock    = attribute.Key("spindle.lock")
	keyLocks   = attribute.Key("spindle.locks") // for spans about several locks
	keyToken   = attribute.Key("spindle.token")
	keyReason  = attribute.Key("spindle.reason")
	keyOutcome = attribute.Key("spindle.outcome")
	keyStep    = attribute.Key("spindle.step")
	keyCode    = attribute.Key("spindle.code")

	Partition = attribute.Key("spindle.partition")
)

// Scope says which locks the reports are about, and where the reports go.
type Scope struct {
	Meters  metric.MeterProvider // nil: the global one
	Tracers trace.TracerProvider // nil: the global one
	Table   string
	Locks   []string // as users know them: a semaphore, not its slots

	// Loop is true for a candidate that keeps competing for the locks, as an elector does. It is false for a single
	// call that acquires them. The spans of a loop begin new traces. For a loop, any time without a holder counts as a
	// gap, even if it began before the loop did.
	Loop bool
}

// Meter returns the meter with which to create instruments.
func (s Scope) Meter() metric.Meter {
	if s.Meters == nil {
		return otel.GetMeterProvider().Meter(library)
	}
	return s.Meters.Meter(library)
}

// Tracer returns the tracer for spans.
func (s Scope) Tracer() trace.Tracer {
	if s.Tracers == nil {
		return otel.GetTracerProvider().Tracer(library)
	}
	return s.Tracers.Tracer(library)
}

// Attributes returns the attributes of one of the locks.
func (s Scope) Attributes(lock string) attribute.Set {
	return attribute.NewSet(keyTable.String(s.Table), keyLock.String(lock))
}

// Reason says why a term ended.
type Reason string

const (
	Stopped     Reason = "stopped"
	SteppedDown Reason = "stepped_down"
	Returned    Reason = "returned" // the leader function returned by itself
	Superseded  Reason = "superseded"
	Expired     Reason = "expired"
	Released    Reason = "released" // by a call to package lock
	Stalled     Reason = "stalled"  // the work made no progress
)

// ReasonOf returns the reason that an error indicates. If the error indicates none, it returns the second argument.
func ReasonOf(err error, otherwise Reason) Reason {
	switch {
	case errors.Is(err, table.ErrSuperseded):
		return Superseded
	case errors.Is(err, elect.ErrExpired):
		return Expired
	case errors.Is(err, elect.ErrStalled):
		return Stalled
	}
	return otherwise
}

// Watch reports on one candidate and the terms that it wins. Tried and Elected must be called from the candidate's
// goroutine.
type Watch struct {
	scope  Scope
	meter  *meter
	tracer trace.Tracer
	locks  []metric.MeasurementOption // the attributes of each lock

	seen   []elect.LockView // the locks as the last attempt saw them
	waited bool             // too few locks or slots were free when the candidate looked

	mu       sync.Mutex
	since    time.Time // when the candidate began to wait
	terms    []*Term   // the terms that have not ended
	looks    []call    // of this attempt
	election trace.Span
	handover trace.Span
}

// Watch begins to report on a candidate. The candidate counts as waiting from now on.
func (s Scope) Watch() *Watch {
	w := &Watch{scope: s, tracer: s.Tracer(), since: time.Now()}
	for _, lock := range s.Locks {
		w.locks = append(w.locks, metric.WithAttributeSet(s.Attributes(lock)))
	}
	w.enter()
	return w
}

// Close ends the watch. The candidate no longer competes, but a term can continue.
func (w *Watch) Close() {
	w.endHandover(notReleased)
	w.meter.change(w, func(one *standing) { one.candidates-- })
}

// Tried reports the outcome of an attempt.
func (w *Watch) Tried(step elect.Step) {
	w.endElection(step)
	w.seen = step.Seen
	free := 0
	for _, s := range step.Seen {
		if s.FreeIn <= 0 {
			free++
		}
	}
	// A semaphore is one lock with many slots.
	w.waited = w.waited || step.Term == nil && len(step.Seen) > 0 && free < len(w.locks)
}

// Queued reports that the candidate has entered the queue for one of its locks, behind the given number of other
// candidates.
func (w *Watch) Queued(lock, before int) {
	w.meter.queue.Record(context.Background(), float64(before), w.locks[min(lock, len(w.locks)-1)])
}

// Term reports on one term.
type Term struct {
	watch *Watch
	term  *elect.Term
	began time.Time
	once  sync.Once
}

// Elected begins to report on a term that the last attempt has won.
func (w *Watch) Elected(t *elect.Term) *Term {
	r := &Term{watch: w, term: t, began: time.Now()}
	w.mu.Lock()
	waited := r.began.Sub(w.since)
	w.terms = append(w.terms, r)
	w.mu.Unlock()
	w.endHandover(notReleased) // the previous term's
	w.meter.change(w, func(one *standing) { one.terms[r] = true })
	w.record(w.meter.wait, waited)
	w.gap(t)
	w.countFromZero()
	return r
}

// countFromZero makes the counters for losses exist before the loss of a term. Prometheus can't tell a counter that
// appears with 1 from one that has not changed. Candidates that never hold the lock do not need these counters.
func (w *Watch) countFromZero() {
	expired, superseded := because(Expired), because(Superseded)
	for _, lock := range w.locks {
		w.meter.terms.Add(context.Background(), 0, lock, expired)
		w.meter.terms.Add(context.Background(), 0, lock, superseded)
		w.meter.fenced.Add(context.Background(), 0, lock)
	}
}

func because(why Reason) metric.AddOption {
	return metric.WithAttributes(keyReason.String(string(why)))
}

// Over reports the end of the term. Only the first call has an effect, and only this call returns true. In a loop, the
// candidate then counts as waiting again.
func (t *Term) Over(why Reason) (first bool) {
	t.once.Do(func() {
		first = true
		w := t.watch
		reason := because(why)
		for _, lock := range w.locks {
			w.meter.terms.Add(context.Background(), 1, lock, reason)
		}
		w.record(w.meter.term, time.Since(t.began))
		if why == Superseded || why == Expired {
			w.endHandover(string(why))
		}
		w.mu.Lock()
		w.terms = slices.DeleteFunc(w.terms, func(other *Term) bool { return other == t })
		if w.scope.Loop {
			w.since = time.Now()
		}
		w.mu.Unlock()
		w.meter.change(w, func(one *standing) {
			if delete(one.terms, t); why == Expired {
				one.note(0)
			}
		})
	})
	return first
}

// gap reports how long each of the term's locks had no holder, by Spanner's clock. A gap begins with the last holder's
// release, or with its last heartbeat if it did not release the lock. A withdrawn claim is not a release. The gap ends
// with the term's claim.
func (w *Watch) gap(t *elect.Term) {
	for i, name := range t.Names() {
		at := slices.IndexFunc(w.seen, func(s elect.LockView) bool { return s.Name == name })
		if at < 0 || w.seen[at].Last.IsZero() || !w.scope.Loop && !w.waited {
			continue // no earlier holder is known, or the call did not have to wait
		}
		lock := w.locks[min(i, len(w.locks)-1)]
		claimed := t.Token().Time()
		if claimed.Before(w.seen[at].At) { // the claimant has chosen the token
			claimed = w.seen[at].At
		}
		w.meter.gap.Record(context.Background(), max(claimed.Sub(w.seen[at].Last), 0).Seconds(), lock)
	}
}

func (w *Watch) record(h metric.Float64Histogram, d time.Duration, more ...metric.RecordOption) {
	for _, lock := range w.locks {
		h.Record(context.Background(), d.Seconds(), append(more, lock)...)
	}
}
