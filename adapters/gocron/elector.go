package spindlegocron

import (
	"context"
	"fmt"
	"time"

	"github.com/go-co-op/gocron/v2"

	"github.com/spindle-lock/spindle"
)

// NewElector returns an elector that lets a scheduler run jobs only while l holds its lock. Pass it to
// gocron.WithDistributedElector, and call l.Run so that l competes for the lock. The elector makes no RPC. Its error
// wraps spindle.ErrNotLeader and names the leader, if one is known.
//
// Each machine checks the lock when the job is due by its own clock. If the lock moves to another machine at about that
// time, the job may run twice, or not at all. A running job is not told that the lock is lost, so fence its writes
// (spindle.Lock.Apply). A scheduler with an elector does not use lockers. For jobs that must run only once, use Task.
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
