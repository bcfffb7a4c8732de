package spindlecron

import (
	"context"
	"errors"
	"sync"

	"github.com/robfig/cron/v3"

	"github.com/spindle-lock/spindle"
	"github.com/spindle-lock/spindle/lock"
)

// Job is a cron.Job that runs work once for each key, such as lock.Every(time.Hour), on whichever machine asks first.
//
// It is lock.Once.Do with ctx: Run waits while another machine does the work, the ctx of work ends if ctx does or the lock
// is lost, and work that fails or panics is not done, so the next that asks or waits does it. Cancel ctx when you stop the
// Cron, or it waits for what another machine does.
//
// If the work takes longer than its period, here or on another machine, one run of this Job waits for it. Further ones
// return at once, and so are not run on this machine: of the times meanwhile, not all are made up for.
//
// Errors go to logger as errors. Information is that ctx has ended, that another machine has done the work, that a run for
// a later time was first (lock.ErrPassed), and that an earlier run still waits.
func Job(ctx context.Context, logger cron.Logger, once *lock.Once, key lock.Key, work func(ctx context.Context, run lock.Run) error) cron.Job {
	waits := make(chan struct{}, 1) // has room for one
	return cron.FuncJob(func() {
		select {
		case waits <- struct{}{}:
		default:
			logger.Info("not run: an earlier run still waits")
			return
		}
		goOn := sync.OnceFunc(func() { <-waits })
		defer goOn()
		ran, err := once.Do(ctx, key, func(ctx context.Context, run lock.Run) error {
			goOn()
			return work(ctx, run)
		})
		switch {
		case !ran && errors.Is(err, lock.ErrPassed):
			logger.Info("not run: a later time is done", "reason", err)
		case err != nil && ctx.Err() != nil && errors.Is(err, ctx.Err()):
			logger.Info("stopped", "reason", err)
		case err != nil:
			logger.Error(err, "not done")
		case !ran:
			logger.Info("done already, by another")
		}
	})
}

// Once is Job for jobs as they are: cron.NewChain(spindlecron.Once(...)).Then(job). They can't be told that ctx has ended,
// or that the lock is lost: the job goes on then, and in the second case another machine may run it too. What fails
// without a panic is done. Put cron.Recover before it, not after.
//
// Don't give it to cron.WithChain: all jobs of the Cron would be one, of which one is run.
func Once(ctx context.Context, logger cron.Logger, once *lock.Once, key lock.Key) cron.JobWrapper {
	return func(j cron.Job) cron.Job {
		return Job(ctx, logger, once, key, func(context.Context, lock.Run) error {
			j.Run()
			return nil
		})
	}
}

// OnlyLeader runs jobs only while l holds its lock: it may be given to cron.WithChain. Call l.Run for it to compete. The
// answer is local: no RPC.
//
// Who leads is asked when a job starts, by each machine's own clock: if the lock moves between the starts on two machines,
// the job runs twice for that time, or not at all. Nor is a job told that the lock was lost while it runs: fence what it
// writes (spindle.Lock.Apply).
func OnlyLeader(l *spindle.Lock) cron.JobWrapper {
	return func(j cron.Job) cron.Job {
		return cron.FuncJob(func() {
			if leads, _ := l.HasLock(); leads {
				j.Run()
			}
		})
	}
}
