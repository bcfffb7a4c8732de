//go:build unix

package run

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spindle-lock/spindle/cmd/spindle/internal/commandtest"
	"github.com/spindle-lock/spindle/cmd/spindle/internal/terminal"
	"github.com/spindle-lock/spindle/internal/testkit/memstore"
)

// A program that runs too long, or makes no progress, is signaled, and killed after its grace period. Its lock is released, not
// left to expire, once it has ended.
func TestAProgramThatDoesNotFulfilWhatIsDemandedIsEnded(t *testing.T) {
	const limit = 6 * lease
	for name, c := range map[string]struct {
		change func(*site)
		after  time.Duration
		says   string
	}{
		"it runs too long":       {func(s *site) { s.exec.runTimeout = limit }, limit, "job was given up: work has run for 1m0s"},
		"it starts slowly":       {func(s *site) { s.exec.runTimeout, s.starts = limit, 3*lease }, limit, "job was given up: work has run for 1m0s"},
		"it makes no progress":   {func(s *site) { s.exec.stall = limit }, limit + 10*limit/2, "job was given up: the work stalled: no progress for 1m0s"},
		"it ignores the signals": {func(s *site) { s.exec.runTimeout, s.ignores = limit, true }, limit, "job was given up: work has run for 1m0s"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := &memstore.Store{}
				s := newSite(t, store, "a", c.change).start()
				p := s.running()
				for range 10 { // with a limit for the run, they don't matter
					time.Sleep(limit / 2)
					if w := s.exec.watched.Load(); w != nil {
						w.Progress()
					}
				}
				end := s.ends()
				assert.Equal(t, Lost, end.Code)
				assert.EqualError(t, end.Err, c.says)
				assert.InDelta(t, c.after, p.told.Sub(p.began), float64(lease/10))
				assert.Contains(t, p.got, syscall.SIGTERM)
				if s.ignores {
					assert.InDelta(t, MostGrace(lease), p.ended.Sub(p.told), float64(lease/10))
				}
				assert.True(t, store.Rows()["job"].Heartbeat.IsZero(), "it was released")
			})
		})
	}
}

// A program that shows progress in time, and one that is not asked to, run on.
func TestAProgramThatMakesProgressRunsOn(t *testing.T) {
	for name, stall := range map[string]time.Duration{"it makes progress": lease, "nothing is demanded": 0} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newSite(t, &memstore.Store{}, "a", func(s *site) { s.exec.stall = stall }).start()
				p := s.running()
				for range 100 {
					time.Sleep(lease * 9 / 10)
					s.exec.watched.Load().Progress()
				}
				assert.Empty(t, p.got)
				p.exit(0)
				assert.Zero(t, s.ends())
			})
		})
	}
}

// checked is an exec whose health check is a function.
type checked struct {
	*programs
	asks func(context.Context, role) error
}

func (c checked) begins(h *holding) {
	c.programs.begins(h)
	c.before(c.runner, h, c.asks)
}

// A health check is told the lock, the slot and the token of the term in which the program runs, in each term anew. With another token, it
// could not check what the program does under the lock.
func TestAHealthCheckIsToldOfTheTermOfItsProgram(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		out := filepath.Join(t.TempDir(), "checks")
		s := newSite(t, &memstore.Store{}, "a", func(s *site) {
			s.exec.slots, s.exec.restart = 1, true
			s.exec.healthcheck = "sh -c 'echo $0 $SPINDLE_LOCK $SPINDLE_SLOT $SPINDLE_TOKEN >>" + out + "'"
		}).start()
		for range 2 {
			p := s.running()
			synctest.Wait()
			want := "active job/slot/0000 0 " + s.run.term.Token().String() + "\n"
			time.Sleep(lease + lease/6)
			synctest.Wait()
			said, err := os.ReadFile(out)
			require.NoError(t, err)
			assert.Equal(t, strings.Repeat(want, 3), string(said), "before each heartbeat")
			require.NoError(t, os.Remove(out))
			p.exit(0)
		}
		s.running()
		s.signals <- syscall.SIGTERM
		s.ends()
	})
}

// A program is checked until it gets the signal to end. While it shuts down, it need neither be healthy nor show progress: that must
// cost it neither its time nor its exit code.
func TestAProgramThatShutsDownIsNotChecked(t *testing.T) {
	for name, change := range map[string]func(*site){"at once": func(*site) {}, "after an announcement": handingOver} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var checks atomic.Int32
				var shutsDown atomic.Bool
				s := newSite(t, &memstore.Store{}, "a", change, func(s *site) {
					s.ignores = true
					s.exec.stall = 5 * lease // which ends while it shuts down
					s.check = func(context.Context, role) error {
						checks.Add(1)
						if shutsDown.Load() {
							return errors.New("it shuts down")
						}
						return nil
					}
				}).start()
				p := s.running()
				time.Sleep(3*lease + lease/10) // between two heartbeats
				synctest.Wait()
				assert.GreaterOrEqual(t, checks.Load(), int32(8), "before each heartbeat")
				before := checks.Load()
				s.signals <- syscall.SIGTERM
				time.Sleep(lease / 2)
				synctest.Wait()
				assert.Len(t, p.got, 1)
				assert.Equal(t, name != "at once", checks.Load() > before, "while the end is announced, the program works")
				shutsDown.Store(true)
				before = checks.Load()
				time.Sleep(3 * lease)
				synctest.Wait()
				assert.Equal(t, before, checks.Load())
				assert.Zero(t, p.ended)
				p.exit(7)
				assert.Equal(t, terminal.Exit{Code: 7}, s.ends())
			})
		})
	}
}

