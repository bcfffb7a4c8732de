package spindlecron_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/robfig/cron/v3"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spindle-lock/spindle"
	"github.com/spindle-lock/spindle/adapters/cron"
	"github.com/spindle-lock/spindle/internal/testkit/testcheck"
	"github.com/spindle-lock/spindle/lock"
	"github.com/spindle-lock/spindle/spindletest"
)

// fast is a schedule on a machine whose clock is ahead.
type fast struct {
	cron.Schedule
	by time.Duration
}

func (f fast) Next(t time.Time) time.Time { return f.Schedule.Next(t.Add(f.by)).Add(-f.by) }

// The jobs take no time: each was done long before the machines whose clocks are late start it.
func TestEachTimeOfAScheduleIsRunOnce(t *testing.T) {
	t.Parallel()
	const period, times = 3 * time.Second, 2
	db := spindletest.New(t)
	spec, err := cron.NewParser(cron.Second | cron.Minute | cron.Hour | cron.Dom | cron.Month | cron.Dow).Parse("*/3 * * * * *")
	require.NoError(t, err)
	ran := make(chan string, 100)
	for _, by := range []time.Duration{-700 * time.Millisecond, 0, 700 * time.Millisecond} {
		m := newMachine(t, db)
		m.Schedule(fast{spec, by}, m.job(lock.Every(period), func(_ context.Context, run lock.Run) error {
			ran <- run.Key()
			return nil
		}))
		m.Start()
	}
	first, err := time.Parse(time.RFC3339, testcheck.Await(t, ran, "a run"))
	require.NoError(t, err)
	for i := range times {
		want := first.Add(time.Duration(i+1) * period)
		assert.Equal(t, want.Format(time.RFC3339), testcheck.Await(t, ran, "the next run"), "each time once, and none left out")
	}
}

func TestAJobThatFailsOrPanicsIsRunByTheNextMachine(t *testing.T) {
	t.Parallel()
	db := spindletest.New(t)
	key, broken := now(), errors.New("broken")
	a, b, c, d := newMachine(t, db), newMachine(t, db), newMachine(t, db), newMachine(t, db)
	a.fire(a.job(key, func(context.Context, lock.Run) error { return broken }))
	assert.ErrorIs(t, testcheck.Await(t, a.err, "its error"), broken)

	wrapped := cron.NewChain(cron.Recover(b), spindlecron.Once(b.ctx, b, b.once, key))
	b.fire(wrapped.Then(cron.FuncJob(func() { panic("oh") })))
	assert.EqualError(t, testcheck.Await(t, b.err, "what was recovered"), "oh")

	ran := make(chan bool, 10)
	c.fire(c.job(key, func(context.Context, lock.Run) error { ran <- true; return nil }))
	testcheck.Await(t, ran, "the job")
	c.stop()
	d.fire(d.job(key, func(context.Context, lock.Run) error { ran <- true; return nil }))
	assert.Contains(t, testcheck.Await(t, d.info, "why it is not run"), "done")
	testcheck.None(t, ran, "run again, though it was done")
}

// The run of a later time was first: that this one is not run any more is no error, and it is not reported as done.
func TestATimeThatALaterOneHasPassedIsInformation(t *testing.T) {
	t.Parallel()
	db := spindletest.New(t)
	a, b := newMachine(t, db), newMachine(t, db)
	ran := make(chan string, 10)
	work := func(_ context.Context, run lock.Run) error { ran <- run.Key(); return nil }
	a.fire(a.job(lock.KeyOf("2026-11-21T04:00:00Z"), work))
	testcheck.Await(t, ran, "the later run")
	a.stop()
	b.fire(b.job(lock.KeyOf("2026-11-21T03:00:00Z"), work))
	assert.Equal(t, "not run: already done for a later time", testcheck.Await(t, b.info, "why it is not run"))
	testcheck.None(t, ran, "run after a later time")
	testcheck.None(t, b.err, "an error")
}

// Each failure of the work is reported as an error, even if ctx has ended by then: otherwise, an operator would not learn
// that a job has failed. Work that only returns the end of ctx is reported as information. Neither counts as done.
func TestEachOutcomeIsReportedAsWhatItIs(t *testing.T) {
	for _, err := range []error{nil, errors.New("broken"), fmt.Errorf("a Once of its own: %w", lock.ErrPassed), context.DeadlineExceeded, context.Canceled} {
		for _, ends := range []bool{false, true} {
			synctest.Test(t, func(t *testing.T) {
				p := spindletest.NewFake(t).Process("a")
				ctx, cancel := context.WithCancel(context.Background())
				defer cancel()
				m := &machine{once: lock.NewOnce(nil, p.Table, "job", p.Option(), quick), ctx: ctx, info: make(chan string, 1), err: make(chan error, 1)}
				ran := 0
				work := func(context.Context, lock.Run) error {
					if ran++; ran > 1 {
						return nil
					}
					if ends {
						cancel()
					}
					return err
				}
				m.job(lock.KeyOf("today"), work).Run()
				switch {
				case err == nil:
				case ends && errors.Is(err, context.Canceled):
					assert.Equal(t, "stopped", <-m.info)
				default:
					assert.ErrorIs(t, <-m.err, err)
				}
				m.ctx = context.Background()
				m.job(lock.KeyOf("today"), work).Run()
				assert.Equal(t, err != nil, ran == 2, "%v, ends: %v", err, ends)
				assert.Equal(t, err == nil, len(m.info) == 1, "that it is done already")
				assert.Empty(t, m.err)
			})
		}
	}
}

