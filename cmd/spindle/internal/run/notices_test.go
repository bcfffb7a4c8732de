//go:build unix

package run

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spindle-lock/spindle/cmd/spindle/internal/commandtest"
	"github.com/spindle-lock/spindle/internal/elect"
	"github.com/spindle-lock/spindle/internal/table"
	"github.com/spindle-lock/spindle/internal/testkit/fleet"
	"github.com/spindle-lock/spindle/internal/testkit/memstore"
)

// hooked lets an exec run hooks, which write their reasons if they know the term.
func hooked(t *testing.T) (change func(*site), told func(s *site, k hookKind) []string) {
	dir := t.TempDir()
	return func(s *site) {
			s.exec.hooks = hooks{Limit: time.Hour, Warn: t.Errorf, Commands: [...]string{
				onLost: `test "$SPINDLE_TOKEN" -gt 0 && echo "$SPINDLE_REASON" >>` + dir + "/on-lost", onStuck: `test "$SPINDLE_TOKEN" -gt 0 && echo "$SPINDLE_REASON" >>` + dir + "/on-stuck"}}
		}, func(s *site, k hookKind) []string {
			s.exec.hooks.Wait(nil)
			text, _ := os.ReadFile(filepath.Join(dir, k.String()))
			return strings.Split(strings.TrimSuffix(string(text), "\n"), "\n")
		}
}

// A loss is told once in a term, and a release is none. Sometimes only the release finds that the lock is gone.
func TestEachLossIsToldOnce(t *testing.T) {
	const superseded = "the token was superseded or released"
	for name, r := range map[string]struct {
		happens func(t *testing.T, s *site, p *program, store *memstore.Store)
		want    string
	}{
		"it is released":   {func(_ *testing.T, s *site, _ *program, _ *memstore.Store) { s.signals <- syscall.SIGTERM }, ""},
		"it is cut off":    {func(_ *testing.T, s *site, _ *program, _ *memstore.Store) { s.Cut() }, "no heartbeat was acknowledged in time"},
		"it is taken away": {func(t *testing.T, _ *site, _ *program, store *memstore.Store) { takeAway(t, store) }, superseded},
		"its row is deleted": {happens: func(t *testing.T, s *site, p *program, store *memstore.Store) {
			gone := table.LeaseKey("job", tokenIn(store, "job"))
			require.NoError(t, store.Commit(t.Context(), "operator", []table.Write{{Kind: table.Delete, Name: gone}}))
			p.exit(0)
		}, want: superseded},
	} {
		synctest.Test(t, func(t *testing.T) {
			store := &memstore.Store{}
			change, told := hooked(t)
			s := newSite(t, store, "a", change, func(s *site) { s.ignores = name == "it is cut off" }).start()
			p := s.running()
			r.happens(t, s, p, store)
			s.ends()
			said := told(s, onLost)
			require.Len(t, said, 1, "%s: %q", name, said)
			assert.Contains(t, said[0], r.want, name)
			assert.Equal(t, r.want == "", said[0] == "", name)
		})
	}
}

// However much of the lease a suspension of the machine leaves: if exec ends its program because of that, the lock counts as lost, which
// is told once, and otherwise nothing has happened.
func TestASuspensionThatCostsAProgramItsTimeIsALoss(t *testing.T) {
	lost := 0
	for left := -lease / 10; left < lease*2/3; left += lease / 32 {
		synctest.Test(t, func(t *testing.T) {
			change, told := hooked(t)
			clock := &fleet.Clock{}
			s := newSite(t, &memstore.Store{}, "a", change, func(s *site) { s.exec.candidate.Clock, s.exec.config.Clock = clock, clock }).start()
			p := s.running()
			synctest.Wait()
			clock.Wall.Add(int64(s.run.term.Left() - left))
			time.Sleep(2 * lease)
			synctest.Wait()
			ended := !p.ended.IsZero()
			if p.exit(0); ended {
				lost++
			}
			end := s.ends()
			assert.Equal(t, ended, end.Code == Lost, "%v are left: %v", left, end)
			said := told(s, onLost)
			require.Len(t, said, 1, "%v are left: %q", left, said)
			assert.Equal(t, ended, strings.Contains(said[0], "no heartbeat was acknowledged in time"), "%v are left: %q", left, said)
			assert.Equal(t, []string{""}, told(s, onStuck), "%v are left: it exits when it is killed", left)
		})
	}
	assert.Greater(t, lost, 4)
}

