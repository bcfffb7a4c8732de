package telemetry

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/spindle-lock/spindle/internal/elect"
	"github.com/spindle-lock/spindle/internal/table"
	"github.com/spindle-lock/spindle/internal/testkit/memstore"
)

// Whoever competes, holds slots and gives them up, in whatever order, the gauges say how many slots this process holds, under which
// token, and that it competes if it holds none. They end with the last candidate and term. Several goroutines share them, so the end
// of one must not take away what another holds.
func TestTheGaugesAreTheSumOfAllCandidatesAndTerms(t *testing.T) {
	ctx, reader := context.Background(), sdkmetric.NewManualReader()
	s := Scope{Meters: sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader)), Table: "locktable", Locks: []string{"permits"}}
	type holding struct {
		*Term
		of *elect.Term
	}
	var watches []*Watch
	var terms []holding
	store := table.Table{Store: &memstore.Store{}}
	r := rand.New(rand.NewPCG(1, 1))
	for step := range 400 {
		switch {
		case r.IntN(3) == 0:
			watches = append(watches, s.Watch())
		case r.IntN(2) == 0 && len(watches) > 0:
			c := elect.Candidate{Table: store, Clock: elect.SystemClock{}, Names: []string{fmt.Sprint("slot ", step)}, ID: "me", LeaseRecord: table.LeaseRecord{Lease: time.Hour, ID: "me"}}
			won := c.Try(ctx, elect.All, time.Second).Term
			require.NotNil(t, won)
			terms = append(terms, holding{watches[r.IntN(len(watches))].Elected(won), won})
		case r.IntN(2) == 0 && len(watches) > 0:
			i := r.IntN(len(watches))
			watches[i].Close()
			watches = slices.Delete(watches, i, i+1)
		case len(terms) > 0:
			i := r.IntN(len(terms))
			terms[i].of.End(context.Canceled)
			require.True(t, terms[i].Over(Released))
			require.False(t, terms[i].Over(Released))
			terms = slices.Delete(terms, i, i+1)
		}
		want := map[string]int64{}
		if len(watches)+len(terms) > 0 {
			want["spindle.held"] = int64(len(terms))
		}
		for _, h := range terms {
			want["spindle.token"] = max(want["spindle.token"], int64(h.of.Token()))
		}
		var all metricdata.ResourceMetrics
		require.NoError(t, reader.Collect(ctx, &all))
		got := map[string]int64{}
		for _, scope := range all.ScopeMetrics {
			for _, m := range scope.Metrics {
				var points []metricdata.DataPoint[int64]
				switch data := m.Data.(type) {
				case metricdata.Gauge[int64]:
					points = data.DataPoints
				case metricdata.Sum[int64]:
					points = data.DataPoints
				}
				if m.Name == "spindle.held" || m.Name == "spindle.token" {
					for _, p := range points {
						got[m.Name] += p.Value
					}
				}
			}
		}
		require.Equal(t, want, got, "step %d", step)
	}
	for _, w := range watches {
		w.Close()
	}
	for _, h := range terms {
		h.of.End(context.Canceled)
		h.Over(Released)
	}
	require.Zero(t, inUse())
}
