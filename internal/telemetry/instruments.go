package telemetry

import (
	"context"
	"reflect"
	"sync"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/spindle-lock/spindle/internal/table"
)

// meter contains the instruments of one provider. It exists as long as any lock has a standing with this provider.
type meter struct {
	provider metric.MeterProvider // nil if the provider can't be the key of a map; the meter is then for one Watch

	terms, failures, fenced    metric.Int64Counter
	term, wait, gap, heartbeat metric.Float64Histogram
	queue                      metric.Float64Histogram

	observables
	standings
}

// observables are read at each collection.
type observables struct {
	held    metric.Int64ObservableUpDownCounter // not a gauge, so that a view that drops the lock names gets a sum
	token   metric.Int64ObservableGauge
	margin  metric.Float64ObservableGauge
	reading metric.Registration
}

// meters contains the meters that the candidates of the process share. If each candidate had its own, two candidates
// for one lock would report the lock's gauges twice.
var meters = struct {
	sync.Mutex
	of map[metric.MeterProvider]*meter
}{of: map[metric.MeterProvider]*meter{}}

// enter adds w's candidate to the meter of its provider.
func (w *Watch) enter() {
	meters.Lock()
	defer meters.Unlock()
	key := w.scope.Meters
	if key == nil {
		key = otel.GetMeterProvider()
	}
	if !reflect.ValueOf(key).Comparable() {
		key = nil
	} else {
		w.meter = meters.of[key]
	}
	if w.meter == nil {
		w.meter = newMeter(key, w.scope.Meter())
		if key != nil {
			meters.of[key] = w.meter
		}
	}
	w.meter.update(w, func(one *standing) { one.candidates++ })
}

// change calls f for each lock of the Watch. If the meter then has no standings, change removes the meter's callback
// from the provider. It does not hold the standings' mutex during the removal, because the callback may be waiting for
// that mutex.
func (m *meter) change(w *Watch, f func(*standing)) {
	meters.Lock()
	defer meters.Unlock()
	if left := m.update(w, f); left == 0 {
		Report(m.reading.Unregister())
		delete(meters.of, m.provider)
	}
}

var ofQueues = []float64{0, 1, 2, 4, 8, 16, table.MostTickets - 1}

// These are bounds of histogram buckets, in seconds. OpenTelemetry's default bounds are meant for milliseconds.
var (
	ofRPCs  = []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10}
	ofGaps  = []float64{.01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 15, 30, 60, 300, 3600}
	ofWaits = []float64{.01, .1, 1, 10, 60, 600, 3600, 6 * 3600, 24 * 3600, 7 * 24 * 3600}
)

func newMeter(provider metric.MeterProvider, api metric.Meter) *meter {
	histogram := func(name, what, unit string, bounds []float64) metric.Float64Histogram {
		return Made(api.Float64Histogram(name, metric.WithDescription(what), metric.WithUnit(unit), metric.WithExplicitBucketBoundaries(bounds...)))
	}
	m := &meter{
		provider:  provider,
		standings: standings{of: map[about]*standing{}},
		terms:     Made(api.Int64Counter("spindle.terms", metric.WithDescription("Terms that ended, by reason."))),
		fenced:    fenced(api),
		failures:  Made(api.Int64Counter("spindle.rpc.failures", metric.WithDescription("Requests to Spanner that failed, by step and code."))),
		term:      histogram("spindle.term.duration", "How long the lock was held.", "s", ofWaits),
		wait:      histogram("spindle.wait.duration", "How long the candidate waited for the lock.", "s", ofWaits),
		gap:       histogram("spindle.gap.duration", "Time from the previous holder's last heartbeat or release to the next claim, by Spanner's clock.", "s", ofGaps),
		heartbeat: histogram("spindle.heartbeat.duration", "How long heartbeats took, by outcome.", "s", ofRPCs),
		queue:     histogram("spindle.queue.length", "Number of processes that were already waiting for the lock when this process began to wait; 32 means 32 or more.", "{process}", ofQueues),
	}
	m.held = Made(api.Int64ObservableUpDownCounter("spindle.held",
		metric.WithDescription("1 if this process holds the lock, 0 if it is a candidate; for a semaphore, the number of slots that it holds.")))
	m.token = Made(api.Int64ObservableGauge("spindle.token", metric.WithDescription("The fencing token under which the lock is held.")))
	m.margin = Made(api.Float64ObservableGauge("spindle.lease.margin", metric.WithUnit("s"),
		metric.WithDescription("The shortest time left on the lease since the last collection.")))
	m.reading = Made(api.RegisterCallback(m.read, m.held, m.token, m.margin))
	return m
}

// fenced returns the counter of refused writes.
func fenced(api metric.Meter) metric.Int64Counter {
	return Made(api.Int64Counter("spindle.fenced", metric.WithDescription("Writes that the fence refused.")))
}

// Stalled counts stalled work. The counter is created at the first stall, because stalls are rare.
func (s Scope) Stalled(of ...attribute.KeyValue) {
	count := Made(s.Meter().Int64Counter("spindle.stalls", metric.WithDescription("Work that made no progress for too long.")))
	for _, lock := range s.Locks {
		count.Add(context.Background(), 1, metric.WithAttributeSet(s.Attributes(lock)), metric.WithAttributes(of...))
	}
}

// Report passes an error to OpenTelemetry's error handler. It does not return the error, because locks work without
// metrics.
func Report(err error) {
	if err != nil {
		otel.Handle(err)
	}
}

// Made returns an instrument that OpenTelemetry has made, and reports the error, if any.
func Made[I any](instrument I, err error) I {
	Report(err)
	return instrument
}

// read reports the observed metrics at a collection.
func (m *meter) read(_ context.Context, o metric.Observer) error {
	m.each(func(s *standing) {
		held, token := s.look()
		o.ObserveInt64(m.held, held, s.lock)
		if held > 0 {
			o.ObserveInt64(m.token, int64(token), s.lock)
		}
		if least, noted := s.least(); noted {
			o.ObserveFloat64(m.margin, least.Seconds(), s.lock)
		}
	})
	return nil
}
