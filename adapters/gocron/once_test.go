package spindlegocron_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"time"

	"cloud.google.com/go/spanner"
	"github.com/go-co-op/gocron/v2"
	"github.com/google/uuid"
	"github.com/jonboulle/clockwork"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spindle-lock/spindle/adapters/gocron"
	"github.com/spindle-lock/spindle/internal/testkit/testcheck"
	"github.com/spindle-lock/spindle/lock"
	"github.com/spindle-lock/spindle/spindletest"
)

// fast is a clock that is off.
type fast struct {
	clockwork.Clock
	by time.Duration
}

func (f fast) Now() time.Time { return f.Clock.Now().Add(f.by) }

// Two jobs on machines whose clocks differ, one a cron job under a locker, one a duration job that is a Task. Neither job
// is in the other's way.
func TestEachTimeOfAScheduleIsRunOnce(t *testing.T) {
	t.Parallel()
	const period, times = 3 * time.Second, 2
	db := spindletest.New(t)
	var mu sync.Mutex
	runs := map[string][]string{}
	enough := make(chan bool, 100)
	ran := func(job, key string) {
		mu.Lock()
		defer mu.Unlock()
		runs[job] = append(runs[job], key)
		if len(runs["cron"]) >= times && len(runs["duration"]) >= times {
			enough <- true
		}
	}
	for _, by := range []time.Duration{-500 * time.Millisecond, 0, 500 * time.Millisecond} {
		clock := fast{clockwork.NewRealClock(), by}
		m := newMachine(t, db, gocron.WithClock(clock))
		m.job(t, gocron.CronJob("*/3 * * * * *", true), gocron.NewTask(func() {
			ran("cron", time.Now().Round(period).UTC().Format(time.RFC3339))
		}), gocron.WithName("cron"), m.locker(lock.Every(period)))
		m.job(t, gocron.DurationJob(period), spindlegocron.Task(m.once("duration"), lock.Every(period), func(_ context.Context, run lock.Run) error {
			ran("duration", run.Key())
			return nil
		}), gocron.WithStartAt(gocron.WithStartDateTimePast(clock.Now().Truncate(period))))
		m.Start()
	}
	testcheck.Await(t, enough, "the jobs at two times")
	mu.Lock()
	defer mu.Unlock()
	for job, keys := range runs {
		first, err := time.Parse(time.RFC3339, keys[0])
		require.NoError(t, err)
		var want []string
		for i := range keys {
			want = append(want, first.Add(time.Duration(i)*period).Format(time.RFC3339))
		}
		assert.Equal(t, want, keys, "each time once, and none left out: %s", job)
	}
}

func TestATaskThatFailsIsRunByTheNextMachine(t *testing.T) {
	t.Parallel()
	db := spindletest.New(t)
	key := now()
	a, b, c := newMachine(t, db), newMachine(t, db), newMachine(t, db)
	for _, m := range []*machine{a, b, c} {
		m.job(t, immediately, spindlegocron.Task(m.once("task"), key, func(context.Context, lock.Run) error {
			m.ran <- ""
			if m == a {
				return fmt.Errorf("%w: %w", errBroken, lock.ErrPassed) // of a Once of its own
			}
			return nil
		}))
	}
	a.Start()
	testcheck.Await(t, a.ran, "the first run")
	assert.ErrorIs(t, testcheck.Await(t, a.failed, "its error"), errBroken)
	b.Start()
	testcheck.Await(t, b.over, "the second run")
	c.Start()
	testcheck.Await(t, c.over, "the end of the job that does nothing")
	testcheck.None(t, c.ran, "run again, though it was done")
	testcheck.None(t, c.failed, "what another has done is no error")
}

// gocron does not tell a locker how a job has ended.
func TestUnderALockerAJobThatFailsIsDone(t *testing.T) {
	t.Parallel()
	db := spindletest.New(t)
	key := now()
	a, b := newMachine(t, db), newMachine(t, db)
	a.job(t, immediately, gocron.NewTask(func() error { return errBroken }), gocron.WithName("job"), a.locker(key))
	b.job(t, immediately, b.runs(), gocron.WithName("job"), b.locker(key))
	a.Start()
	testcheck.Await(t, a.failed, "its error")
	b.Start()
	assert.ErrorIs(t, testcheck.Await(t, b.denied, "why it is not run"), spindlegocron.ErrDone)
	testcheck.None(t, b.ran, "run")
}

// gocron asks a listener that may refuse last, after the locker, and does not tell the locker of a refusal: under a locker no
// machine runs the job for that time. A Task has not asked for its lock by then.
func TestATaskThatAListenerSkipsIsRunByAnotherMachine(t *testing.T) {
	t.Parallel()
	db := spindletest.New(t)
	key, skipped := now(), make(chan string, 10)
	a, b := newMachine(t, db), newMachine(t, db)
	for _, m := range []*machine{a, b} {
		refuse := gocron.WithEventListeners()
		if m == a {
			refuse = gocron.WithEventListeners(gocron.BeforeJobRunsSkipIfBeforeFuncErrors(func(_ uuid.UUID, name string) error {
				skipped <- name
				return errBroken
			}))
		}
		m.job(t, immediately, m.runs(), gocron.WithName("locked"), m.locker(key), refuse)
		m.job(t, immediately, spindlegocron.Task(m.once("task"), key, func(context.Context, lock.Run) error { m.ran <- "task"; return nil }), refuse)
	}
	a.Start()
	for range 2 {
		testcheck.Await(t, skipped, "both listeners")
	}
	require.NoError(t, a.Shutdown())
	testcheck.None(t, a.ran, "run though a listener refused it")
	b.Start()
	assert.Equal(t, "task", testcheck.Await(t, b.ran, "the task on the other machine"))
	assert.ErrorIs(t, testcheck.Await(t, b.denied, "why the other job is not run"), spindlegocron.ErrDone)
	testcheck.None(t, b.ran, "run under the locker")
}

