package spindlegocron

import (
	"context"

	"github.com/go-co-op/gocron/v2"

	"github.com/spindle-lock/spindle/lock"
)

// Task is a gocron.Task that runs work once for each key, such as lock.Every(time.Hour), on whichever machine asks first.
// Give each job a Once of its own, of the same name on all machines.
//
// It is lock.Once.Do: it waits while another machine does the work, the ctx of work ends if the lock is lost or gocron
// stops the job, and work that fails is not done, so the next that asks or waits does it. The error is gocron's to report
// (gocron.AfterJobRunsWithError). What another machine has done counts as a success here too.
//
// It needs no locker. gocron calls the job after a function of this package unless it is named (gocron.WithName).
func Task(once *lock.Once, key lock.Key, work func(ctx context.Context, run lock.Run) error) gocron.Task {
	return gocron.NewTask(func(ctx context.Context) error {
		_, err := once.Do(ctx, key, work)
		return err
	})
}
