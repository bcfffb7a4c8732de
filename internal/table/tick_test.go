package table

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

// left returns how far a time is from the next or the last change of the key.
func left(t Tick, at time.Time) time.Duration { return t.Period/2 - at.Sub(t.Begin(at)).Abs() }

func TestATimeCloseToTheEndOfAPeriodHasABetterOffset(t *testing.T) {
	const day = 24 * time.Hour
	for _, period := range []time.Duration{time.Minute, 5 * time.Minute, time.Hour, day, 7 * day} {
		near := min(period/50, 5*time.Minute)
		for offset := time.Duration(0); offset < period; offset += period / 10 {
			tick := Tick{Period: period, Offset: offset.Truncate(time.Second), Nearest: true}
			end := tick.Begin(time.Date(2026, 11, 21, 23, 59, 59, 0, time.UTC)).Add(period / 2)
			for _, off := range []time.Duration{-near, -time.Millisecond, 0, time.Millisecond, near} {
				offset, near := tick.BetterOffset(end.Add(off))
				assert.True(t, near, "%v %v", tick, off)
				better := Tick{Period: period, Offset: offset, Nearest: true}
				assert.NoError(t, better.Check())
				assert.GreaterOrEqual(t, left(better, end.Add(off)), period/2-time.Minute/2, "%v %v", tick, off)
			}
			for _, off := range []time.Duration{near + time.Millisecond, period / 2, period - near - time.Millisecond} {
				_, near := tick.BetterOffset(end.Add(off))
				assert.False(t, near, "%v %v", tick, off)
			}
		}
	}
	_, near := Tick{Period: 2 * time.Second, Nearest: true}.BetterOffset(time.Unix(1, 0))
	assert.False(t, near, "no cron fires so often")
}

// A clock that is slightly fast gives the same offset as one that is slightly slow.
func TestABetterOffsetIsTheTimeThatWasMeant(t *testing.T) {
	hourly := Tick{Period: time.Hour, Nearest: true}
	for at, want := range map[time.Duration]time.Duration{
		30*time.Minute - time.Millisecond: 30 * time.Minute, // hourly in Kolkata
		30*time.Minute + time.Second:      30 * time.Minute,
	} {
		offset, _ := hourly.BetterOffset(time.Date(2026, 11, 21, 3, 0, 0, 0, time.UTC).Add(at))
		assert.Equal(t, want, offset)
	}
	night := Tick{Period: 24 * time.Hour, Offset: 12 * time.Hour, Nearest: true}
	offset, _ := night.BetterOffset(time.Date(2026, 11, 20, 23, 59, 59, 0, time.UTC))
	assert.Zero(t, offset)
}
