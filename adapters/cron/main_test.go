package spindlecron_test

import (
	"context"
	"flag"
	"log/slog"
	"testing"
	"time"

	"cloud.google.com/go/spanner"
	"github.com/robfig/cron/v3"
	"github.com/stretchr/testify/require"

	"github.com/spindle-lock/spindle"
	"github.com/spindle-lock/spindle/adapters/cron"
	"github.com/spindle-lock/spindle/internal/testkit/testcheck"
	"github.com/spindle-lock/spindle/lock"
	"github.com/spindle-lock/spindle/spindletest"
)

func TestMain(m *testing.M) {
	_ = flag.Set("test.parallel", "8") // the tests wait more than they work
	testcheck.Main(m)
}

const lease = 5 * time.Second

var quick = spindle.Options(spindle.WithLease(lease), spindle.WithLogger(slog.New(slog.DiscardHandler)))

// machine is a Cron with a client of its own, and what it logs.
type machine struct {
	*cron.Cron
	once *lock.Once
	ctx  context.Context
	stop func() // ends ctx, and returns once all jobs are over
	info chan string
	err  chan error
}

func newMachine(t *testing.T, db *spindletest.Database) *machine {
	client, err := spanner.NewClientWithConfig(context.Background(), db.Path, spanner.ClientConfig{DisableNativeMetrics: true}, db.ClientOptions()...)
	require.NoError(t, err)
	t.Cleanup(client.Close)
	m := &machine{Cron: cron.New(cron.WithSeconds(), cron.WithLogger(cron.DiscardLogger)), once: lock.NewOnce(client, db.Table, "job", quick),
		info: make(chan string, 100), err: make(chan error, 100)}
	ctx, cancel := context.WithCancel(context.Background())
	m.ctx = ctx
	m.stop = func() { cancel(); <-m.Stop().Done() }
	t.Cleanup(m.stop)
	return m
}

// machine is a cron.Logger.
func (m *machine) Info(msg string, _ ...any)           { m.info <- msg }
func (m *machine) Error(err error, _ string, _ ...any) { m.err <- err }

func (m *machine) job(key lock.Key, work func(context.Context, lock.Run) error) cron.Job {
	return spindlecron.Job(m.ctx, m, m.once, key, work)
}

// soonest is a schedule of one time: as soon as the Cron asks.
type soonest struct{ asked bool }

func (s *soonest) Next(now time.Time) time.Time {
	if s.asked {
		return time.Time{}
	}
	s.asked = true
	return now.Add(time.Millisecond)
}

// fire runs a job on the machine, once.
func (m *machine) fire(j cron.Job) {
	m.Schedule(&soonest{}, j)
	m.Start()
}

// now returns the key of what all machines should run about now.
func now() lock.Key {
	t := time.Now()
	return lock.Every(24*time.Hour, t.Sub(t.Truncate(24*time.Hour)).Truncate(time.Second))
}
