package run

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/spindle-lock/spindle/cmd/spindle/internal/child"
	"github.com/spindle-lock/spindle/cmd/spindle/internal/commandtest"
	"github.com/spindle-lock/spindle/internal/testkit/memstore"
)

// A watchdog releases exec's lock if exec has exited, and only once the program has exited too: otherwise, two programs would run. If
// exec is only late, it may continue, and release the lock itself. Here, there is no database, so that the release fails.
func TestAWatchdogReleasesTheLockOnceExecAndItsProgramAreGone(t *testing.T) {
	const lease = time.Second / 10 // it looks for processes again and again, which takes real time
	for _, why := range []child.Reason{child.Told, child.Dead, child.Late} {
		for _, gone := range []time.Duration{0, lease / 2, 2 * lease} {
			synctest.Test(t, func(t *testing.T) {
				x := &execution{reports: reportsOn(&memstore.Store{}, "job", "me", lease), lease: lease}
				x.Path = ""
				began, took := time.Now(), time.Duration(0)
				said := commandtest.Complaints(func() {
					x.watchdogAction(child.Act{Why: why, Gone: func() bool { return time.Since(began) >= gone }})
					took = time.Since(began)
				})
				releases := why == child.Dead && gone < lease
				assert.Equal(t, releases, strings.Contains(fmt.Sprint(said), "job is left to expire"), "why=%d, gone after %v: %q", why, gone, said)
				switch {
				case releases:
					assert.GreaterOrEqual(t, took, gone)
				case why == child.Late: // otherwise, nothing would say why the program died
					assert.Contains(t, fmt.Sprint(said), "job: exec missed its deadline, so its watchdog ended the program")
				default:
					assert.Empty(t, said)
				}
			})
		}
	}
}

// A watchdog deactivates the service until an attempt succeeds, whatever happened to guard. Guard gets each error. If it can't, the
// watchdog logs the errors itself, and runs the hook once, with the token of guard's last term.
func TestAWatchdogDeactivatesUntilAnAttemptSucceeds(t *testing.T) {
	for _, why := range []child.Reason{child.Told, child.Dead, child.Late} {
		for _, fails := range []int{0, 3} {
			dir := t.TempDir()
			g := guardWith(func(g *guarding) {
				g.deactivate = fmt.Sprintf("echo >>%[1]s/tries; [ $(wc -l <%[1]s/tries) -gt %[2]d ]", dir, fails)
				g.renew, g.confirm, g.state.last = time.Millisecond, 60_000, 7
			})
			g.hooks = hooks{Commands: [...]string{onStuck: `echo $SPINDLE_TOKEN "$SPINDLE_REASON" >>` + dir + "/stuck"}, Limit: time.Minute, Warn: t.Errorf}
			reports := 0
			said := commandtest.Complaints(func() {
				g.watchdogAction(child.Act{Why: why, Report: func(error) bool { reports++; return why == child.Told }})
				g.hooks.Wait(nil)
			})
			tries, _ := os.ReadFile(dir + "/tries")
			assert.Len(t, string(tries), fails+1)
			assert.Equal(t, fails, reports)
			assert.False(t, g.now().Stuck)
			stuck, _ := os.ReadFile(dir + "/stuck")
			if why == child.Told {
				assert.Empty(t, said)
				assert.Empty(t, stuck, "guard runs the hook itself")
			} else {
				assert.Len(t, said, 2+fails, "%q", said)
				assert.Equal(t, fails > 0, string(stuck) == "7 "+g.deactivate+": exit code 1\n", "%s", stuck)
			}
		}
	}
}
