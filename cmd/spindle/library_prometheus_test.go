//go:build unix && prometheus

package main

import (
	"context"
	"errors"
	"net/http/httptest"
	"testing"
	"time"

	"cloud.google.com/go/spanner"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	otelprometheus "go.opentelemetry.io/otel/exporters/prometheus"
	"go.opentelemetry.io/otel/sdk/metric"

	"github.com/spindle-lock/spindle"
	"github.com/spindle-lock/spindle/group"
	"github.com/spindle-lock/spindle/spindletest"
)

// libraryMetrics starts a Go program's locks and returns the address of its /metrics, and the database: a lock that changes hands
// again and again, late writes that are fenced, a lock that can't be had, and a group. They are in another database than the
// demo's, which changes none of their names.
func libraryMetrics(t *testing.T) (address string, db *spindletest.Database) {
	registry := prometheus.NewRegistry()
	exporter, err := otelprometheus.New(otelprometheus.WithRegisterer(registry))
	require.NoError(t, err)
	meters := spindle.WithMeterProvider(metric.NewMeterProvider(metric.WithReader(exporter)))
	server := httptest.NewServer(promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	t.Cleanup(server.Close)

	db = spindletest.New(t)
	run := func(ctx context.Context, r interface {
		Run(context.Context, ...chan<- error) error
	}) (wait func()) {
		done := make(chan error, 1)
		require.NoError(t, r.Run(ctx, done))
		return func() { assert.NoError(t, <-done) }
	}
	ctx, stop := context.WithCancel(context.Background())
	lease := spindle.WithLease(time.Second)
	waits := []func(){
		run(ctx, group.New(db.Client, db.Table, "orders", group.Numbered(8), meters, lease)),
		run(ctx, group.New(db.Client, db.Table, "orders", group.Numbered(8), meters, lease)),
		run(ctx, spindle.New(db.Client, "nosuchtable", "nightly", meters, lease)),
	}
	over := make(chan struct{})
	go func() {
		defer close(over)
		for ctx.Err() == nil {
			turn, end := context.WithTimeout(ctx, 2*time.Second)
			leader := spindle.New(db.Client, db.Table, "nightly", meters, lease)
			wait := run(turn, leader)
			token, err := leader.WaitElected(turn)
			<-turn.Done()
			end()
			if wait(); err != nil {
				continue
			}
			_, err = leader.Apply(context.Background(), token, []*spanner.Mutation{})
			assert.True(t, errors.Is(err, spindle.ErrFenced), "%v", err)
		}
	}()
	t.Cleanup(func() {
		stop()
		<-over
		for _, wait := range waits {
			wait()
		}
	})
	return server.Listener.Addr().String(), db
}
