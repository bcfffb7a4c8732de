package execcmd

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

func at(s float64) time.Time { return time.Unix(0, 0).Add(time.Duration(s * float64(time.Second))) }

func TestAProgramIsKilledBeforeTheDeadlineHoweverLongTheGrace(t *testing.T) {
	for _, grace := range []time.Duration{0, time.Second, time.Hour} {
		d := deadlines{lease: 10 * time.Second, grace: grace}
		d.extend(at(0), 9900*time.Millisecond)
		told, killed := time.Time{}, time.Time{}
		for now := at(0); killed.IsZero(); now = now.Add(10 * time.Millisecond) {
			d.extend(now, at(9.9).Sub(now))
			switch d.due(now) {
			case late:
				told = now
			case overdue:
				killed = now
			}
		}
		assert.Equal(t, at(9.4), killed, grace)
		if grace > 0 {
			assert.Equal(t, killed.Add(-min(grace, 2500*time.Millisecond)), told, grace)
		}
	}
}

func TestAProgramOfAHealthyHolderIsLeftAlone(t *testing.T) {
	d := deadlines{lease: 3 * time.Second, grace: time.Hour}
	for now, beat := at(0), at(0); now.Before(at(60)); now = now.Add(10 * time.Millisecond) {
		if now.Sub(beat) >= time.Second {
			beat = now
		}
		d.extend(now, beat.Add(2970*time.Millisecond).Sub(now))
		assert.Equal(t, nothing, d.due(now))
	}
}

func TestALockThatWasTakenAwayLeavesTheProgramItsGrace(t *testing.T) {
	d := deadlines{lease: 10 * time.Second, grace: time.Second}
	d.extend(at(0), 9900*time.Millisecond)
	d.lose(at(3))
	assert.Equal(t, time.Second, d.left(at(3)), "what the user is told")
	assert.Equal(t, late, d.due(at(3)))
	assert.Equal(t, 100*time.Millisecond, d.left(at(3.9)))
	assert.Equal(t, nothing, d.due(at(3.9)))
	assert.Equal(t, overdue, d.due(at(4.1)))
}

func TestAProgramThatSleptThroughTheDeadlineIsKilledAtOnce(t *testing.T) {
	d := deadlines{lease: 10 * time.Second, grace: time.Hour}
	d.extend(at(0), 9900*time.Millisecond)
	assert.Equal(t, overdue, d.due(at(60)))
	d.lose(at(60))
	assert.Negative(t, d.left(at(60)), "nobody is told that it has its grace period")
}

// A suspension of the machine shortens what is left of the lease.
func TestADeadlineMovesBack(t *testing.T) {
	d := deadlines{lease: 10 * time.Second, grace: time.Second}
	d.extend(at(0), 9900*time.Millisecond)
	assert.Equal(t, at(3), d.extend(at(1), 2*time.Second))
	assert.Equal(t, overdue, d.due(at(3)))
}

func TestATerminationIsNotTakenBack(t *testing.T) {
	d := deadlines{lease: 10 * time.Second, grace: time.Hour}
	d.extend(at(0), 9900*time.Millisecond)
	assert.Equal(t, late, d.due(at(7)))
	d.extend(at(7.1), 9900*time.Millisecond)
	assert.Equal(t, overdue, d.due(at(9.5)))
}
