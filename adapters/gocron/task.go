package spindlegocron

import (
	"context"
	"errors"

	"github.com/go-co-op/gocron/v2"

	"github.com/spindle-lock/spindle/lock"
)

// Task is a gocron.Task that runs work once for each key, such as lock.Every(time.Hour), on whichever machine asks first.
// Give each job a Once of its own, of the same name on all machines.
//
// It is lock.Once.Do: it waits while another machine does the work, the ctx of work ends if the lock is lost or gocron
// stops the job, and work that fails is not done, so the next that asks or waits does it. The error is gocron's to report
// (gocron.AfterJobRunsWithError). What another machine has done counts as a success here too, and so does a time that is
// not run any more, as a run for a later time was first (lock.ErrPassed).
//
// A machine whose listener skips the job (gocron.BeforeJobRunsSkipIfBeforeFuncErrors) has not asked: others run it.
//
// If the work takes longer than its period, here or on another machine, each fire waits for it. Give the job
// gocron.WithSingletonMode(gocron.LimitModeReschedule), and the fires meanwhile are left out.
//
// It needs no locker. gocron calls the job after a function of this package unless it is named (gocron.WithName).
func Task(once *lock.Once, key lock.Key, work func(ctx context.Context, run lock.Run) error) gocron.Task {
	return gocron.NewTask(func(ctx context.Context) error {
		ran, err := once.Do(ctx, key, work)
		if !ran && errors.Is(err, lock.ErrPassed) {
			return nil
		}
		return err
	})
}