// While one run of a job works, another waits, and no more: a job that never ends costs two goroutines, not one a tick.
func TestOneRunWaitsForAJobThatOutlastsItsPeriod(t *testing.T) {
	t.Parallel()
	db := spindletest.New(t)
	m := newMachine(t, db)
	begun, finish := make(chan string, 10), make(chan bool)
	j := m.job(lock.Every(time.Second), func(_ context.Context, run lock.Run) error {
		begun <- run.Key()
		<-finish
		return nil
	})
	over := make(chan bool, 10)
	run := func() { j.Run(); over <- true }
	go run()
	first := testcheck.Await(t, begun, "the job")
	time.Sleep(time.Second) // the next time of the schedule
	for range 5 {
		go run()
	}
	for range 4 {
		testcheck.Await(t, over, "the end of a run that does not wait")
		assert.Equal(t, "not run: an earlier run is still waiting", testcheck.Await(t, m.info, "why it is not run"))
	}
	time.Sleep(time.Second)
	testcheck.None(t, over, "the end of the run that waits")
	finish <- true
	assert.Greater(t, testcheck.Await(t, begun, "the run that has waited"), first)
	for range 2 {
		go run()
	}
	assert.Equal(t, "not run: an earlier run is still waiting", testcheck.Await(t, m.info, "why it is not run"))
	testcheck.Await(t, over, "the end of a run: the other one waits, because the second run works")
	finish <- true
	testcheck.Await(t, begun, "the third run")
	finish <- true
	for range 3 {
		testcheck.Await(t, over, "the end of a run")
	}
	testcheck.None(t, m.err, "an error")
}

// A job in a wrapper knows nothing of ctx: it continues, and so does its lock. A job that waits for another machine ends.
func TestALockIsHeldUntilTheJobIsOverThoughCtxEnds(t *testing.T) {
	t.Parallel()
	db := spindletest.New(t)
	key := now()
	a, b, c := newMachine(t, db), newMachine(t, db), newMachine(t, db)
	begun, finish, ran, stopped := make(chan bool), make(chan bool), make(chan bool, 10), make(chan bool)
	a.fire(spindlecron.Once(a.ctx, a, a.once, key)(cron.FuncJob(func() { close(begun); <-finish })))
	testcheck.Await(t, begun, "the job on the first machine")
	waiting := func(m *machine) {
		m.fire(m.job(key, func(context.Context, lock.Run) error { ran <- true; return nil }))
	}
	waiting(b)
	waiting(c)
	go func() { a.stop(); close(stopped) }()
	time.Sleep(3 * lease / 2) // both of the others have fired, and wait
	b.stop()
	assert.Contains(t, testcheck.Await(t, b.info, "its end"), "stopped")
	testcheck.None(t, b.err, "an error")
	testcheck.None(t, ran, "run while the first machine ran it")
	close(finish)
	testcheck.Await(t, stopped, "the end of the first machine")
	assert.Contains(t, testcheck.Await(t, c.info, "why it is not run"), "done")
	testcheck.None(t, ran, "run again")
	testcheck.None(t, a.err, "an error")
}

func TestJobsRunOnTheMachineThatLeads(t *testing.T) {
	t.Parallel()
	db := spindletest.New(t)
	var stop [2]func()
	var ran [2]chan bool
	for i := range 2 {
		l := spindle.New(db.Client, db.Table, "leader", quick)
		ctx, cancel := context.WithCancel(context.Background())
		t.Cleanup(cancel)
		done := make(chan error, 1)
		require.NoError(t, l.Run(ctx, done))
		stop[i] = func() { cancel(); <-done }
		if i == 0 {
			_, err := l.WaitElected(t.Context())
			require.NoError(t, err)
		}
		ran[i] = make(chan bool, 100)
		c := cron.New(cron.WithSeconds(), cron.WithChain(spindlecron.OnlyLeader(l)))
		_, err := c.AddFunc("* * * * * *", func() { ran[i] <- true })
		require.NoError(t, err)
		c.Start()
		t.Cleanup(func() { <-c.Stop().Done() })
	}
	for range 3 {
		testcheck.Await(t, ran[0], "a job of the leader")
	}
	testcheck.None(t, ran[1], "a job of a follower")
	stop[0]()
	testcheck.Await(t, ran[1], "a job of the next leader")
	stop[1]()
}
