package spindle_test

import (
	"strings"

	"cloud.google.com/go/spanner"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/sdk/metric"

	"github.com/spindle-lock/spindle"
)

// withoutNames is a view for programs with thousands of locks, which would otherwise have thousands of series. It drops
// the token and the margin, which belong to a single lock and mean nothing without its name.
func withoutNames(i metric.Instrument) (metric.Stream, bool) {
	switch {
	case !strings.HasPrefix(i.Name, "spindle."):
		return metric.Stream{}, false
	case i.Name == "spindle.token", i.Name == "spindle.lease.margin":
		return metric.Stream{Aggregation: metric.AggregationDrop{}}, true
	}
	return metric.Stream{Name: i.Name, Description: i.Description, Unit: i.Unit, AttributeFilter: attribute.NewDenyKeysFilter("spindle.lock")}, true
}

func ExampleWithMeterProvider() {
	var db *spanner.Client
	var reader metric.Reader // such as Prometheus's exporter

	provider := metric.NewMeterProvider(metric.WithReader(reader), metric.WithView(withoutNames))
	lock := spindle.New(db, "locktable", "mylock", spindle.WithMeterProvider(provider))
	_ = lock
}
