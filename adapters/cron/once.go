package spindlecron

import (
	"context"
	"errors"
	"sync"

	"github.com/robfig/cron/v3"

	"github.com/spindle-lock/spindle"
	"github.com/spindle-lock/spindle/lock"
)

// Job returns a cron.Job that runs work once for each key, such as lock.Every(time.Hour), on the first machine that
// asks.
//
// Its Run method calls lock.Once.Do with ctx, so it waits while another machine does the work. The ctx of work ends if
// ctx ends or the lock is lost. Work that fails or panics does not count as done, so it is done by the next machine
// that asks or is waiting. Cancel ctx when you stop the Cron; otherwise, the Cron waits for the other machine's work.
//
// If the work takes longer than its period, on this machine or on another one, one run of this Job waits for it.
// Further runs return immediately, so this machine does not later catch up on all the times that it missed.
//
// Failures are logged with logger.Error. Four other outcomes are logged with logger.Info: ctx has ended, another machine
// has done the work, a run for a later time came first (lock.ErrPassed), or an earlier run is still waiting.
func Job(ctx context.Context, logger cron.Logger, once *lock.Once, key lock.Key, work func(ctx context.Context, run lock.Run) error) cron.Job {
	waits := make(chan struct{}, 1) // has room for one
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
			logger.Info("already done by another machine")
		}
	})
}

// Once is like Job, but for existing jobs: cron.NewChain(spindlecron.Once(...)).Then(job). Such a job is not informed
// when ctx ends or when its lock is lost, so it continues. After a loss of the lock, another machine may run the job at
// the same time. A job that fails without a panic counts as done. Put cron.Recover before Once in the chain, not after
// it.
//
// Don't pass the wrapper to cron.WithChain: all jobs of the Cron would count as one, and only one of them would run.
func Once(ctx context.Context, logger cron.Logger, once *lock.Once, key lock.Key) cron.JobWrapper {
	return func(j cron.Job) cron.Job {
		return Job(ctx, logger, once, key, func(context.Context, lock.Run) error {
			j.Run()
			return nil
		})
	}
}

// OnlyLeader returns a wrapper with which jobs run only while l holds its lock. You can pass it to cron.WithChain. Call
// l.Run so that l competes for the lock. OnlyLeader makes no RPC.
//
// Each machine checks the lock when its own clock starts the job. If the lock moves between the starts on two machines,
// the job runs twice for that time, or not at all. A running job is not informed when the lock is lost, so fence its
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
