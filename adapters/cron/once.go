package spindlecron

import (
	"context"
	"errors"
	"sync"

	"github.com/robfig/cron/v3"

	"github.com/spindle-lock/spindle"
	"github.com/spindle-lock/spindle/lock"
)

// Job returns a cron.Job that runs work once for each key, such as lock.Every(time.Hour), on the machine that asks first.
//
// It is lock.Once.Do with ctx. Run waits while another machine does the work. The ctx of work ends if ctx does or the lock
// is lost. Work that fails or panics is not done, so the next machine that asks or waits does it. Cancel ctx when you stop
// the Cron, or it waits for another machine's work.
//
// If the work takes longer than its period, here or on another machine, one run of this Job waits for it. Further runs
// return at once, so this machine does not make up for all the times meanwhile.
//
// Errors go to logger as errors. It gets as information that ctx has ended, that another machine has done the work, that a
// run for a later time was first (lock.ErrPassed), and that an earlier run still waits.
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

// Once is Job for existing jobs: cron.NewChain(spindlecron.Once(...)).Then(job). Such a job does not learn that ctx has
// ended, or that the lock is lost: it continues, and in the second case another machine may run it too. A job that fails
// without a panic counts as done. Put cron.Recover before Once, not after.
//
// Don't give it to cron.WithChain: all jobs of the Cron would count as one, and only one of them would run.
func Once(ctx context.Context, logger cron.Logger, once *lock.Once, key lock.Key) cron.JobWrapper {
	return func(j cron.Job) cron.Job {
		return Job(ctx, logger, once, key, func(context.Context, lock.Run) error {
			j.Run()
			return nil
		})
	}
}

// OnlyLeader runs jobs only while l holds its lock. You may give it to cron.WithChain. Call l.Run so that l competes.
// OnlyLeader makes no RPC.
//
// Each machine asks when a job starts, by its own clock: if the lock moves between the starts on two machines, the job runs
// twice for that time, or not at all. A running job does not learn that the lock was lost: fence its writes
// (spindle.Lock.Apply).
func OnlyLeader(l *spindle.Lock) cron.JobWrapper {
	return func(j cron.Job) cron.Job {
		return cron.FuncJob(func() {
			if leads, _ := l.HasLock(); leads {
				j.Run()
			}
		})
	}
}
