package wait

import (
	"math"
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

// How long a lock was held says how long other waiters may still pause. If the rows do not show it, or if a longer term ended not long ago,
// it counts as long: a waiter that took it for short would overtake waiters that are about to claim the lock.
func TestHowLongALockWasHeld(t *testing.T) {
	at := time.UnixMicro(0).Add(time.Hour)
	before := func(ago time.Duration) time.Time { return at.Add(-ago) }
	claimed := table.TokenAt(before(10 * time.Second))
	for name, c := range map[string]struct {
		row  table.Observation
		ago  time.Duration
		held time.Duration
	}{
		"no row":                            {table.Observation{}, 0, math.MaxInt64},
		"released, with a free row":         {table.Observation{Exists: true, Token: claimed, Freed: before(7 * time.Second)}, 0, 3 * time.Second},
		"released, without a free row":      {table.Observation{Exists: true, Token: claimed}, 0, math.MaxInt64},
		"expired":                           {table.Observation{Exists: true, Token: claimed, Heartbeat: before(5 * time.Second)}, 0, 10 * time.Second},
		"expired, of old a longer term":     {table.Observation{Exists: true, Token: claimed, Heartbeat: before(5 * time.Second)}, time.Minute, time.Minute},
		"released, of old a longer term":    {table.Observation{Exists: true, Token: claimed, Freed: before(7 * time.Second)}, time.Minute, time.Minute},
		"released, of old a shorter term":   {table.Observation{Exists: true, Token: claimed, Freed: before(7 * time.Second)}, time.Second, 3 * time.Second},
		"a row of no use, and a long pause": {table.Observation{Exists: true, Token: claimed}, time.Minute, math.MaxInt64},
	} {
		g := gaps{freed: map[string]since{}, ago: c.ago}
		c.row.Name, c.row.At = "m", at
		assert.Equal(t, c.held, g.gap(fair.Line{At: at}, elect.LockView{Observation: c.row}).After, name)
		later := c.row
		later.At, g.ago = at.Add(time.Hour), 0
		assert.Equal(t, c.held, g.gap(fair.Line{At: at}, elect.LockView{Observation: later}).After, "%s: it does not change while nobody claims the lock", name)
	}
}

// The pauses of a waiter for several locks follow the one that changed hands last. The place of that lock among them does not matter.
func TestTheLastChangeIsThatOfTheLockThatChangedLast(t *testing.T) {
	at := time.UnixMicro(0).Add(time.Hour)
	of := func(name string, ago time.Duration) elect.LockView {
		return elect.LockView{Observation: table.Observation{Name: name, At: at, Exists: true, Token: table.TokenAt(at.Add(-ago))}}
	}
	missing := elect.LockView{Observation: table.Observation{Name: "missing", At: at}}
	began := of("began", time.Minute)
	began.Began = at.Add(-4 * time.Second)
	freed := of("freed", time.Minute)
	freed.Freed = at.Add(-2 * time.Second)
	a, b, c := of("a", 30*time.Second), of("b", 10*time.Second), of("c", 20*time.Second)
	g := gaps{freed: map[string]since{"missing": {at: at.Add(-3 * time.Second)}, "a": {at: at}}}
	for want, seen := range map[time.Duration][]elect.LockView{30 * time.Second: {a}, 10 * time.Second: {a, b, c}, 20 * time.Second: {a, c}, 3 * time.Second: {a, missing, b},
		4 * time.Second: {a, began, b}, 2 * time.Second: {missing, began, freed}, math.MaxInt64: {}} {
		assert.Equal(t, want, g.lastChange(seen))
		for i := range seen {
			turned := append(append([]elect.LockView{}, seen[i:]...), seen[:i]...)
			assert.Equal(t, want, g.lastChange(turned))
		}
	}
}

// A longer time since the last change stays in effect until all have ended the pauses that they began then, and no longer: otherwise, all
// waiters would be slow for ever after one long term.
func TestALongTermCountsUntilThePausesOfOthersHaveEnded(t *testing.T) {
	at, trip := time.UnixMicro(0), 100*time.Millisecond
	const lasts = 2 * (longestPause + 100*time.Millisecond)
	g := gaps{}
	g.paused(time.Hour, at, trip)
	for _, c := range []struct{ ago, after, want time.Duration }{
		{time.Second, 0, time.Hour}, {time.Second, lasts, time.Hour}, {time.Second, lasts + 1, time.Second}, {2 * time.Second, lasts + 2, 2 * time.Second},
		{time.Second, 2*lasts + 2, 2 * time.Second}, {time.Second, 2*lasts + 3, time.Second},
	} {
		g.paused(c.ago, at.Add(c.after), trip)
		assert.Equal(t, c.want, g.ago, "%v", c)
	}
}
