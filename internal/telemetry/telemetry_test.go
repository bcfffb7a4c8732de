package telemetry

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/metric/noop"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"

	"github.com/spindle-lock/spindle/internal/elect"
	"github.com/spindle-lock/spindle/internal/table"
	"github.com/spindle-lock/spindle/internal/testkit/memstore"
)

// life is the life of a candidate, from its start to the end of its term.
func life(t testing.TB, s Scope, store table.Store) {
	w := s.Watch()
	c := elect.Candidate{Table: w.Table(table.Table{Store: store}), Clock: elect.SystemClock{}, Names: s.Locks, ID: "me", LeaseRecord: table.LeaseRecord{Lease: time.Hour, ID: "me"}}
	step := c.Try(context.Background(), elect.All, time.Second)
	w.Tried(step)
	require.NoError(t, step.Err)
	require.NotNil(t, step.Term)
	term := w.Elected(step.Term)
	w.Close()
	require.NoError(t, step.Term.Release(context.Background(), context.Canceled))
	term.Over(Stopped)
}

func inUse() int {
	meters.Lock()
	defer meters.Unlock()
	return len(meters.of)
}

// A process that takes locks for years, each under a name of its own, keeps no data about them.
func TestNothingIsKeptOfWhatIsOver(t *testing.T) {
	provider := sdkmetric.NewMeterProvider(sdkmetric.WithReader(sdkmetric.NewManualReader()))
	s := Scope{Meters: provider, Table: "locktable", Locks: []string{"a", "b"}}
	long := s.Watch()
	for range 3 {
		life(t, s, &memstore.Store{})
		assert.Equal(t, 1, inUse())
		assert.Len(t, long.meter.of, 2)
	}
	long.Close()
	assert.Empty(t, long.meter.of)
	assert.Zero(t, inUse())
}

// uncountable is a provider that can't be the key of a map.
type uncountable struct {
	metric.MeterProvider
	_ []int
}

func TestAProviderThatCanNotBeComparedIsUsed(t *testing.T) {
	life(t, Scope{Meters: uncountable{MeterProvider: noop.NewMeterProvider()}, Table: "locktable", Locks: []string{"a"}}, &memstore.Store{})
	assert.Zero(t, inUse())
}

// refusing is a provider whose meters report an error for each instrument, and return one that can be used.
type refusing struct{ noop.MeterProvider }

func (refusing) Meter(string, ...metric.MeterOption) metric.Meter { return refusingMeter{} }

type refusingMeter struct{ noop.Meter }

var errInstrument = errors.New("no such instrument")

func (m refusingMeter) Int64Counter(string, ...metric.Int64CounterOption) (metric.Int64Counter, error) {
	return noop.Int64Counter{}, errInstrument
}

func (m refusingMeter) Float64Histogram(string, ...metric.Float64HistogramOption) (metric.Float64Histogram, error) {
	return noop.Float64Histogram{}, errInstrument
}

func (m refusingMeter) Int64ObservableGauge(string, ...metric.Int64ObservableGaugeOption) (metric.Int64ObservableGauge, error) {
	return noop.Int64ObservableGauge{}, errInstrument
}

func (m refusingMeter) Float64ObservableGauge(string, ...metric.Float64ObservableGaugeOption) (metric.Float64ObservableGauge, error) {
	return noop.Float64ObservableGauge{}, errInstrument
}

func (m refusingMeter) RegisterCallback(metric.Callback, ...metric.Observable) (metric.Registration, error) {
	return noop.Registration{}, errInstrument
}

// What OpenTelemetry refuses is missing from the metrics, and costs no term.
func TestAProviderThatRefusesInstrumentsCostsNoTerm(t *testing.T) {
	life(t, Scope{Meters: refusing{}, Table: "locktable", Locks: []string{"a"}}, &memstore.Store{})
	assert.Zero(t, inUse())
}

func BenchmarkALife(b *testing.B) {
	for name, provider := range map[string]metric.MeterProvider{"global": nil, "sdk": sdkmetric.NewMeterProvider(sdkmetric.WithReader(sdkmetric.NewManualReader()))} {
		b.Run(name, func(b *testing.B) {
			s := Scope{Meters: provider, Table: "locktable", Locks: []string{"a"}}
			b.ReportAllocs()
			for b.Loop() {
				life(b, s, &memstore.Store{})
			}
		})
	}
	b.Run("none", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			c := elect.Candidate{Table: table.Table{Store: &memstore.Store{}}, Clock: elect.SystemClock{}, Names: []string{"a"}, ID: "me", LeaseRecord: table.LeaseRecord{Lease: time.Hour, ID: "me"}}
			step := c.Try(context.Background(), elect.All, time.Second)
			require.NoError(b, step.Term.Release(context.Background(), context.Canceled))
		}
	})
}
