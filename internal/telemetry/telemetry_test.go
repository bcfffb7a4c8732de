package telemetry

import (
	"context"
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

// Each collection reports the shortest remaining time since the last one, so a bad minute is over once it has been reported.
func TestTheShortestRemainingTimeIsThatSinceTheLastCollection(t *testing.T) {
	var s standing
	for _, c := range []struct {
		noted []time.Duration
		least time.Duration
	}{
		{[]time.Duration{7, 3, 5}, 3}, {[]time.Duration{8}, 8}, {nil, -1}, {[]time.Duration{-2, 9}, 0}, {[]time.Duration{9, 6}, 6}, {nil, -1},
	} {
		for _, left := range c.noted {
			s.note(left)
		}
		least, noted := s.least()
		assert.Equal(t, c.least >= 0, noted)
		if noted {
			assert.Equal(t, c.least, least)
		}
	}
}
