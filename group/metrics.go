package group

import (
	"context"
	"sync/atomic"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/spindle-lock/spindle/internal/telemetry"
)

// metrics contains the metrics that a group records in addition to those of its member's lock.
type metrics struct {
	about   metric.MeasurementOption
	moves   metric.Int64Counter
	members atomic.Int64 // the number of members at the last poll
	reading metric.Registration
}

func newMetrics(g *Group, s telemetry.Scope) *metrics {
	m := &metrics{about: metric.WithAttributeSet(s.Attributes(g.name))}
	api := s.Meter()
	// The first two are up-down counters rather than gauges. The values of two members in one process are therefore added
	// up, and a view without the name attribute shows the total.
	partitions := telemetry.Made(api.Int64ObservableUpDownCounter("spindle.group.partitions", metric.WithDescription("Partitions that this process owns.")))
	paused := telemetry.Made(api.Int64ObservableUpDownCounter("spindle.group.paused", metric.WithDescription("Partitions that the program has paused.")))
	members := telemetry.Made(api.Int64ObservableGauge("spindle.group.members", metric.WithDescription("Members that were alive when this process last read the members' rows.")))
	m.moves = telemetry.Made(api.Int64Counter("spindle.group.moves", metric.WithDescription("Partitions that this process has claimed or released.")))
	m.reading = telemetry.Made(api.RegisterCallback(func(_ context.Context, o metric.Observer) error {
		held := int64(0)
		for _, p := range g.partitions {
			if p.acted.Load() != nil {
				held++
			}
		}
		o.ObserveInt64(partitions, held, m.about)
		o.ObserveInt64(paused, g.requested.numberPaused(), m.about)
		o.ObserveInt64(members, m.members.Load(), m.about)
		return nil
	}, partitions, paused, members))
	return m
}

func (m *metrics) moved(n int, direction string) {
	m.moves.Add(context.Background(), int64(n), m.about, metric.WithAttributes(attribute.String("spindle.direction", direction)))
}

func (m *metrics) close() { telemetry.Report(m.reading.Unregister()) }
