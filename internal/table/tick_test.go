package table

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

// Another process may get another key for a call within a fiftieth of the period, at most five minutes, of the change.
func TestACallCloseToTheChangeOfTheKeyIsARisk(t *testing.T) {
	const day = 24 * time.Hour
	for _, period := range []time.Duration{time.Minute, 5 * time.Minute, time.Hour, day, 7 * day} {
		near := min(period/50, 5*time.Minute)
		for offset := time.Duration(0); offset < period; offset += period / 10 {
			tick := Tick{Period: period, Offset: offset.Truncate(time.Second), Nearest: true}
			change := tick.Begin(time.Date(2026, 11, 21, 23, 59, 59, 0, time.UTC)).Add(period / 2)
			for off, want := range map[time.Duration]bool{-near: true, -time.Millisecond: true, 0: true, near: true,
				near + time.Millisecond: false, period / 2: false, period - near - time.Millisecond: false} {
				_, risk := tick.Due(change.Add(off))
				assert.Equal(t, want, risk != "", "%v %v", tick, off)
			}
			tick.Nearest = false
			_, risk := tick.Due(change)
			assert.Empty(t, risk, "such a schedule has no times that another clock could miss")
		}
	}
	_, risk := Tick{Period: 2 * time.Second, Nearest: true}.Due(time.Unix(1, 0).UTC())
	assert.Empty(t, risk, "no cron fires so often")
}
