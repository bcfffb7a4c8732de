package run

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spindle-lock/spindle/internal/elect"
	"github.com/spindle-lock/spindle/internal/table"
	"github.com/spindle-lock/spindle/internal/testkit/memstore"
)

const day = 24 * time.Hour

func ofCron(period time.Duration) table.Tick {
	return table.Tick{Period: period, Offset: table.UsualOffset(period), Nearest: true}
}

func keyOf(t table.Tick, at time.Time) string {
	due, _ := t.Due(at)
	return due.Key
}

// left is how far an instant is from the next or the last end of a period.
func left(t table.Tick, at time.Time) time.Duration { return t.Period/2 - at.Sub(t.Begin(at)).Abs() }

// Cron lines name quarters of an hour, in zones that are quarters of an hour apart. With none of them may some minutes
// between the clocks of two machines matter.
func TestPeriodsEndFarFromTheTimesOfCron(t *testing.T) {
	for _, period := range []time.Duration{30 * time.Minute, time.Hour, 2 * time.Hour, 6 * time.Hour, 12 * time.Hour, day, 7 * day} {
		for at := time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC); at.Month() == time.November; at = at.Add(15 * time.Minute) {
			assert.GreaterOrEqual(t, left(ofCron(period), at), 450*time.Second, "%v at %v", period, at)
		}
	}
	for _, period := range []time.Duration{time.Second, 7 * time.Second, time.Minute, 5 * time.Minute, 15 * time.Minute} {
		full := time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC).Truncate(period)
		assert.Equal(t, period/2, left(ofCron(period), full), period)
	}
	night := ofCron(day)
	assert.Equal(t, "2026-11-21T00:07:30Z", keyOf(night, time.Date(2026, 11, 20, 23, 59, 59, 0, time.UTC)), "a clock that is early")
	assert.Equal(t, "2026-11-21T00:07:30Z", keyOf(night, time.Date(2026, 11, 21, 3, 0, 0, 0, time.UTC)))
	given := once{tick: table.Tick{Period: day}}
	require.NoError(t, given.schedules("--every", true))
	assert.Equal(t, "2026-11-21T00:00:00Z", keyOf(given.tick, time.Date(2026, 11, 21, 3, 0, 0, 0, time.UTC)), "--offset 0s is not --offset left out")
}

// A fleet that waits for a program that fails does not run it back to back. With --try exec does not wait, and a failure from before
// its start does not matter, whether an earlier key was done or not.
func TestAProgramThatFailedElsewhereIsRunAgainAfterAPause(t *testing.T) {
	for i := range 8 {
		try, waits, earlier := i&1 > 0, i&2 > 0, i&4 > 0
		synctest.Test(t, func(t *testing.T) {
			rows := table.Table{Store: &memstore.Store{}}
			x := &execution{reports: reportsOn(rows.Store, "job", "me", lease), lease: lease, atOnce: try, once: once{schedule: table.Named("1")}}
			x.beginOnce()
			other := reportsOn(rows.Store, "job", "other", lease).candidate
			if earlier {
				require.NoError(t, other.Try(t.Context(), elect.All, 0).Term.Finish(t.Context(), errGivenUp, table.Due{Key: "0"}, "other"))
			}
			time.Sleep(lease)
			holder := other.Try(t.Context(), elect.All, 0).Term
			require.NotNil(t, holder)
			if waits {
				require.Nil(t, x.step(t.Context()).Term, "held by another")
			}
			require.NoError(t, holder.Release(t.Context(), errors.New("failed")))
			time.Sleep(lease)
			start := time.Now()
			step := x.step(t.Context())
			for ; step.Term == nil; step = x.step(t.Context()) {
				require.NoError(t, step.Err)
				time.Sleep(step.Pause)
			}
			assert.Equal(t, try || !waits, time.Since(start) == 0, "try=%v, waits=%v, earlier=%v: %v", try, waits, earlier, time.Since(start))
			step.Term.End(errors.New("the end"))
		})
	}
}

// Machines whose clocks are wrong choose the same key, or one would repeat what another has done, or skip what is due.
func TestTheKeyFollowsSpannersClock(t *testing.T) {
	every, cron := once{tick: table.Tick{Period: time.Hour}}, once{line: "0 * * * *", zone: "Asia/Kolkata"}
	require.NoError(t, every.schedules("--every", false))
	require.NoError(t, cron.schedules("--cron", false))
	for _, o := range []once{every, cron} {
		for _, ahead := range []time.Duration{-25 * time.Hour, -time.Hour, 0, time.Hour, 25 * time.Hour} {
			synctest.Test(t, func(t *testing.T) {
				x := &execution{reports: reportsOn(&memstore.Store{Ahead: func() time.Duration { return ahead }}, "job", "me", lease), lease: lease, once: o}
				x.beginOnce()
				require.NoError(t, x.choose(t.Context()))
				due, _ := o.schedule.Due(time.Now().Add(ahead))
				assert.Equal(t, due, x.todo, "%v", ahead)
			})
		}
	}
}

// A timer that is early or late, by less than half of its period, has the key of its own time, whichever flag says when it fires.
func TestATimerThatIsNotOnTimeHasTheKeyOfItsTime(t *testing.T) {
	for flag, o := range map[string]once{
		"--every": {tick: table.Tick{Period: day, Offset: 3 * time.Hour}}, "--cron": {line: "0 3 * * *", zone: "UTC"},
	} {
		require.NoError(t, o.schedules(flag, true))
		for late := -11 * time.Hour; late <= 11*time.Hour; late += time.Hour / 2 {
			due, _ := o.schedule.Due(time.Date(2026, 11, 20, 3, 0, 0, 0, time.UTC).Add(late))
			assert.Equal(t, "2026-11-20T03:00:00Z", due.Key, "%s, %v late", flag, late)
		}
	}
}
