package spindlegocron

import (
	"context"
	"errors"

	"github.com/go-co-op/gocron/v2"

	"github.com/spindle-lock/spindle/lock"
)

// Task returns a gocron.Task that runs work once for each key, such as lock.Every(time.Hour), on the machine that asks
// first. Give each job its own Once, with the same name on all machines.
//
// It is lock.Once.Do: it waits while another machine does the work. The ctx of work ends if the lock is lost or gocron
// stops the job. Work that fails is not done, so the next machine that asks or waits does it. gocron reports the error
// (gocron.AfterJobRunsWithError). Work that another machine has done counts as a success here too, and so does a time that
// is not run any more because a run for a later time was first (lock.ErrPassed).
//
// A machine whose listener skips the job (gocron.BeforeJobRunsSkipIfBeforeFuncErrors) has not asked: others run it.
//
// If the work takes longer than its period, here or on another machine, each fire waits for it. With
// gocron.WithSingletonMode(gocron.LimitModeReschedule), the job leaves out the fires meanwhile.
//
// It needs no locker. gocron names the job after a function of this package unless you name it (gocron.WithName).
func Task(once *lock.Once, key lock.Key, work func(ctx context.Context, run lock.Run) error) gocron.Task {
	return gocron.NewTask(func(ctx context.Context) error {
		ran, err := once.Do(ctx, key, work)
		if !ran && errors.Is(err, lock.ErrPassed) {
			return nil
		}
		return err
	})
}
