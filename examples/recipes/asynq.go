package recipes

import (
	"context"
	"log"

	"github.com/hibiken/asynq"

	"github.com/spindle-lock/spindle"
)

// Schedule returns a leader function (WithLeader) that enqueues asynq's periodic tasks for as long as its term lasts.
func Schedule(redis asynq.RedisConnOpt, register func(*asynq.Scheduler) error) func(context.Context, spindle.Term) {
	return func(ctx context.Context, _ spindle.Term) {
		scheduler := asynq.NewScheduler(redis, nil) // one for each term, because it can't be started twice
		if err := register(scheduler); err != nil {
			log.Fatal("register a periodic task: ", err) // let another process lead; this one would do nothing
		}
		if err := scheduler.Start(); err != nil {
			log.Fatal("start asynq's scheduler: ", err)
		}
		<-ctx.Done()
		scheduler.Shutdown() // waits for tasks that are being enqueued; the lock is released after that
	}
}
