package clientgo

import (
	"context"
	"log/slog"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/client-go/tools/leaderelection"

	"github.com/spindle-lock/spindle"
	"github.com/spindle-lock/spindle/spindletest"
)

// Several electors in one process, on Spanner: one leads, another follows a leader that is cut off, and nothing is left
// running.
func TestElectorsOnSpanner(t *testing.T) {
	t.Parallel()
	db := spindletest.New(t)
	far, near := db.Process("far"), db.Process("near")
	var leading atomic.Int32
	leads := make(chan string, 10)
	run := func(id string, p *spindletest.Process) (end func()) {
		lock, err := New(p.Client, p.Table, "mylock", p.Option(), spindle.WithLease(5*time.Second), spindle.WithLogger(slog.New(slog.DiscardHandler)))
		require.NoError(t, err)
		elector, err := leaderelection.NewLeaderElector(lock.Config(leaderelection.LeaderCallbacks{
			OnStartedLeading: func(ctx context.Context) {
				assert.EqualValues(t, 1, leading.Add(1), "lead at once")
				leads <- id
				<-ctx.Done()
				leading.Add(-1)
			},
			OnStoppedLeading: func() {},
		}))
		require.NoError(t, err)
		ctx, cancel := context.WithCancel(context.Background())
		over := make(chan struct{})
		go func() {
			defer close(over)
			for ctx.Err() == nil {
				elector.Run(ctx)
			}
		}()
		return func() {
			cancel()
			<-over
			limit, cancel := context.WithTimeout(context.Background(), 20*time.Second)
			defer cancel()
			assert.NoError(t, lock.Stop(limit))
		}
	}
	endFar := run("far", far)
	require.Equal(t, "far", <-leads)
	endNear := run("near", near)
	far.Cut()
	at := time.Now()
	require.Equal(t, "near", <-leads)
	t.Logf("cut off: another leads after %v", time.Since(at))
	far.Mend()
	at = time.Now()
	endNear()
	t.Logf("given back, and Run and Stop returned, after %v", time.Since(at))
	require.Equal(t, "far", <-leads)
	t.Logf("another leads after %v", time.Since(at))
	endFar()
}