// A check that is running when the program gets the signal to end may fail because of the signal, at once or later. The program still has
// as long as it likes, and what it does is done.
func TestACheckThatFailsBecauseOfASignalToEndDoesNotCount(t *testing.T) {
	for _, later := range []time.Duration{0, lease / 10} {
		synctest.Test(t, func(t *testing.T) {
			store := &memstore.Store{}
			shutsDown := make(chan struct{})
			s := newSite(t, store, "a", doingOnce, func(s *site) {
				s.ignores = true
				s.check = func(context.Context, role) error {
					<-shutsDown
					time.Sleep(later)
					return errors.New("connection refused")
				}
			}).start()
			p := s.running()
			p.hears = func() { close(shutsDown); synctest.Wait() }
			time.Sleep(lease / 2) // the first check is running
			s.signals <- syscall.SIGTERM
			time.Sleep(lease)
			synctest.Wait()
			assert.Zero(t, p.ended, later)
			assert.Len(t, p.got, 1, later)
			p.exit(0)
			assert.Zero(t, s.ends(), later)
			assert.Equal(t, 77, newSite(t, store, "b", doingOnce).start().ends().Code, later)
		})
	}
}

// The end of the program ends a health check that is running, so that the lock is released at once. A check may hang.
func TestACheckThatHangsDoesNotDelayTheRelease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		checking := make(chan time.Time, 1)
		s := newSite(t, &memstore.Store{}, "a", func(s *site) {
			s.check = func(ctx context.Context, _ role) error {
				checking <- time.Now()
				<-ctx.Done()
				return ctx.Err()
			}
		}).start()
		p := s.running()
		<-checking
		began := time.Now()
		p.exit(0)
		assert.Zero(t, s.ends())
		assert.Less(t, time.Since(began), lease/100)
	})
}

// A heartbeat that is sent again needs no new check, however long the check before it took. Otherwise, a slow check would take the time
// in which a heartbeat can still arrive.
func TestAHeartbeatThatIsSentAgainNeedsNoNewCheck(t *testing.T) {
	for _, takes := range []time.Duration{0, lease / 6, lease / 4} {
		synctest.Test(t, func(t *testing.T) {
			var checks, beats, sent atomic.Int32 // sent: how many checks there were when the heartbeat was sent for the fifth time
			s := newSite(t, &memstore.Store{}, "a", func(s *site) {
				s.check = func(context.Context, role) error { time.Sleep(takes); checks.Add(1); return nil }
			})
			s.Refuse(func(step string) error {
				switch {
				case step != "heartbeat":
				case beats.Add(1) < 5:
					return commandtest.Away
				default:
					sent.CompareAndSwap(0, checks.Load())
				}
				return nil
			})
			p := s.start().running()
			time.Sleep(lease)
			assert.EqualValues(t, 1, sent.Load(), takes)
			p.exit(0)
			assert.Zero(t, s.ends())
		})
	}
}

// A single heartbeat without an answer costs no program its lock, even if the health check before the heartbeat was slow. The heartbeat is
// sent again before the program would be signaled, and without a new check. With --unhealthy 2, one heartbeat counts as one failure.
func TestAHeartbeatThatGetsNoAnswerNeedsNoNewCheck(t *testing.T) {
	for _, takes := range []time.Duration{0, lease / 12, lease / 9} {
		for _, failed := range []error{nil, errors.New("sick")} {
			synctest.Test(t, func(t *testing.T) {
				var checks atomic.Int32
				s := newSite(t, &memstore.Store{}, "a", func(s *site) {
					s.exec.unhealthy = 2
					s.check = func(context.Context, role) error {
						time.Sleep(takes)
						if checks.Add(1) == 1 {
							return failed
						}
						return nil
					}
				})
				s.Lose(memstore.Once("heartbeat"), nil)
				p := s.start().running()
				time.Sleep(lease * 8 / 10) // the next heartbeat is not due yet
				assert.EqualValues(t, 1, checks.Load(), "%v, %v", takes, failed)
				time.Sleep(3 * lease)
				assert.Empty(t, p.got, "%v, %v", takes, failed)
				p.exit(0)
				assert.Zero(t, s.ends(), "%v, %v", takes, failed)
			})
		}
	}
}

// A failure of a health check or of --stall that exec learns of together with a signal does not count, because the signal comes first.
// The program has as long as it likes, and what it does is done. Without a watchdog, however, the program must end soon.
func TestAFailureThatComesWithASignalDoesNotCount(t *testing.T) {
	for what, fails := range map[string]func(*site, *program){
		"a check or --stall": func(s *site, _ *program) { s.run.term.put(event{what: unfit, err: errors.New("sick")}) },
		"the watchdog":       func(_ *site, p *program) { p.unwatches = errors.New("no more processes"); close(p.unwatched) },
	} {
		synctest.Test(t, func(t *testing.T) {
			store := &memstore.Store{}
			s := newSite(t, store, "a", doingOnce, func(s *site) { s.ignores = true }).start()
			p := s.running()
			time.Sleep(lease)
			synctest.Wait()
			p.hears = func() { p.hears = nil; fails(s, p) }
			s.signals <- syscall.SIGTERM
			time.Sleep(lease)
			synctest.Wait()
			assert.Equal(t, what != "the watchdog", p.ended.IsZero(), what)
			p.exit(0)
			end := s.ends()
			if what == "the watchdog" {
				assert.Equal(t, Lost, end.Code, what)
				return
			}
			assert.Zero(t, end, what)
			assert.Equal(t, 77, newSite(t, store, "b", doingOnce).start().ends().Code, what)
		})
	}
}
