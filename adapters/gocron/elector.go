package spindlegocron

import (
	"context"
	"fmt"
	"time"

	"github.com/go-co-op/gocron/v2"

	"github.com/spindle-lock/spindle"
)

// NewElector returns an elector that lets a scheduler run jobs only while l holds its lock: give it to
// gocron.WithDistributedElector. Call l.Run so that l competes. The elector makes no RPC. Its error wraps
// spindle.ErrNotLeader and names the leader.
//
// Each machine asks when a job fires, by its own clock: if the lock moves between the fires of two machines, the job runs
// twice for that time, or not at all. A running job does not learn that the lock was lost: fence its writes
// (spindle.Lock.Apply). With an elector, gocron asks no locker: use Task for jobs that must run once.
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
