package recipes

import (
	"context"
	"log"
	"testing"
	"time"

	"cloud.google.com/go/spanner"
	"github.com/alicebob/miniredis/v2"
	"github.com/hibiken/asynq"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spindle-lock/spindle"
	"github.com/spindle-lock/spindle/spindletest"
)

func ExampleSchedule() {
	var ctx context.Context
	var db *spanner.Client
	redis := asynq.RedisClientOpt{Addr: "redis:6379"}

	lock := spindle.New(db, "locktable", "scheduler", spindle.WithHandover(),
		spindle.WithLeader(Schedule(redis, func(s *asynq.Scheduler) error {
			_, err := s.Register("0 3 * * *", asynq.NewTask("report", nil), asynq.Unique(time.Hour))
			return err
		})))
	if err := lock.Run(ctx); err != nil {
		log.Fatal(err)
	}
}

// Only the leader's scheduler enqueues tasks. It is shut down before the next leader's scheduler starts.
func TestTasksAreEnqueuedByWhoLeads(t *testing.T) {
	needEmulator(t)
	redis := asynq.RedisClientOpt{Addr: miniredis.RunT(t).Addr()}
	inspector := asynq.NewInspector(redis)
	t.Cleanup(func() { _ = inspector.Close() })
	enqueued := func() (by []string) {
		tasks, err := inspector.ListPendingTasks("default")
		if err != nil {
			require.ErrorIs(t, err, asynq.ErrQueueNotFound)
		}
		for _, task := range tasks {
			by = append(by, string(task.Payload))
		}
		return by
	}
	each := func(name string) spindle.Option {
		return spindle.WithLeader(Schedule(redis, func(s *asynq.Scheduler) error {
			_, err := s.Register("@every 1s", asynq.NewTask("report", []byte(name)))
			return err
		}))
	}
	db := spindletest.New(t)
	first, stop := compete(t, db, each("first"))
	elected(t, first)
	second, _ := compete(t, db, each("second"))
	require.Eventually(t, func() bool { return len(enqueued()) >= 2 }, time.Minute, 10*time.Millisecond)
	stop()
	before := enqueued()
	assert.NotContains(t, before, "second")
	elected(t, second)
	require.Eventually(t, func() bool { return len(enqueued()) >= len(before)+2 }, time.Minute, 10*time.Millisecond)
	after := enqueued()
	assert.Equal(t, before, after[:len(before)])
	assert.NotContains(t, after[len(before):], "first", "its scheduler was shut down before the lock was released")
}
