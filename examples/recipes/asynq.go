package recipes

import (
	"context"
	"log"

	"github.com/hibiken/asynq"

	"github.com/spindle-lock/spindle"
)

// Schedule returns a function for spindle.WithLeader that enqueues asynq's periodic tasks until the term ends.
func Schedule(redis asynq.RedisConnOpt, register func(*asynq.Scheduler) error) func(context.Context, spindle.Term) {
	return func(ctx context.Context, _ spindle.Term) {
		scheduler := asynq.NewScheduler(redis, nil) // a scheduler can't be started twice, so each term needs a new one
		if err := register(scheduler); err != nil {
			log.Print("register a periodic task: ", err)
			return // gives up the lock, so that another process leads instead
		}
		if err := scheduler.Start(); err != nil {
			log.Print("start asynq's scheduler: ", err)
			return
		}
		<-ctx.Done()
		scheduler.Shutdown() // the lock is not released before the last task is enqueued
	}
}
