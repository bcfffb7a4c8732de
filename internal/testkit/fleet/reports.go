package fleet

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/spindle-lock/spindle"
)

// Reports collects the metrics and spans that the locks of a process report through OpenTelemetry.
type Reports struct {
	Meters  *sdkmetric.MeterProvider
	Tracers *sdktrace.TracerProvider

	reader *sdkmetric.ManualReader
	spans  *tracetest.SpanRecorder
}

// NewReports returns Reports whose metrics pass through the given views.
func NewReports(views ...sdkmetric.View) *Reports {
	r := &Reports{reader: sdkmetric.NewManualReader(), spans: tracetest.NewSpanRecorder()}
	r.Meters = sdkmetric.NewMeterProvider(sdkmetric.WithReader(r.reader), sdkmetric.WithView(views...))
	r.Tracers = sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(r.spans))
	return r
}

// Options returns an option that makes a lock report to r.
func (r *Reports) Options() spindle.CommonOption {
	return spindle.Options(spindle.WithMeterProvider(r.Meters), spindle.WithTracerProvider(r.Tracers))
}

// Metrics collects the metrics and returns their values by name and attributes. The keys of the map omit the prefix
// "spindle." and the table attribute, which must be locktable. A histogram has two values, its count and its sum.
func (r *Reports) Metrics(t testing.TB) map[string]float64 {
	t.Helper()
	var all metricdata.ResourceMetrics
	require.NoError(t, r.reader.Collect(context.Background(), &all))
	values := map[string]float64{}
	for _, scope := range all.ScopeMetrics {
		require.Equal(t, "github.com/spindle-lock/spindle", scope.Scope.Name)
		for _, m := range scope.Metrics {
			if strings.HasPrefix(m.Name, "spindle.notifications.") { // of a process, not of a lock
				continue
			}
			add := func(suffix string, of attribute.Set, value float64) {
				tab, _ := of.Value("spindle.table")
				require.Equal(t, "locktable", tab.AsString(), m.Name)
				values[strings.TrimPrefix(m.Name, "spindle.")+suffix+named(of)] = value
			}
			switch data := m.Data.(type) {
			case metricdata.Gauge[int64]:
				each(data.DataPoints, func(p metricdata.DataPoint[int64]) { add("", p.Attributes, float64(p.Value)) })
			case metricdata.Gauge[float64]:
				each(data.DataPoints, func(p metricdata.DataPoint[float64]) { add("", p.Attributes, p.Value) })
			case metricdata.Sum[int64]:
				each(data.DataPoints, func(p metricdata.DataPoint[int64]) { add("", p.Attributes, float64(p.Value)) })
			case metricdata.Histogram[float64]:
				each(data.DataPoints, func(p metricdata.HistogramDataPoint[float64]) {
					add("_count", p.Attributes, float64(p.Count))
					add("_sum", p.Attributes, p.Sum)
				})
			default:
				t.Fatalf("%s is a %T", m.Name, data)
			}
		}
	}
	return values
}

func each[P any](points []P, f func(P)) {
	for _, p := range points {
		f(p)
	}
}

// named formats the attributes without the table, as in {lock=mylock,reason=stopped}.
func named(of attribute.Set) string {
	var pairs []string
	for _, kv := range of.ToSlice() {
		if kv.Key != "spindle.table" {
			pairs = append(pairs, strings.TrimPrefix(string(kv.Key), "spindle.")+"="+kv.Value.String())
		}
	}
	return "{" + strings.Join(pairs, ",") + "}"
}

// Spans returns the ended spans as trees, in the order in which they began. A span is formatted as its name, its
// outcome, an exclamation mark if its status is an error, and its children in brackets.
func (r *Reports) Spans() []string {
	ended := r.Ended()
	var roots []string
	for _, s := range ended {
		if !slices.ContainsFunc(ended, func(p sdktrace.ReadOnlySpan) bool { return p.SpanContext().SpanID() == s.Parent().SpanID() }) {
			roots = append(roots, text(s, ended))
		}
	}
	return roots
}

// Ended returns the spans that have ended, in the order in which they began.
func (r *Reports) Ended() []sdktrace.ReadOnlySpan {
	ended := r.spans.Ended()
	slices.SortStableFunc(ended, func(a, b sdktrace.ReadOnlySpan) int {
		return cmp.Or(a.StartTime().Compare(b.StartTime()), a.EndTime().Compare(b.EndTime()))
	})
	return ended
}

// Forget drops the spans that have ended.
func (r *Reports) Forget() { r.spans.Reset() }

func text(s sdktrace.ReadOnlySpan, all []sdktrace.ReadOnlySpan) string {
	said := strings.TrimPrefix(s.Name(), "spindle.")
	for _, kv := range s.Attributes() {
		if kv.Key == "spindle.outcome" {
			said += " " + kv.Value.AsString()
		}
	}
	if s.Status().Code == codes.Error {
		said += "!"
	}
	var children []string
	for _, c := range all {
		if within(c.Parent(), s.SpanContext()) {
			children = append(children, text(c, all))
		}
	}
	if children != nil {
		said += fmt.Sprint(" ", children)
	}
	return said
}

func within(parent, span trace.SpanContext) bool {
	return parent.SpanID() == span.SpanID() && parent.TraceID() == span.TraceID()
}
