package spindlegocron

import (
	"context"
	"fmt"
	"time"

	"github.com/go-co-op/gocron/v2"

	"github.com/spindle-lock/spindle"
)

// NewElector returns an elector with which a scheduler runs jobs only while l holds its lock. Pass it to
// gocron.WithDistributedElector, and call l.Run so that l competes for the lock. The elector makes no RPC. Its error
// wraps spindle.ErrNotLeader and names the leader.
//
// Each machine checks the lock when its own clock fires the job. If the lock moves between the fires on two machines,
// the job runs twice for that time, or not at all. A running job is not informed when the lock is lost, so fence its
// writes (spindle.Lock.Apply). With an elector, gocron does not use lockers, so use Task for jobs that must run once.
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
	return fmt.Errorf("%w: %q held it %v ago", spindle.ErrNotLeader, leader.ID, age.Round(time.Millisecond))
}
