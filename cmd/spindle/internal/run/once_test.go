package run

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spindle-lock/spindle/cmd/spindle/internal/connect"
	"github.com/spindle-lock/spindle/cmd/spindle/internal/terminal"
	"github.com/spindle-lock/spindle/internal/elect"
	"github.com/spindle-lock/spindle/internal/table"
	"github.com/spindle-lock/spindle/internal/testkit/memstore"
)

const day = 24 * time.Hour

func ofCron(period time.Duration) table.Tick {
	return table.Tick{Period: period, Offset: table.UsualOffset(period), Nearest: true}
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
	assert.Equal(t, "2026-11-21T00:07:30Z", night.Key(time.Date(2026, 11, 20, 23, 59, 59, 0, time.UTC)), "a clock that is early")
	assert.Equal(t, "2026-11-21T00:07:30Z", night.Key(time.Date(2026, 11, 21, 3, 0, 0, 0, time.UTC)))
}

// A report that is named after its key would have tomorrow's date.
func TestALateRunIsToldWhichOffsetHasItsOwnDate(t *testing.T) {
	for at, want := range map[string]string{"23:00": "23h", "12:08": "12h8m", "12:07": "", "03:00": "", "00:00": ""} {
		now, err := time.Parse("2006-01-02 15:04", "2026-11-20 "+at)
		require.NoError(t, err)
		offset, other := ofTomorrow(ofCron(day), now)
		assert.Equal(t, want != "", other, at)
		if other {
			assert.Equal(t, want, terminal.Brief(offset))
			assert.Equal(t, "2026-11-20", table.Tick{Period: day, Offset: offset, Nearest: true}.Key(now)[:10])
		}
		_, other = ofTomorrow(ofCron(7*day), now)
		assert.False(t, other)
	}
}

// What exec says about the change of the clocks is what to do.
func TestAMissedSpringIsSaidWithWhatPreventsIt(t *testing.T) {
	berlin := time.FixedZone("", 3600)
	spring := table.Spring{At: time.Date(2027, 3, 28, 2, 0, 0, 0, berlin), Offset: 12*time.Hour + 30*time.Minute}
	now := time.Date(2026, 11, 20, 14, 0, 2, 0, berlin)
	assert.Equal(t, "if your timers fire at 14:00 local time, CMD misses a run when clocks are set forward on 2027-03-28, because the timers then fire twice in one period of --every 24h. To prevent this, set --offset 12h30m on all machines",
		aboutSpring(spring, day, now))
	spring.None = true
	assert.Contains(t, aboutSpring(spring, 61*time.Minute, now), "one period of --every 1h1m. No --offset prevents this, so use a different period")
}

// looks records with which bounds exec read what was done last.
type looks struct {
	table.Store
	bounds []table.Bound
}

func (l *looks) Read(ctx context.Context, step string, bound table.Bound, keys table.Keys) ([]table.Row, time.Time, error) {
	if step == "done" {
		l.bounds = append(l.bounds, bound)
	}
	return l.Store.Read(ctx, step, bound, keys)
}

// The last holder may record the key until its lease row is gone, which is after the first two looks. So exec asks again
// under the lock, with a strong read.
func TestWhatIsRecordedWhileTheLockIsClaimedIsNotRunAgain(t *testing.T) {
	store := &looks{Store: &memstore.Store{}}
	x := &execution{lockCommand: lockCommand{Database: &connect.Database{}, name: "job", id: "me", quiet: true}, lease: 10 * time.Second}
	x.once = once{named: "2", already: 77}
	x.candidate = elect.Candidate{Table: table.Table{Store: store}, Clock: elect.SystemClock{}, Names: []string{"job"}, ID: "me", LeaseRecord: table.LeaseRecord{Lease: x.lease}}
	step := x.step(t.Context())
	require.NoError(t, step.Err)
	require.NotNil(t, step.Term)
	due := func() *End {
		end, err := x.Due(t.Context())
		require.NoError(t, err)
		return end
	}
	assert.Nil(t, due(), "nothing is recorded")

	record := table.Record("job", step.Term.Token(), table.Due{Key: "1"}, "other")
	require.NoError(t, store.Commit(t.Context(), "test", record))
	assert.Nil(t, due(), "another key, before it")
	record = table.Record("job", step.Term.Token(), table.Due{Key: "2"}, "other")
	require.NoError(t, store.Commit(t.Context(), "test", record))
	assert.Equal(t, &End{Code: 77}, due())
	assert.Equal(t, []table.Bound{table.Present, table.Present, table.Strong, table.Strong, table.Strong}, store.bounds)
}

// A fleet that waits for a program that fails does not run it back to back. With --try exec does not wait.
func TestAProgramThatFailedElsewhereIsRunAgainAfterAPause(t *testing.T) {
	for _, try := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			rows := table.Table{Store: &memstore.Store{}}
			candidate := func(id string) elect.Candidate {
				return elect.Candidate{Table: rows, Clock: elect.SystemClock{}, Names: []string{"job"}, ID: id, LeaseRecord: table.LeaseRecord{Lease: 10 * time.Second}}
			}
			x := &execution{lockCommand: lockCommand{Database: &connect.Database{}, name: "job", id: "me", quiet: true}, lease: 10 * time.Second, try: try}
			x.once, x.candidate = once{named: "1"}, candidate("me")
			x.beginOnce()
			other := candidate("other")
			holder := other.Try(t.Context(), elect.All, 0).Term
			require.NotNil(t, holder)
			require.Nil(t, x.step(t.Context()).Term, "held by another")
			require.NoError(t, holder.Release(t.Context(), errors.New("failed")))
			start := time.Now()
			step := x.step(t.Context())
			for ; step.Term == nil; step = x.step(t.Context()) {
				require.NoError(t, step.Err)
				time.Sleep(step.Pause)
			}
			assert.Equal(t, try, time.Since(start) == 0, "%v", time.Since(start))
			step.Term.End(errors.New("the end"))
		})
	}
}
