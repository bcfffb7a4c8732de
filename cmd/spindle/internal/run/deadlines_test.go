package run

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

func at(s float64) time.Time { return time.Unix(0, 0).Add(time.Duration(s * float64(time.Second))) }

// A suspension of the machine shortens what is left of the lease, and so does a loss. The program is killed before the new
// deadline, even if it was signaled to end when it had more time.
func TestADeadlineMovesBack(t *testing.T) {
	for name, r := range map[string]struct {
		shorten func(d *deadlines, now time.Time)
		until   float64 // the seconds from then on
	}{
		"a suspension":                        {func(d *deadlines, now time.Time) { d.extend(now, time.Second) }, 1},
		"a loss":                              {(*deadlines).lose, 1.5},
		"a suspension, and a loss soon after": {func(d *deadlines, now time.Time) { d.extend(now, time.Second); d.lose(now) }, 1},
		"the end of the lease":                {(*deadlines).expire, 0},
	} {
		for _, told := range []bool{false, true} {
			d := deadlines{lease: 10 * time.Second, grace: time.Second}
			d.extend(at(0), 9900*time.Millisecond)
			now := 3.0
			if told {
				now = 8.4
				assert.Equal(t, late, d.due(at(now)))
				d.extend(at(now), 9900*time.Millisecond) // a heartbeat came after that
			}
			r.shorten(&d, at(now))
			end := at(now + r.until - 0.5)
			assert.Equal(t, end, at(now).Add(d.left(at(now))), "%s, told=%v: what the user is told", name, told)
			if end.After(at(now)) {
				assert.NotEqual(t, overdue, d.due(end.Add(-time.Millisecond)), "%s, told=%v", name, told)
			}
			assert.Equal(t, overdue, d.due(end), "%s, told=%v", name, told)
			assert.Equal(t, overdue, d.due(end.Add(time.Hour)), "%s, told=%v", name, told)
		}
	}
}

func TestATerminationIsNotTakenBack(t *testing.T) {
	d := deadlines{lease: 10 * time.Second, grace: time.Hour}
	d.extend(at(0), 9900*time.Millisecond)
	assert.Equal(t, late, d.due(at(7)))
	d.extend(at(7.1), 9900*time.Millisecond)
	assert.Equal(t, overdue, d.due(at(9.5)))
}

// Whatever the lease, the grace period and the heartbeats are: the program is signaled once, as late as its grace period allows,
// and killed a second before the lock is lost, or a twentieth of the lease if that is shorter. The watchdog is half as early.
// An earlier kill takes time from the program; a second signal kills programs that take it for impatience.
func TestAProgramIsSignaledOnceAndKilledInTimeWhateverHappens(t *testing.T) {
	for seed := range uint64(400) {
		r := rand.New(rand.NewPCG(seed, 1))
		lease := []time.Duration{time.Second, 10 * time.Second, 20 * time.Second, time.Minute, 10 * time.Minute}[r.IntN(5)]
		grace := []time.Duration{0, lease / 10, lease / 4, time.Hour}[r.IntN(4)]
		spare, most := min(lease/20, time.Second), min(lease/4, grace)
		d := deadlines{lease: lease, grace: grace}
		now := at(0)
		until := now.Add(lease)
		assert.True(t, d.extend(now, lease))
		told, final := false, false
		for range 200 {
			now = now.Add(time.Duration(r.Int64N(int64(lease / 20))))
			switch r.IntN(12) {
			case 0: // a heartbeat
				forward := !told && now.Add(lease).Sub(until) > lease/100 // two clocks are read one after the other
				assert.Equal(t, forward && !final, d.extend(now, lease), "seed %d", seed)
				if forward && !final {
					until = now.Add(lease)
				}
			case 1: // a suspension, sometimes
				left := time.Duration(r.Int64N(int64(lease)))
				if r.IntN(10) == 0 && now.Add(left).Before(until) {
					d.extend(now, left)
					if !final {
						until = now.Add(left)
					}
				}
			case 2:
				if r.IntN(10) == 0 {
					d.lose(now)
					final = true
					if last := now.Add(most + spare); last.Before(until) {
						until = last
					}
				}
			}
			want := nothing
			switch kill := until.Add(-spare); {
			case !now.Before(kill):
				want, told = overdue, true
			case !told && !now.Before(kill.Add(-most)):
				want, told = late, true
			}
			assert.Equal(t, want, d.due(now), "seed %d", seed)
			assert.Equal(t, until.Add(-spare).Sub(now), d.left(now), "seed %d", seed)
			assert.Equal(t, until.Add(-spare/2), d.watched(), "seed %d", seed)
			if t.Failed() {
				return
			}
		}
	}
}
