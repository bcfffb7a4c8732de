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

	"github.com/spindle-lock/spindle/lock"
)

// ErrDone is the error that a gocron.AfterLockError listener receives if the job has already been done for this time.
// If the job has already been done for a later time, the listener receives lock.ErrPassed instead.
var ErrDone = errors.New("done already")

// NewLocker returns a locker that lets a job run once for each key, on the first machine that starts the job. For
// example, with the key lock.Every(time.Hour), each job runs once an hour. Pass the locker to
// gocron.WithDistributedJobLocker. If all jobs have the same period, you can pass it to gocron.WithDistributedLocker
// instead.
//
// For a job that has to succeed, use Task, because gocron tells a locker only that a job ended, not how. With a locker,
// no machine runs the job again for that scheduled time, even if the job failed, was stopped, or was skipped because of
// a listener (gocron.BeforeJobRunsSkipIfBeforeFuncErrors). In addition, a job does not notice the loss of its lock.
// For example, if Spanner can't be reached for a lease, the lock is lost, but the job continues. Another machine may
// then run the job at the same time.
//
// The locker has a lock.Once for each job, named lock.Name(name, job), in a table created by ddl.Create. It accepts the
// options of lock.NewOnce. Give each job the same name on all machines (gocron.WithName). Without a name, gocron names
// a job after its function, so two jobs with the same function would count as one. A job that is named after an
// anonymous function is rejected.
//
// While another machine runs the job, Lock waits. If that machine dies, this machine runs the job once the lease has
// expired. During the wait, the scheduler does not start this job again, but with LimitModeWait it queues further runs.
// The wait counts as a run for WithLimitConcurrentJobs. If the other machine completes the job, for this time or a
// later one, gocron counts the job as skipped on this machine. Unless the job's ctx has ended, Lock logs any other
// error as a warning to slog.Default, because gocron reports it only through gocron.AfterLockError.
func NewLocker(db *spanner.Client, table, name string, key lock.Key, opts ...lock.Option) gocron.Locker {
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
		return nil, fmt.Errorf("spindlegocron: the job's name, %q, is the name of an anonymous function, which may change in the next build; set a name with gocron.WithName", job)
	}
	once, known := l.jobs.Load(job)
	if !known {
		once, _ = l.jobs.LoadOrStore(job, l.once(job))
	}
	return hold(ctx, once.(*lock.Once), l.key)
}

// held is the lock of a running gocron job. The lock is held until Unlock makes the function of a Once return.
type held struct {
	unlock sync.Once
	over   chan struct{} // closed to make the function return
	done   chan struct{} // closed once Do has returned
	err    error         // Do's error; valid once done is closed
}

// hold starts a run for key, and returns once the run's function has started. The ctx limits only the wait for the
// lock. A running job keeps its lock until the job ends.
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

// Unlock implements gocron.Lock. It waits for the outcome, even if the job's ctx has ended. Unlock tries to release the
// lock for at most ten seconds, and may then need another read to find out whether the job was recorded as done.
func (h *held) Unlock(context.Context) error {
	h.unlock.Do(func() { close(h.over) })
	<-h.done
	return h.err
}
