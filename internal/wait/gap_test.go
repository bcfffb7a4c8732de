package wait

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/spindle-lock/spindle/internal/elect"
	"github.com/spindle-lock/spindle/internal/fair"
	"github.com/spindle-lock/spindle/internal/table"
)

// The rows of a free lock do not always show since when it has been free.
func TestALockIsFreeAtLeastSinceItWasSeenToBe(t *testing.T) {
	l := gaps{freed: map[string]since{}}
	see := func(at time.Duration, token table.Token, known time.Duration) time.Duration {
		return l.freeFor(elect.LockView{Observation: table.Observation{Name: "m", Token: token, At: time.UnixMicro(0).Add(at)}, FreeFor: known})
	}
	assert.Zero(t, see(time.Second, 1, 0))
	assert.Equal(t, time.Second, see(2*time.Second, 1, 0))
	assert.Equal(t, 5*time.Second, see(2*time.Second, 1, 5*time.Second), "as the rows say, if that is longer")
	assert.Zero(t, see(3*time.Second, 2, 0), "another had it in between")
}

// Where a lock without rows has a queue, a waiter leaves the lock to one ahead that has just arrived, as to any other.
func TestALockWithoutRowsIsFreeSinceTheLastWaiterAheadArrived(t *testing.T) {
	now := time.UnixMicro(0).Add(time.Hour)
	ticket := func(nonce string, ago time.Duration) table.Ticket {
		return table.Ticket{Queue: "m", Time: table.TokenAt(now.Add(-time.Minute)), Nonce: nonce, Beat: now.Add(-ago), Lasts: time.Minute}
	}
	queue := []table.Ticket{ticket("a", 9*time.Second), ticket("b", time.Second), ticket("c", 5*time.Second), ticket("own", 0)}
	g := gaps{freed: map[string]since{}}
	gap := g.gap(fair.Line{Own: queue[3], Tickets: queue, At: now}, elect.LockView{Observation: table.Observation{Name: "m", At: now}})
	assert.Equal(t, time.Second, gap.Lasts)
}
