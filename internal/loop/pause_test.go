package loop

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spindle-lock/spindle/internal/elect"
	"github.com/spindle-lock/spindle/internal/table"
)

// atLeast is a clock whose random durations are always the smallest possible ones.
type atLeast struct{ elect.SystemClock }

func (atLeast) Random(time.Duration) time.Duration { return 0 }

// atMost is a clock whose random durations are always the longest possible ones.
type atMost struct{ elect.SystemClock }

func (atMost) Random(limit time.Duration) time.Duration { return limit - 1 }

func allowed(table.Done, time.Time) error { return nil }

// paused looks at a lock that was given back under a token until the lock is chosen, more often than it has to, and returns
// how long that took.
func paused(p *Pause, released, recorded table.Token) time.Duration {
	choose := p.Choose(func() (table.Done, time.Time, error) { return table.Done{Token: recorded}, time.Now(), nil }, allowed)
	for start := time.Now(); ; {
		d := choose([]elect.LockView{{Observation: table.Observation{Exists: true, Token: released}}})
		if d.Claim != nil {
			return time.Since(start)
		}
		time.Sleep((d.Wait + 1) / 2)
	}
}

// isHeld looks at the lock while another caller holds it.
func isHeld(p *Pause) { p.Choose(nil, nil)([]elect.LockView{{FreeIn: time.Second}}) }

// The documented lengths are the longest ones. Half of each is random.
func TestAPauseGrowsFromFailureToFailureUntilSomethingIsDone(t *testing.T) {
	for most, clock := range map[time.Duration]elect.Clock{time.Second / 2: atLeast{}, time.Second: atMost{}} {
		synctest.Test(t, func(t *testing.T) {
			p := &Pause{Clock: clock, Longest: LongestPause(10 * time.Second)}
			p.Asked(table.Done{Token: 1}, time.UnixMicro(1))
			isHeld(p)
			var pauses []time.Duration
			for token := range table.Token(100) { // more than an integer has bits
				pauses = append(pauses, paused(p, 2+token, 1))
			}
			assert.Equal(t, append([]time.Duration{most / 8, most / 4, most / 2}, slices.Repeat([]time.Duration{most}, 97)...), pauses)
			assert.Zero(t, paused(p, 200, 199), "something was done")
			assert.Equal(t, most/8, paused(p, 201, 199), "from the beginning")
			assert.Zero(t, paused(p, 201, 199), "one pause for one failure")
		})
	}
	for lease, longest := range map[time.Duration]time.Duration{100 * time.Millisecond: 10 * time.Millisecond, 9 * time.Second: 900 * time.Millisecond, time.Hour: time.Second} {
		assert.Equal(t, longest, LongestPause(lease))
	}
}

func TestNobodyPausesWithoutAFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &Pause{Clock: atLeast{}, Longest: time.Second}
		p.Asked(table.Done{}, time.UnixMicro(5))
		assert.Zero(t, paused(p, 4, 0), "given back before it asked")
		p.Longest = 0
		assert.Zero(t, paused(p, 7, 0), "it does not wait")
		p.Longest = time.Second
		notReleased := []elect.LockView{{Observation: table.Observation{Exists: true, Token: 8}, NotReleased: true}}
		another := &Pause{Clock: atLeast{}, Longest: time.Second}
		another.Asked(table.Done{}, time.UnixMicro(5))
		d := another.Choose(func() (table.Done, time.Time, error) { return table.Done{}, time.Now(), nil }, allowed)(notReleased)
		assert.Len(t, d.Claim, 1, "of a holder that was killed before it had recorded anything")
		d = p.Choose(func() (table.Done, time.Time, error) { return table.Done{Token: 8}, time.Now(), nil }, allowed)(notReleased)
		assert.Len(t, d.Claim, 1, "of a holder that was killed")
		assert.Equal(t, time.Second/16, paused(p, 9, 8), "it had recorded its work, but the next holder has not")
	})
}

// A look that fails, and one that shows work that forbids a claim, decide nothing: the failure counts at the next look.
func TestALookThatFailsForgetsNoFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &Pause{Clock: atLeast{}, Longest: time.Second}
		p.Asked(table.Done{Token: 1}, time.UnixMicro(1))
		isHeld(p)
		for token := range table.Token(3) {
			released := []elect.LockView{{Observation: table.Observation{Exists: true, Token: 2 + token}}}
			unreachable := func() (table.Done, time.Time, error) { return table.Done{}, time.Time{}, assert.AnError }
			require.ErrorIs(t, p.Choose(unreachable, allowed)(released).Err, assert.AnError)
			forbids := func(table.Done, time.Time) error { return assert.AnError }
			require.ErrorIs(t, p.Choose(func() (table.Done, time.Time, error) { return table.Done{Token: 1}, time.Now(), nil }, forbids)(released).Err, assert.AnError)
			assert.Equal(t, time.Second/16<<token, paused(p, 2+token, 1))
		}
	})
}

// A row does not always show when the lock was released (see table.Observation.ReleasedAt). A caller that has seen the
// lock held knows that it was released later.
func TestAFailureCountsOnceTheLockWasSeenHeld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &Pause{Clock: atLeast{}, Longest: time.Second}
		p.Asked(table.Done{}, time.UnixMicro(5))
		isHeld(p)
		assert.Equal(t, time.Second/16, paused(p, 4, 0))
		unseen := &Pause{Clock: atLeast{}, Longest: time.Second}
		unseen.Asked(table.Done{}, time.UnixMicro(5))
		assert.Equal(t, time.Second/16, paused(unseen, 7, 0), "it was held and given back between two looks")
	})
}
