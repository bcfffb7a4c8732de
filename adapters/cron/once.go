package spindlecron

import (
	"context"
	"errors"
	"sync"

	"github.com/robfig/cron/v3"

	"github.com/spindle-lock/spindle"
	"github.com/spindle-lock/spindle/lock"
)

// Job returns a cron.Job that runs work once for each key. For example, with the key lock.Every(time.Hour), the work
// runs once an hour. It runs on the first machine that starts the job.
//
// While another machine does the work, the job waits. (It calls lock.Once.Do with ctx.) The ctx of work ends if ctx
// ends or if the lock is lost. Work that fails or panics does not count as done, so the next machine that starts the
// job, or that is already waiting, runs the work again. When you stop the Cron, cancel ctx as well. Otherwise, the
// context that Cron.Stop returns may not end until another machine's work is done.
//
// If the work takes longer than its period, on this machine or on another one, only one further run of the job waits.
// All other runs return immediately. A machine therefore never has a backlog of missed runs.
//
// Failures are logged with logger.Error. Four other outcomes are logged with logger.Info: ctx has ended, the work has
// already been done, a run for a later time came first (lock.ErrPassed), or an earlier run is still waiting.
func Job(ctx context.Context, logger cron.Logger, once *lock.Once, key lock.Key, work func(ctx context.Context, run lock.Run) error) cron.Job {
	waits := make(chan struct{}, 1) // has room for one run
	return cron.FuncJob(func() {
		select {
		case waits <- struct{}{}:
		default:
			logger.Info("not run: an earlier run is still waiting")
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
			logger.Info("not run: already done for a later time", "reason", err)
		case err != nil && ctx.Err() != nil && errors.Is(err, ctx.Err()):
			logger.Info("stopped", "reason", err)
		case err != nil:
			logger.Error(err, "not done")
		case !ran:
			logger.Info("already done, here or on another machine")
		}
	})
}

// Once is like Job, but wraps existing jobs: cron.NewChain(spindlecron.Once(...)).Then(job). An existing job can't be
// told to stop, so it continues after ctx has ended or the lock is lost. If the lock is lost, another machine may run
// the job at the same time. If the job returns while the lock is held, it counts as done, even if it has failed. Only a
// panic counts as a failure, so cron.Recover has to come before Once in the chain, not after it.
//
// Don't pass the wrapper to cron.WithChain. All jobs of the Cron would count as the same job, and only one of them
// would run.
func Once(ctx context.Context, logger cron.Logger, once *lock.Once, key lock.Key) cron.JobWrapper {
	return func(j cron.Job) cron.Job {
		return Job(ctx, logger, once, key, func(context.Context, lock.Run) error {
			j.Run()
			return nil
		})
	}
}

// OnlyLeader returns a wrapper that runs jobs only while l holds its lock. You can pass it to cron.WithChain. Call
// l.Run so that l competes for the lock. OnlyLeader makes no RPC.
//
// Each machine checks the lock when the job is due by its own clock. If the lock moves to another machine at about that
// time, the job may run twice, or not at all. A running job is not told that the lock is lost, so fence its writes
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
