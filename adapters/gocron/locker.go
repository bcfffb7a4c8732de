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

// ErrDone is the error that a listener of gocron.AfterLockError gets if another machine has run the job for this time. If a
// machine has run it for a later time, so that this one is not run any more, the error is lock.ErrPassed.
var ErrDone = errors.New("done already")

// NewLocker returns a locker that lets a job run once for each key, such as lock.Every(time.Hour), on the machine that asks
// first: give it to gocron.WithDistributedJobLocker, or, for all jobs of one period, gocron.WithDistributedLocker.
//
// Use Task for a job that has to succeed: gocron tells its lockers only that a job is over, not how it ended. Under a
// locker, no machine runs the job again for this time, even if it has failed, was stopped, or did not begin because a
// listener refused it (gocron.BeforeJobRunsSkipIfBeforeFuncErrors). Jobs learn nothing of their locks, either: if a lock is
// lost, for example because Spanner was out of reach for a lease, the job continues while another machine may run it.
//
// It has a lock.Once for each job, with the name lock.Name(name, job), in a table that ddl.Create makes. It takes the
// options of lock.NewOnce. Name the jobs (gocron.WithName), the same on all machines: otherwise gocron names them after
// their functions, and two jobs with one function would be one. A job named after an anonymous function is refused.
//
// Lock waits while another machine runs the job, so that a machine that dies is replaced once its lease has expired.
// Meanwhile the scheduler does not fire this job again, and the wait counts as a run for WithLimitConcurrentJobs. If the
// other machine has done it, or a later time, gocron counts the job as skipped here. Lock logs all other errors as warnings
// to slog.Default, because gocron reports them only with gocron.AfterLockError.
func NewLocker(db *spanner.Client, table, name string, key lock.Key, opts ...spindle.Option) gocron.Locker {
	return &locker{once: func(job string) *lock.Once { return lock.NewOnce(db, table, lock.Name(name, job), opts...) }, key: key}
}

type locker struct {
	once func(job string) *lock.Once
	key  lock.Key
	jobs sync.Map // of *lock.Once by the job's name
}

var nameless = regexp.MustCompile(`\.func\d+(\.\d+)*$`)

// Lock implements gocron.Locker.
func (l *locker) Lock(ctx context.Context, job string) (gocron.Lock, error) {
	h, err := l.lock(ctx, job)
	switch {
	case err == nil:
		return h, nil
	case !errors.Is(err, ErrDone) && !errors.Is(err, lock.ErrPassed) && ctx.Err() == nil:
		slog.WarnContext(ctx, "spindlegocron: the job is not run", "job", job, "reason", err)
	}
	return nil, err
}

func (l *locker) lock(ctx context.Context, job string) (*held, error) {
	if nameless.MatchString(job) {
		return nil, fmt.Errorf("spindlegocron: a job called %q by gocron, after a function without a name, may be another in the next build: name it with gocron.WithName", job)
	}
	once, known := l.jobs.Load(job)
	if !known {
		once, _ = l.jobs.LoadOrStore(job, l.once(job))
	}
	return hold(ctx, once.(*lock.Once), l.key)
}

// held is a job of gocron that runs in the function of a Once.
type held struct {
	unlock sync.Once
	over   chan struct{} // closed for the function to return
	done   chan struct{} // closed once Do has returned
	err    error         // of Do, once it is done
}

// hold begins to do key, and returns once its function runs. ctx ends only the wait: the lock of a running job ends with
// the job.
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

// Unlock implements gocron.Lock. It waits for the outcome even if ctx, the job's, has ended: that takes ten seconds at most.
func (h *held) Unlock(context.Context) error {
	h.unlock.Do(func() { close(h.over) })
	<-h.done
	return h.err
}
