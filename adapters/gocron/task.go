package spindlegocron

import (
	"context"
	"errors"

	"github.com/go-co-op/gocron/v2"

	"github.com/spindle-lock/spindle/lock"
)

// Task returns a gocron.Task that runs work once for each key. For example, with the key lock.Every(time.Hour), the
// work runs once an hour. It runs on the first machine that starts the job. Create a separate Once for each job, with
// the same name on all machines.
//
// While another machine does the work, the task waits. (It uses lock.Once.Do.) The ctx of work ends if the lock is lost
// or gocron stops the job. Work that fails does not count as done, so the next machine that starts the job, or that is
// already waiting, runs the work again. gocron reports the error (gocron.AfterJobRunsWithError). If another machine has
// done the work, for this time or a later one (lock.ErrPassed), the job counts as a success on this machine, too.
//
// If a listener makes a machine skip the job (gocron.BeforeJobRunsSkipIfBeforeFuncErrors), another machine can run it.
//
// If the work takes longer than its period, on this machine or on another one, each later run waits for it. With
// gocron.WithSingletonMode(gocron.LimitModeReschedule), gocron skips the runs that are due in the meantime.
//
// Task needs no locker. Name the job (gocron.WithName), because gocron would otherwise name it after a function of this
// package.
func Task(once *lock.Once, key lock.Key, work func(ctx context.Context, run lock.Run) error) gocron.Task {
	return gocron.NewTask(func(ctx context.Context) error {
		ran, err := once.Do(ctx, key, work)
		if !ran && errors.Is(err, lock.ErrPassed) {
			return nil
		}
		return err
	})
}
