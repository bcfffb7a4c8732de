package telemetry

import (
	"context"
	"time"

	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"

	"github.com/spindle-lock/spindle/internal/table"
)

// Fenced reports that a write under token, which began at that time, was refused.
func (s Scope) Fenced(ctx context.Context, token table.Token, began time.Time, err error) {
	count := fenced(s.Meter())
	for _, lock := range s.Locks {
		count.Add(ctx, 1, metric.WithAttributeSet(s.Attributes(lock)))
	}
	_, span := s.Tracer().Start(ctx, "spindle.fence", trace.WithTimestamp(began), trace.WithAttributes(append(s.named(), ofToken(token))...))
	fail(span, err)
	span.End()
}
