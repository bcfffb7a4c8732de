package spindlegocron

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"regexp"
	"sync"

	"cloud.google.com/go/spanner"
	"github.com/go-co-op/gocron/v2"

	"github.com/spindle-lock/spindle"
	"github.com/spindle-lock/spindle/lock"
)

// ErrDone is the error that a gocron.AfterLockError listener receives if another machine has run the job for this time.
// If a machine has run the job for a later time, so that it is no longer run for this time, the error is
// lock.ErrPassed.
var ErrDone = errors.New("done already")

// NewLocker returns a locker that lets a job run once for each key, such as lock.Every(time.Hour), on the first machine
// that asks. Pass it to gocron.WithDistributedJobLocker or, if all jobs have the same period, to
// gocron.WithDistributedLocker.
//
// For a job that has to succeed, use Task instead, because gocron only informs a locker that a job has ended, and not
// how it ended. With a locker, no machine runs the job again for the same time, even if the job failed, was stopped, or
// did not start because a listener refused it (gocron.BeforeJobRunsSkipIfBeforeFuncErrors). In addition, jobs don't
// notice the loss of their lock: if a lock is lost, for example because Spanner could not be reached for a lease, the
// job continues, and another machine may run it at the same time.
//
// The locker has a lock.Once for each job, named lock.Name(name, job), in a table created by ddl.Create. Its options
// are those of lock.NewOnce. Give each job the same name on all machines (gocron.WithName). Otherwise, gocron names
// jobs after their functions, and two jobs with the same function would count as one. A job that is named after an
// anonymous function is rejected.
//
// Lock waits while another machine runs the job, so that a machine that dies is replaced once its lease has expired. In
// the meantime, the scheduler does not fire this job again, and the wait counts as a run for WithLimitConcurrentJobs.
// If the other machine has done the job, for this time or a later one, gocron counts the job as skipped on this
// machine. Lock logs all other errors as warnings to slog.Default, because gocron reports them only through
// gocron.AfterLockError.
func NewLocker(db *spanner.Client, table, name string, key lock.Key, opts ...spindle.Option) gocron.Locker {
	return &locker{once: func(job string) *lock.Once { return lock.NewOnce(db, table, lock.Name(name, job), opts...) }, key: key}
}

type locker struct {
	once func(job string) *lock.Once
	key  lock.Key
	jobs sync.Map // maps the name of a job to its *lock.Once
}

var nameless = regexp.MustCompile(`\.func\d+(\.\d+)*$`)

// Lock implements gocron.Locker.
func (l *locker) Lock(ctx context.Context, job string) (gocron.Lock, error) {
	h, err := l.lock(ctx, job)
	switch {
	case err == nil:
		return h, nil
	case !errors.Is(err, ErrDone) && !errors.Is(err, lock.ErrPassed) && ctx.Err() == nil:
		slog.WarnContext(ctx, "spindlegocron: the job does not run", "job", job, "reason", err)
	}
	return nil, err
}

func (l *locker) lock(ctx context.Context, job string) (*held, error) {
	if nameless.MatchString(job) {
		return nil, fmt.Errorf("spindlegocron: gocron named the job %q after an anonymous function, whose name may change in the next build; name the job with gocron.WithName", job)
	}
	once, known := l.jobs.Load(job)
	if !known {
		once, _ = l.jobs.LoadOrStore(job, l.once(job))
	}
	return hold(ctx, once.(*lock.Once), l.key)
}

// held is a gocron job that runs within the function of a Once.
type held struct {
	unlock sync.Once
	over   chan struct{} // closed to make the function return
	done   chan struct{} // closed once Do has returned
	err    error         // Do's error; valid once done is closed
}

// hold starts a run for key, and returns once its function is running. The ctx applies only to the wait: a running job
// keeps its lock until the job ends.
func hold(ctx context.Context, once *lock.Once, key lock.Key) (*held, error) {
	h := &held{over: make(chan struct{}), done: make(chan struct{})}
	wait, end := context.WithCancelCause(context.WithoutCancel(ctx))
	deaf := context.AfterFunc(ctx, func() { end(context.Cause(ctx)) })
	begun := make(chan struct{})
	go func() {
		defer close(h.done)
		defer end(nil)
		defer deaf()
		var ran bool
		ran, h.err = once.Do(wait, key, func(context.Context, lock.Run) error {
			if !deaf() {
				return context.Cause(ctx)
			}
			close(begun)
			<-h.over
			return nil
		})
		if h.err == nil && !ran {
			h.err = ErrDone
		}
	}()
	select {
	case <-begun:
		return h, nil
	case <-h.done:
		return nil, h.err
	}
}

// Unlock implements gocron.Lock. It waits for the outcome even if the job's ctx has ended, which takes ten seconds at
// most.
func (h *held) Unlock(context.Context) error {
	h.unlock.Do(func() { close(h.over) })
	<-h.done
	return h.err
}
