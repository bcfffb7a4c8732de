package spindlegocron

import (
	"context"
	"fmt"
	"time"

	"github.com/go-co-op/gocron/v2"

	"github.com/spindle-lock/spindle"
)

// NewElector lets a scheduler run jobs only while l holds its lock: give it to gocron.WithDistributedElector. Call l.Run
// for it to compete. The answer is local: no RPC. Otherwise the error wraps spindle.ErrNotLeader and says who leads.
//
// Who leads is asked when a job fires, by each machine's own clock: if the lock moves between the fires of two machines,
// the job runs twice for that time, or not at all. Nor is a job told that the lock was lost while it runs: fence what it
// writes (spindle.Lock.Apply). With an elector, gocron asks no locker: use Task for jobs that are to run once.
func NewElector(l *spindle.Lock) gocron.Elector { return elector{l} }

type elector struct{ lock *spindle.Lock }

func (e elector) IsLeader(context.Context) error {
	if leads, _ := e.lock.HasLock(); leads {
		return nil
	}
	leader, age, known := e.lock.Seen()
	if !known {
		return fmt.Errorf("%w: no leader is known", spindle.ErrNotLeader)
	}
	return fmt.Errorf("%w: %q does, as seen %v ago", spindle.ErrNotLeader, leader.ID, age.Round(time.Millisecond))
}