// While a command waits for its hooks at its end, the lock is released, but its probe still answers, so that the metrics of these hooks
// can be read. Afterwards, nothing listens any more. Systemd is told at once that the command stops: otherwise it would kill the command
// and its hooks for not answering its watchdog.
func TestAProbeAnswersUntilTheLastHookHasEnded(t *testing.T) {
	r := reportsOn(&memstore.Store{}, "job", "me", lease)
	dir := t.TempDir()
	systemd := commandtest.NewSystemd(t, 30*time.Second)
	t.Setenv("NOTIFY_SOCKET", systemd.Socket)
	r.address, r.quiet, r.hooks = "127.0.0.1:0", false, hooks{Limit: time.Minute, Commands: [...]string{onStuck: "until [ -e " + dir + "/end ]; do sleep 0.01; done; exit 3"}}
	said := commandtest.Complaints(func() { require.NoError(t, r.begin()) })
	metrics := regexp.MustCompile(`http://[^"/ ]+`).FindString(said[0]) + "/metrics"
	r.stuck(errGivenUp)
	ended := make(chan struct{})
	go func() { defer close(ended); r.end(nil) }()
	systemd.Until("STOPPING=1")
	for range 3 {
		time.Sleep(time.Millisecond)
		answer, err := http.Get(metrics)
		require.NoError(t, err)
		require.NoError(t, answer.Body.Close())
		assert.Equal(t, http.StatusOK, answer.StatusCode)
	}
	require.NoError(t, os.WriteFile(dir+"/end", nil, 0o600))
	<-ended
	_, err := http.Get(metrics)
	assert.Error(t, err)
}

// A term whose beginning was not told, because the lock came too late, is not told to be lost either, whatever becomes of it.
func TestATermThatWasNotBegunIsNotLost(t *testing.T) {
	for why, gone := range map[string]func(*site, *memstore.Store, *fleet.Clock){
		"its row is deleted": func(s *site, store *memstore.Store, _ *fleet.Clock) {
			key := table.LeaseKey("job", tokenIn(store, "job"))
			require.NoError(s.t, store.Commit(s.t.Context(), "operator", []table.Write{{Kind: table.Delete, Name: key}}))
		},
		"it expires":    func(_ *site, _ *memstore.Store, clock *fleet.Clock) { clock.Wall.Add(int64(2 * lease)) },
		"it is cut off": func(s *site, _ *memstore.Store, _ *fleet.Clock) { s.Cut() },
	} {
		for _, signal := range []bool{true, false} {
			synctest.Test(t, func(t *testing.T) {
				store, clock := &memstore.Store{}, &fleet.Clock{}
				change, told := hooked(t)
				s := newSite(t, store, "a", change, waitsFor(lease/10), func(s *site) { s.exec.candidate.Clock, s.exec.config.Clock = clock, clock })
				s.After(func(step string) {
					if step != "confirm" {
						return
					}
					if signal {
						s.signals <- syscall.SIGTERM
					} else {
						time.Sleep(lease / 5)
					}
					gone(s, store, clock)
				})
				want := NotInTime
				if signal {
					want = byTerm
				}
				assert.Equal(t, want, s.start().ends().Code, why)
				assert.Empty(t, s.ran, why)
				assert.Equal(t, []string{""}, told(s, onLost), "%s, signal=%v", why, signal)
			})
		}
	}
}

// Each outage of the database is logged while exec competes, also one that follows another if the first one ended with the lock: an
// operator would not learn why nothing runs.
func TestEachOutageWhileExecCompetesIsLogged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		said := commandtest.Captured(t)
		s := newSite(t, &memstore.Store{}, "a", func(s *site) { s.exec.restart = true })
		away := func(string) error { return commandtest.Away }
		s.Refuse(away)
		s.start()
		for outages := 1; outages <= 3; outages++ {
			time.Sleep(2 * lease)
			assert.Equal(t, outages, strings.Count(said.String(), "can't compete for job"))
			s.Refuse(nil)
			p := s.running()
			s.Refuse(away)
			p.exit(0)
		}
		s.signals <- syscall.SIGTERM
		s.ends()
	})
}

