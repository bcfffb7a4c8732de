package spindlegocron

import (
	"context"
	"errors"

	"github.com/go-co-op/gocron/v2"

	"github.com/spindle-lock/spindle/lock"
)

// Task returns a gocron.Task that runs work once for each key, such as lock.Every(time.Hour), on the first machine that
// asks. Create a separate Once for each job, with the same name on all machines.
//
// Task uses lock.Once.Do, so it waits while another machine does the work. The ctx of work ends if the lock is lost or
// gocron stops the job. Work that fails does not count as done, so it is done by the next machine that asks or is
// waiting. gocron reports the error (gocron.AfterJobRunsWithError). Work that another machine has done counts as a
// success on this machine, too. The same is true if a run for a later time came first, so that the work is no longer
// done for this time (lock.ErrPassed).
//
// If a listener makes a machine skip the job (gocron.BeforeJobRunsSkipIfBeforeFuncErrors), that machine does not ask,
// and another one runs the job.
//
// If the work takes longer than its period, on this machine or on another one, each later fire waits for it. With
// gocron.WithSingletonMode(gocron.LimitModeReschedule), the job omits the fires that are due in the meantime.
//
// Task needs no locker. Unless you name the job (gocron.WithName), gocron names it after a function of this package.
func Task(once *lock.Once, key lock.Key, work func(ctx context.Context, run lock.Run) error) gocron.Task {
	return gocron.NewTask(func(ctx context.Context) error {
		ran, err := once.Do(ctx, key, work)
		if !ran && errors.Is(err, lock.ErrPassed) {
			return nil
		}
		return err
	})
}