// The run of a later time was first: that this one is not run any more is no error.
func TestATimeThatALaterOneHasPassedIsSkipped(t *testing.T) {
	db := spindletest.New(t)
	var warned bytes.Buffer
	usual := slog.Default()
	slog.SetDefault(slog.New(slog.NewTextHandler(&warned, nil)))
	defer slog.SetDefault(usual)
	later, earlier := lock.KeyOf("2026-11-21T04:00:00Z"), lock.KeyOf("2026-11-21T03:00:00Z")
	task := func(m *machine, key lock.Key) gocron.Task {
		return spindlegocron.Task(m.once("task"), key, func(context.Context, lock.Run) error { m.ran <- "task"; return nil })
	}
	a, b := newMachine(t, db), newMachine(t, db)
	a.job(t, immediately, task(a, later))
	a.job(t, immediately, a.runs(), gocron.WithName("locked"), a.locker(later))
	a.Start()
	for range 2 {
		testcheck.Await(t, a.over, "the runs of the later time")
	}
	require.NoError(t, a.Shutdown())
	b.job(t, immediately, task(b, earlier))
	b.job(t, immediately, b.runs(), gocron.WithName("locked"), b.locker(earlier))
	b.Start()
	testcheck.Await(t, b.over, "the end of the task that does nothing")
	err := testcheck.Await(t, b.denied, "why it is not run")
	assert.ErrorIs(t, err, lock.ErrPassed)
	assert.NotErrorIs(t, err, spindlegocron.ErrDone, "nobody knows whether it ran")
	require.NoError(t, b.Shutdown())
	testcheck.None(t, b.ran, "run after a later time")
	testcheck.None(t, b.failed, "an error")
	assert.Empty(t, warned.String())
}

func TestATaskIsToldThatItsLockIsLost(t *testing.T) {
	t.Parallel()
	db := spindletest.New(t)
	m := newMachine(t, db)
	why := make(chan error, 1)
	m.job(t, immediately, spindlegocron.Task(m.once("task"), now(), func(ctx context.Context, _ lock.Run) error {
		m.db.Close() // it is cut off
		<-ctx.Done()
		why <- context.Cause(ctx)
		return nil
	}))
	m.Start()
	assert.ErrorIs(t, testcheck.Await(t, why, "the end of its ctx"), lock.ErrLost)
	assert.ErrorIs(t, testcheck.Await(t, m.failed, "its error"), lock.ErrNotHeld)
}

// gocron ends a job's ctx as it shuts down. A job that takes no ctx continues, and so does its lock.
func TestALockIsHeldUntilTheJobIsOverThroughAShutdown(t *testing.T) {
	t.Parallel()
	db := spindletest.New(t)
	key := now()
	a, b, c := newMachine(t, db), newMachine(t, db), newMachine(t, db)
	finish, stopped := make(chan bool), make(chan bool)
	a.job(t, immediately, gocron.NewTask(func(ctx context.Context) {
		a.ran <- ""
		<-ctx.Done()
		close(stopped)
		<-finish
	}), gocron.WithName("job"), a.locker(key))
	for _, m := range []*machine{b, c} {
		m.job(t, immediately, m.runs(), gocron.WithName("job"), m.locker(key))
	}
	a.Start()
	testcheck.Await(t, a.ran, "the job on the first machine")
	b.Start()
	c.Start()
	down := make(chan error, 2)
	go func() { down <- a.Shutdown() }()
	<-stopped

	// A machine that waits shuts down at once.
	go func() { down <- b.Shutdown() }()
	require.NoError(t, testcheck.Await(t, down, "the end of a machine that waits"))
	select {
	case err := <-b.denied:
		assert.ErrorIs(t, err, context.Canceled)
	default: // shut down before it asked
	}

	time.Sleep(3 * lease / 2)
	testcheck.None(t, c.ran, "run while the first machine ran it")
	testcheck.None(t, c.denied, "it does not wait")
	close(finish)
	require.NoError(t, testcheck.Await(t, down, "the end of the first machine"))
	assert.ErrorIs(t, testcheck.Await(t, c.denied, "why it is not run"), spindlegocron.ErrDone)
	testcheck.None(t, c.ran, "run again")
}

func TestAJobWithoutANameIsRefused(t *testing.T) {
	t.Parallel()
	db := spindletest.New(t)
	m := newMachine(t, db)
	m.job(t, immediately, gocron.NewTask(func() { m.ran <- "" }), m.locker(now()))
	m.Start()
	assert.ErrorContains(t, testcheck.Await(t, m.denied, "a refusal"), "gocron.WithName")
	testcheck.None(t, m.ran, "run")
}

func TestTheNameOfALockIsMadeOfBoth(t *testing.T) {
	t.Parallel()
	db := spindletest.New(t)
	m := newMachine(t, db)
	m.job(t, immediately, m.runs(), gocron.WithName("a/b"), m.locker(now()))
	m.Start()
	testcheck.Await(t, m.ran, "the job")
	require.NoError(t, m.Shutdown())
	_, err := db.Client.Single().ReadRow(t.Context(), db.Table, spanner.Key{lock.Name("tests", "a/b")}, []string{"name"})
	assert.NoError(t, err)
}
