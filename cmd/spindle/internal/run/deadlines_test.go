package run

import (
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
