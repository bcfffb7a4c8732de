package spindlegocron_test

import (
	"context"
	"errors"
	"flag"
	"log/slog"
	"testing"
	"time"

	"cloud.google.com/go/spanner"
	"github.com/go-co-op/gocron/v2"
	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/spindle-lock/spindle"
	"github.com/spindle-lock/spindle/adapters/gocron"
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

// machine is a scheduler with a client of its own, and what its listeners and jobs say.
type machine struct {
	gocron.Scheduler
	db     *spanner.Client
	table  string
	ran    chan string // by a job that runs
	over   chan bool   // it returned no error
	failed chan error
	denied chan error
}

func newMachine(t *testing.T, db *spindletest.Database, opts ...gocron.SchedulerOption) *machine {
	client, err := spanner.NewClientWithConfig(context.Background(), db.Path, spanner.ClientConfig{DisableNativeMetrics: true}, db.ClientOptions()...)
	require.NoError(t, err)
	t.Cleanup(client.Close)
	s, err := gocron.NewScheduler(append(opts, gocron.WithStopTimeout(time.Minute))...)
	require.NoError(t, err)
	t.Cleanup(func() { _ = s.Shutdown() })
	return &machine{s, client, db.Table, make(chan string, 100), make(chan bool, 100), make(chan error, 100), make(chan error, 100)}
}

func (m *machine) listeners() gocron.JobOption {
	return gocron.WithEventListeners(
		gocron.AfterJobRuns(func(uuid.UUID, string) { m.over <- true }),
		gocron.AfterJobRunsWithError(func(_ uuid.UUID, _ string, err error) { m.failed <- err }),
		gocron.AfterLockError(func(_ uuid.UUID, _ string, err error) { m.denied <- err }))
}

// locker returns the locker of the machine's jobs.
func (m *machine) locker(key lock.Key) gocron.JobOption {
	return gocron.WithDistributedJobLocker(spindlegocron.NewLocker(m.db, m.table, "tests", key, quick))
}

func (m *machine) once(name string) *lock.Once {
	return lock.NewOnce(m.db, m.table, name, quick)
}

func (m *machine) job(t *testing.T, when gocron.JobDefinition, task gocron.Task, opts ...gocron.JobOption) {
	_, err := m.NewJob(when, task, append(opts, m.listeners())...)
	require.NoError(t, err)
}

// runs is a job that says so.
func (m *machine) runs() gocron.Task { return gocron.NewTask(func() { m.ran <- "" }) }

// now returns the key of what all machines should run about now.
func now() lock.Key {
	t := time.Now()
	return lock.Every(24*time.Hour, t.Sub(t.Truncate(24*time.Hour)).Truncate(time.Second))
}

// immediately is a job that fires once, at the start.
var immediately = gocron.OneTimeJob(gocron.OneTimeJobStartImmediately())

var errBroken = errors.New("broken")
