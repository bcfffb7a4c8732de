package cli

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spindle-lock/spindle/internal/elect"
	"github.com/spindle-lock/spindle/internal/memtable"
	"github.com/spindle-lock/spindle/internal/table"
)

const day = 24 * time.Hour

func ofCron(period time.Duration) table.Tick {
	return table.Tick{Period: period, Offset: usualOffset(period), Nearest: true}
}

// left is how far an instant is from the next or the last end of a period.
func left(t table.Tick, at time.Time) time.Duration { return t.Period/2 - at.Sub(t.Begin(at)).Abs() }

// Cron lines name quarters of an hour, in zones that are quarters of an hour apart: minutes between the clocks of two
// machines must not matter to any of them.
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

func TestWhoAsksCloseToTheEndOfAPeriodIsToldABetterOffset(t *testing.T) {
	for _, period := range []time.Duration{time.Minute, 5 * time.Minute, time.Hour, day, 7 * day} {
		near := min(period/50, 5*time.Minute)
		for offset := time.Duration(0); offset < period; offset += period / 10 {
			tick := table.Tick{Period: period, Offset: offset.Truncate(time.Second), Nearest: true}
			end := tick.Begin(time.Date(2026, 11, 21, 23, 59, 59, 0, time.UTC)).Add(period / 2)
			for _, off := range []time.Duration{-near, 0, near} {
				better := table.Tick{Period: period, Offset: betterOffset(tick, end.Add(off)), Nearest: true}
				assert.NoError(t, better.Check())
				assert.GreaterOrEqual(t, left(better, end.Add(off)), period/2-time.Minute, "%v %v", tick, off)
			}
			for _, off := range []time.Duration{near + time.Millisecond, period / 2, period - near - time.Millisecond} {
				assert.Negative(t, betterOffset(tick, end.Add(off)), "%v %v", tick, off)
			}
		}
	}
	often := table.Tick{Period: 2 * time.Second, Nearest: true}
	assert.Negative(t, betterOffset(often, time.Unix(1, 0)), "no cron fires so often")
}

func TestADurationIsWrittenAsPeopleGiveIt(t *testing.T) {
	for want, d := range map[string]time.Duration{"24h": day, "1h30m": 90 * time.Minute, "12h7m30s": 12*time.Hour + 450*time.Second,
		"10m": 10 * time.Minute, "1h0m10s": time.Hour + 10*time.Second, "0s": 0, "40s": 40 * time.Second} {
		assert.Equal(t, want, brief(d))
	}
}

// looks are those at what was done last: how they are bound.
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

// The last holder may record the key until its lease row is gone, which is after the first two looks: so the program is not
// started before a strong read under the lock.
func TestWhatIsRecordedWhileTheLockIsClaimedIsNotRunAgain(t *testing.T) {
	store := &looks{Store: &memtable.Store{}}
	x := &execution{competitor: competitor{common: &common{}, name: "job", id: "me", quiet: true}, lease: 10 * time.Second}
	x.once = once{named: "2", already: 77}
	x.rival = elect.Candidate{Table: table.Table{Store: store}, Clock: elect.SystemClock{}, Names: []string{"job"}, ID: "me", Promise: table.Promise{Lease: x.lease}}
	step := x.step(t.Context())
	require.NoError(t, step.Err)
	require.NotNil(t, step.Term)
	assert.NoError(t, x.again(step.Term), "nothing is recorded")

	record := table.Record("job", step.Term.Token(), "1", "other")
	require.NoError(t, store.Commit(t.Context(), "test", record))
	assert.NoError(t, x.again(step.Term), "another key, before it")
	record = table.Record("job", step.Term.Token(), "2", "other")
	require.NoError(t, store.Commit(t.Context(), "test", record))
	var over *exit
	require.ErrorAs(t, x.again(step.Term), &over)
	assert.Equal(t, 77, over.code)
	assert.False(t, x.did(result{}), "so there is nothing to record")
	assert.Equal(t, []table.Bound{table.Present, table.Present, table.Strong, table.Strong, table.Strong}, store.bounds)

	step.Term.End(errors.New("taken away"))
	x.key = "3"
	require.ErrorAs(t, x.again(step.Term), &over)
	assert.Equal(t, lost, over.code)
}

// Each reply to the release is lost until the lease is over: what was recorded is not told as undone.
func TestWhatIsRecordedIsDoneThoughNoReplySaysSo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		link := &memtable.Link{Store: &memtable.Store{}}
		x := &execution{competitor: competitor{common: &common{}, name: "job", id: "me", quiet: true}, lease: 10 * time.Second}
		x.once = once{named: "1"}
		x.rival = elect.Candidate{Table: table.Table{Store: link}, Clock: elect.SystemClock{}, Names: []string{"job"}, ID: "me", Promise: table.Promise{Lease: x.lease}}
		step := x.step(t.Context())
		require.NotNil(t, step.Term)
		link.Lose(nil, func(step string) bool { return step == "finish" })
		assert.NoError(t, x.giveBack(step.Term, true))

		x.key = "2"
		step = x.step(t.Context())
		require.NotNil(t, step.Term)
		link.Lose(func(step string) bool { return step == "finish" }, nil)
		assert.ErrorContains(t, x.giveBack(step.Term, true), "could not be released")
	})
}

func TestOnlyAProgramThatSucceedsByItselfHasDoneIt(t *testing.T) {
	x := &execution{}
	assert.False(t, x.did(result{}), "nothing is to be done once")
	x.key = "1"
	assert.True(t, x.did(result{}))
	for _, r := range []result{{code: 1}, {code: 143}, {late: true}, {err: errors.New("not started")}} {
		assert.False(t, x.did(r), "%+v", r)
	}
}
