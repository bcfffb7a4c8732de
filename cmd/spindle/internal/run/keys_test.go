//go:build unix

package run

import (
	"cmp"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spindle-lock/spindle/cmd/spindle/internal/commandtest"
	"github.com/spindle-lock/spindle/cmd/spindle/internal/terminal"
	"github.com/spindle-lock/spindle/internal/elect"
	"github.com/spindle-lock/spindle/internal/table"
	"github.com/spindle-lock/spindle/internal/testkit/memstore"
)

// What was recorded last decides whether exec runs its program, no matter when exec learns of it: when it begins, while it waits, or
// under the lock. A key that can't be compared is a failure, never work that was done.
func TestWhatWasDoneLastDecidesWheneverExecLearnsOfIt(t *testing.T) {
	rubbish := table.Due{Key: "rubbish"}
	for name, r := range map[string]struct {
		schedule table.Schedule
		last     table.Due
		code     int
	}{
		"its key":               {table.Named("2"), table.Due{Key: "2"}, 77},
		"a larger key":          {table.Named("1"), table.Due{Key: "2"}, 77},
		"a smaller key":         {table.Named("3"), table.Due{Key: "2"}, 0},
		"its tick":              {ofCron(day), table.Due{Key: "2000-01-01T00:07:30Z", Period: day}, 77},
		"an earlier tick":       {ofCron(day), table.Due{Key: "1999-12-31T00:07:30Z", Period: day}, 0},
		"what is no tick":       {ofCron(day), table.Due{Key: "2"}, terminal.Failed},
		"what nobody can read":  {table.Named("2"), rubbish, terminal.Failed},
		"no tick can read this": {ofCron(day), rubbish, terminal.Failed},
	} {
		for _, when := range []string{"before", "while it waits", "under the lock"} {
			synctest.Test(t, func(t *testing.T) {
				store := &memstore.Store{}
				record := func() {
					writes := table.Record("job", tokenIn(store, "job"), r.last, "other")
					if r.last == rubbish {
						writes[1].Set[2].Value = "rubbish"
					}
					require.NoError(t, store.Commit(t.Context(), "test", writes))
				}
				s := newSite(t, store, "a", func(s *site) { s.exec.once = once{schedule: r.schedule, already: 77} })
				if when == "under the lock" {
					s.After(func(step string) {
						if step == "confirm" {
							record()
						}
					})
					s.start()
				} else {
					held := newSite(t, store, "other").exec.candidate.Try(t.Context(), elect.All, 0).Term
					require.NotNil(t, held)
					if when == "while it waits" {
						s.start()
						time.Sleep(lease / 2)
					}
					record()
					require.NoError(t, held.Release(t.Context(), errGivenUp))
					if when == "before" {
						var over *terminal.Exit
						assert.Equal(t, r.code != 0, errors.As(s.exec.glance(t.Context()), &over), "%s: exec ends before it verifies the table", name)
						assert.Equal(t, r.code, cmp.Or(over, &terminal.Exit{}).Code, name)
						s.exec.todo = table.Due{}
						s.start()
					}
				}
				if r.code == 0 {
					s.running().exit(0)
				}
				assert.Equal(t, r.code, s.ends().Code, "%s, %s", name, when)
				assert.Equal(t, r.code != 0, len(s.ran) == 0, "%s, %s", name, when)
				assert.True(t, free(store), "%s, %s: the lock is kept", name, when)
			})
		}
	}
}

// An exec that waits beyond the end of its period still does the work of that period. Otherwise, nobody would do it. One that begins
// after a failure elsewhere does not pause.
func TestAnExecKeepsItsKeyWhileItWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, tick := &memstore.Store{}, ofCron(time.Minute)
		onTick := func(s *site) { s.exec.once = once{schedule: tick} }
		holder := newSite(t, store, "holder", onTick).start()
		work, want := holder.running(), keyOf(tick, time.Now())
		s := newSite(t, store, "a", onTick).start()
		time.Sleep(3 * time.Minute)
		work.exit(3)
		holder.ends()
		p := s.running()
		assert.Equal(t, want, s.exec.todo.Key)
		p.exit(3)
		s.ends()
		began := time.Now()
		next := newSite(t, store, "b", onTick).start()
		p = next.running()
		assert.Less(t, time.Since(began), lease/1000)
		assert.Equal(t, keyOf(tick, began), next.exec.todo.Key)
		p.exit(0)
		next.ends()
	})
}

// An exec that begins during an outage asks at the usual pace what was done last, and begins soon after the outage.
func TestAnExecThatBeginsDuringAnOutageChoosesItsKeySoonAfterIt(t *testing.T) {
	for name, begins := range map[string]func(*site){
		"refused": func(s *site) { s.Refuse(func(string) error { return commandtest.Away }) }, "unanswered": func(s *site) { s.Cut() },
	} {
		synctest.Test(t, func(t *testing.T) {
			s := newSite(t, &memstore.Store{}, "a", doingOnce)
			begins(s)
			assert.NoError(t, s.exec.glance(t.Context()), "%s: exec ends, but would get an answer later", name)
			s.start()
			time.Sleep(20 * lease)
			asked := s.Counts()["done"]
			assert.LessOrEqual(t, asked, 20*6+10, name)
			s.Refuse(nil)
			s.Mend()
			mended := time.Now()
			p := s.running()
			assert.LessOrEqual(t, time.Since(mended), elect.Attempt(lease)+lease/3+lease/30, name)
			p.exit(0)
			assert.Zero(t, s.ends(), name)
		})
	}
}