// Probes and metrics follow exec through its turns: it is ready exactly while its program runs under the lock, and each state has its
// reason. Only heartbeats that failed count as failed, hooks that failed are counted, and a lock that could be released after all does
// not count as lost.
func TestAProbeFollowsExecThroughItsTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &memstore.Store{}
		s := newSite(t, store, "a", func(s *site) { s.ignores, s.exec.restart = true, true })
		s.exec.hooks = hooks{Limit: time.Hour, Commands: [...]string{onLost: "exit 3", onStuck: ""}}
		require.NoError(t, s.exec.begin())
		s.start()
		at := func(ready bool, why string) {
			t.Helper()
			synctest.Wait()
			now := s.exec.now()
			assert.Equal(t, ready, now.Ready)
			assert.Regexp(t, "^"+why+"$", now.Why)
			if now.Held {
				assert.Equal(t, s.exec.state.term.Left(), now.Left)
				assert.Equal(t, int64(tokenIn(store, "job")), now.Token)
			}
		}
		p := s.running()
		at(true, `holding job, token \d+; running work`)
		time.Sleep(lease)
		p.exit(0)
		at(false, "job is no longer held")
		p = s.running()
		at(true, `holding job, token \d+; running work`)
		var all atomic.Bool
		var failed atomic.Int32
		fails := func() {
			s.Refuse(func(step string) error {
				if step == "heartbeat" {
					failed.Add(1)
				} else if !all.Load() {
					return nil
				}
				return commandtest.Away
			})
			for s.exec.now().Ready {
				time.Sleep(lease / 100)
			}
			at(false, "the lock is lost: no heartbeat was acknowledged in time")
		}
		fails()
		assert.Positive(t, s.exec.now().Left, "not yet")
		assert.Less(t, s.exec.now().Left, lease/2, "users are warned of the loss before")
		all.Store(true)
		p.exit(0)
		time.Sleep(lease)
		at(false, "on standby: can't compete for job: Unavailable")
		all.Store(false)
		s.Refuse(nil)
		p = s.running()
		at(true, `holding job, token \d+; running work`)
		s.Lose(func(step string) bool { // what is not answered has failed, too
			if step == "heartbeat" {
				failed.Add(1)
			}
			return step == "heartbeat"
		}, nil)
		time.Sleep(lease / 2)
		s.Mend()
		time.Sleep(lease)
		at(true, `holding job, token \d+; running work`)
		fails()
		p.exit(0) // in time, so exec can release the lock
		s.Refuse(nil)
		s.running()
		at(true, `holding job, token \d+; running work`)
		s.exec.hooks.Wait(nil)
		answer := httptest.NewRecorder()
		s.exec.probe.Handler().ServeHTTP(answer, httptest.NewRequest(http.MethodGet, "/metrics", nil))
		for _, line := range []string{"spindle_terms_begun_total{.*} 4", "spindle_terms_lost_total{.*} 1", `spindle_hook_failures_total{hook="on-lost",.*} 2`, fmt.Sprintf("spindle_heartbeat_failures_total{.*} %d", failed.Load())} {
			assert.Regexp(t, "(?m)^"+line+"$", answer.Body.String())
		}
		s.signals <- syscall.SIGTERM
		time.Sleep(lease)
		s.exitAll(0)
		s.ends()
		at(false, "job is no longer held")
	})
}

// A program that was killed and is there at the lock's deadline may run beside the next holder's. That is told once, for each
// such program, and not before. When the program has exited, nothing more of its term is reported.
func TestAProgramThatOutlivesItsLockIsToldOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		change, told := hooked(t)
		s := newSite(t, &memstore.Store{}, "a", change, func(s *site) { s.ignores, s.undying, s.exec.restart = true, true, true }).start()
		for n := 1; n <= 2; n++ {
			p := s.running()
			begun := time.Now()
			s.Cut()
			for synctest.Wait(); !s.exec.now().Stuck && time.Since(begun) < 2*lease; synctest.Wait() {
				time.Sleep(time.Millisecond)
			}
			assert.InDelta(t, elect.Limit(lease).Seconds(), time.Since(begun).Seconds(), lease.Seconds()/10)
			time.Sleep(3 * lease)
			synctest.Wait()
			assert.Len(t, told(s, onLost), n)
			said := told(s, onStuck)
			require.Len(t, said, n)
			assert.Equal(t, "work was killed, but had not exited by the deadline of job", said[n-1])
			s.Mend()
			p.exit(137)
		}
		s.signals <- syscall.SIGTERM
		s.ends()
		assert.Len(t, told(s, onLost), 2)
		assert.False(t, s.exec.now().Stuck)
	})
}

// As long as the lock is held, a program that was killed but has not exited harms nobody, whatever it was killed for. Nothing is told of
// it before the lock is lost.
func TestAProgramThatHasNotExitedIsNotStuckWhileItsLockIsHeld(t *testing.T) {
	for name, ends := range map[string]func(*site){
		"it runs too long":     func(s *site) { s.exec.runTimeout = lease },
		"it exits too slowly":  func(s *site) { s.exec.limit = lease },
		"it makes no progress": func(s *site) { s.exec.stall = lease },
	} {
		synctest.Test(t, func(t *testing.T) {
			change, told := hooked(t)
			s := newSite(t, &memstore.Store{}, "a", change, func(s *site) { s.ignores, s.undying = true, true })
			s.exec.hooks.Commands[onLost] = ""
			ends(s)
			s.start()
			p := s.running()
			synctest.Wait()
			if s.exec.limit > 0 {
				s.signals <- syscall.SIGTERM
			}
			time.Sleep(5 * lease)
			synctest.Wait()
			require.NotEmpty(t, p.got, name)
			assert.False(t, s.exec.now().Stuck, name)
			assert.Equal(t, []string{""}, told(s, onStuck), name)
			s.Cut()
			time.Sleep(2 * lease)
			synctest.Wait()
			assert.True(t, s.exec.now().Stuck, name)
			p.exit(137)
			s.ends()
			assert.Len(t, told(s, onStuck), 1, name)
		})
	}
}
