//go:build unix

package run

import (
	"context"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
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

// numbers are tokens, and times that depend on when a heartbeat was due.
var numbers = regexp.MustCompile(`(token |lost in |done |done, )[0-9.]+`)

// transcript returns what f makes a process with this id say. Each line begins with "!" if it is a problem, and with "*" if its
// attributes name the token of a term; it ends with the attribute for the key, if there is one.
func transcript(t *testing.T, id string, f func()) string {
	var said []string
	for _, line := range commandtest.Complaints(f) {
		var entry struct {
			Level, Msg, Lock, ID, Key string
			Token                     int64
		}
		require.NoError(t, json.Unmarshal([]byte(line), &entry), "%q", line)
		if entry.ID != id {
			continue
		}
		assert.Contains(t, []string{"job", "lock"}, entry.Lock, line)
		text := strings.ReplaceAll(numbers.ReplaceAllString(entry.Msg, "${1}N"), "\n  ", "; ")
		if entry.Key != "" {
			text += " key=" + entry.Key
		}
		if entry.Token != 0 {
			text = "*" + text
		}
		if entry.Level != "INFO" {
			text = "!" + text
		}
		said = append(said, text)
	}
	return strings.Join(said, "\n")
}

// recorded records the last completed key of the lock, and frees the lock.
func recorded(t *testing.T, store *memstore.Store, due table.Due) {
	other := newSite(t, store, "other").exec.candidate
	held := other.Try(t.Context(), elect.All, 0).Term
	require.NotNil(t, held)
	require.NoError(t, held.Finish(t.Context(), errGivenUp, due, "other"))
}

// An operator reads in the log what exec did, when and why: each step of a turn is told once, with its reason, under the lock's
// name, and with the token while the lock is held. With --quiet, only the problems are, and what ends them.
func TestExecTellsEachTurnFromItsBeginningToItsEnd(t *testing.T) {
	for name, r := range map[string]struct {
		change  func(s *site, store *memstore.Store)
		happens func(s *site, store *memstore.Store)
		want    string
	}{
		"it runs": {happens: func(s *site, _ *memstore.Store) { s.running().exit(3) }, want: `
*holding job, token N
*released job`},
		"it has a signal to announce": {
			change: func(s *site, _ *memstore.Store) { handingOver(s) },
			happens: func(s *site, _ *memstore.Store) {
				s.running()
				s.signals <- syscall.SIGINT
			}, want: `
*holding job, token N
*about to give up job; work will get the signal "interrupt" as soon as the other candidates have been told
*released job`},
		"a key kills its program, so there is nothing to announce": {
			change: func(s *site, _ *memstore.Store) { handingOver(s); on(&fakeTerminal{foreground: true})(s) },
			happens: func(s *site, _ *memstore.Store) {
				p := s.running()
				p.stop(syscall.SIGTTIN)
				synctest.Wait()
				p.exit(byInt)
			}, want: `
*holding job, token N
*released job`},
		"it is asked for the lock": {
			change: func(s *site, _ *memstore.Store) { handingOver(s) },
			happens: func(s *site, store *memstore.Store) {
				p := s.running()
				ask(s.t, store, "job")
				<-p.Done()
				s.running().exit(0)
			}, want: `
*holding job, token N
*asked to hand over job; work will get the signal "terminated" as soon as the other candidates have been told
*released job
job was handed over; competing again
*holding job, token N
*released job`},
		"its program ends, fails, and is started again": {
			change: func(s *site, _ *memstore.Store) { s.exec.restart = true },
			happens: func(s *site, _ *memstore.Store) {
				s.running().exit(0)
				s.running().exit(3)
				s.running()
				s.signals <- syscall.SIGTERM
			}, want: `
*holding job, token N
*released job
work has ended; competing again
*holding job, token N
*released job
!exit code 3; competing again
*holding job, token N
*released job`},
		"it leaves processes": {happens: func(s *site, _ *memstore.Store) {
			p := s.running()
			p.killed, p.spared = 2, 0
			p.exit(0)
		}, want: `
*holding job, token N
!*work left processes outside its process group; 2 killed
*released job`},
		"it leaves one process that is another user's": {happens: func(s *site, _ *memstore.Store) {
			p := s.running()
			p.killed, p.spared = 0, 1
			p.exit(0)
		}, want: `
*holding job, token N
!*work left processes that can't be killed, for example because they belong to another user; 1 still running without the lock job
*released job`},
		"its program ends before it stalls": {
			change: func(s *site, _ *memstore.Store) { s.exec.restart, s.exec.stall = true, 2*lease },
			happens: func(s *site, _ *memstore.Store) {
				s.running().exit(0)
				s.running()
				for range 4 { // the first one would have stalled
					time.Sleep(lease * 3 / 4)
					s.exec.watched.Load().Progress()
				}
				time.Sleep(lease * 5 / 4)
				s.signals <- syscall.SIGTERM
			}, want: `
*holding job, token N
*released job
work has ended; competing again
*holding job, token N
!*work has made no progress for 10s; exec will end it unless it makes progress within 10s
*released job`},
		"it is stopped for too long": {
			change:  func(s *site, _ *memstore.Store) { s.ignores = true },
			happens: func(s *site, _ *memstore.Store) { s.running().stop(syscall.SIGSTOP) }, want: `
*holding job, token N
!*work was stopped; if it does not continue within 10s, exec will end it and release job
!*work was stopped for 10s; ending work, which will be killed if it has not exited after 2.5s
*released job`},
		"it runs for too long": {
			change:  func(s *site, _ *memstore.Store) { s.exec.runTimeout, s.ignores = lease, true },
			happens: func(s *site, _ *memstore.Store) { s.running() }, want: `
*holding job, token N
!*work has run for 10s; ending work, which will be killed if it has not exited after 2.5s
*released job`},
		"it does not exit": {
			change: func(s *site, _ *memstore.Store) { s.exec.limit, s.ignores = lease, true },
			happens: func(s *site, _ *memstore.Store) {
				s.running()
				s.signals <- syscall.SIGTERM
			}, want: `
*holding job, token N
!*work has not exited 10s after it was signaled to end; killing it
*released job`},
		"it does not exit although it is killed": {
			change: func(s *site, _ *memstore.Store) { s.exec.limit, s.ignores, s.undying = lease, true, true },
			happens: func(s *site, _ *memstore.Store) {
				p := s.running()
				s.signals <- syscall.SIGTERM
				time.Sleep(5 * lease)
				p.exit(137)
			}, want: `
*holding job, token N
!*work has not exited 10s after it was signaled to end; killing it
*released job`},
		"it has run for too long, and does not exit although it is killed": {
			change: func(s *site, _ *memstore.Store) { s.exec.runTimeout, s.ignores, s.undying = lease, true, true },
			happens: func(s *site, _ *memstore.Store) {
				p := s.running()
				time.Sleep(5 * lease)
				p.exit(137)
			}, want: `
*holding job, token N
!*work has run for 10s; ending work, which will be killed if it has not exited after 2.5s
*released job`},
		"its lock is taken away": {
			change: func(s *site, _ *memstore.Store) { s.exec.restart = true },
			happens: func(s *site, store *memstore.Store) {
				p := s.running()
				takeAway(s.t, store)
				<-p.Done()
				s.running()
				s.signals <- syscall.SIGTERM
			}, want: `
*holding job, token N
!*job is lost: the token was superseded or released; ending work, which will be killed if it has not exited after 2.5s
!job was lost: the token was superseded or released; competing again
*holding job, token N
*released job`},
		"it is cut off for a while": {happens: func(s *site, _ *memstore.Store) {
			p := s.running()
			s.Refuse(fleet.Refusing("heartbeat", commandtest.Away))
			time.Sleep(lease / 2)
			s.Refuse(nil)
			time.Sleep(lease)
			p.exit(0)
		}, want: `
*holding job, token N
!*jeopardy: job is still held, but will be lost in Ns unless a heartbeat is acknowledged: heartbeat: rpc error: code = Unavailable desc = the database is away
*safe: heartbeats for job are acknowledged again
*released job`},
		"its watchdog is killed": {happens: func(s *site, _ *memstore.Store) {
			p := s.running()
			close(p.unwatched)
			time.Sleep(lease / 10)
			p.exit(0)
		}, want: `
*holding job, token N
!*the watchdog for work was killed and has been replaced
*released job`},
		"its health check fails": {
			change: func(s *site, _ *memstore.Store) {
				n := 0
				s.exec.unhealthy = 3
				s.check = func(context.Context, role) error {
					if n++; n == 2 || n >= 4 {
						return fmt.Errorf("sick (check %d)", n)
					}
					return nil
				}
			},
			happens: func(s *site, _ *memstore.Store) { s.running() }, want: `
*holding job, token N
!*the health check failed (failure 1 of 3 in a row): sick (check 2)
!*the health check failed (failure 1 of 3 in a row): sick (check 4)
!*the health check failed (failure 2 of 3 in a row): sick (check 5)
!*the health check failed: sick (check 6); ending work, which will be killed if it has not exited after 2.5s
*released job`},
		"it ends during a health check": {
			change: func(s *site, _ *memstore.Store) {
				s.exec.unhealthy = 2
				s.check = func(ctx context.Context, _ role) error { <-ctx.Done(); return ctx.Err() }
			},
			happens: func(s *site, _ *memstore.Store) {
				p := s.running()
				time.Sleep(lease / 2)
				p.exit(0)
			}, want: `
*holding job, token N
*released job`},
		"it does its work": {
			change:  func(s *site, _ *memstore.Store) { doingOnce(s) },
			happens: func(s *site, _ *memstore.Store) { s.running().exit(0) }, want: `
*holding job, token N key=1
*released job: 1 is done key=1`},
		"it fails to do its work": {
			change:  func(s *site, _ *memstore.Store) { doingOnce(s) },
			happens: func(s *site, _ *memstore.Store) { s.running().exit(3) }, want: `
*holding job, token N key=1
*released job: 1 is not done key=1`},
		"its work is done while it claims the lock, and it can't ask at first": {
			change: func(s *site, store *memstore.Store) {
				doingOnce(s)
				held, refused := false, 0
				s.After(func(step string) {
					if step == "confirm" {
						held = true
						require.NoError(s.t, store.Commit(s.t.Context(), "test", table.Record("job", tokenIn(store, "job"), table.Due{Key: "1"}, "other")))
					}
				})
				s.Refuse(func(step string) error {
					if step == "done" && held && refused < 3 {
						refused++
						return commandtest.Away
					}
					return nil
				})
			}, want: `
*holding job, token N key=1
!*work can't be started yet: can't read the last completed key: rpc error: code = Unavailable desc = the database is away; the database can't be reached key=1
*job: 1 was already done, Ns ago, by other key=1
*released job key=1`},
		"its work was done before": {
			change: func(s *site, store *memstore.Store) {
				doingOnce(s)
				recorded(s.t, store, table.Due{Key: "2"})
			}, want: `
job: skipping 1 because the larger key 2 was done Ns ago, by other. It is not known whether 1 ever ran key=1`},
		"its work is new": {
			change:  func(s *site, _ *memstore.Store) { s.exec.once = once{schedule: ofCron(day)} },
			happens: func(s *site, _ *memstore.Store) { s.running().exit(0) }, want: `
*holding job, token N key=2000-01-01T00:07:30Z
*released job: 2000-01-01T00:07:30Z is done key=2000-01-01T00:07:30Z`},
		"its work had another period": {
			change: func(s *site, store *memstore.Store) {
				s.exec.once = once{schedule: ofCron(day)}
				recorded(s.t, store, table.Due{Key: "1999-12-31T23:37:30Z", Period: time.Hour})
			},
			happens: func(s *site, _ *memstore.Store) { s.running().exit(0) }, want: `
job: the last completed key, 1999-12-31T23:37:30Z, was recorded with --every 1h. Because the period has changed, a smaller key counts as done only if its time came before the last key was recorded key=2000-01-01T00:07:30Z
*holding job, token N key=2000-01-01T00:07:30Z
*released job: 2000-01-01T00:07:30Z is done key=2000-01-01T00:07:30Z`},
		"another holds the lock, and the database is away for a while": {
			change: func(s *site, store *memstore.Store) {
				other := newSite(s.t, store, "other").start()
				other.running()
			},
			happens: func(s *site, _ *memstore.Store) {
				time.Sleep(lease)
				s.Refuse(func(string) error { return commandtest.Away })
				time.Sleep(3 * lease)
				s.Refuse(nil)
				time.Sleep(lease)
				s.signals <- syscall.SIGTERM
			}, want: `
waiting for job: held by other, token N
!can't compete for job, will try again: observe: rpc error: code = Unavailable desc = the database is away; the database can't be reached
competing for job again`},
		"it can't queue for a while, and is stopped while it polls": {
			change: func(s *site, store *memstore.Store) {
				other := newSite(s.t, store, "other").start()
				other.running()
				s.Refuse(fleet.Refusing("queue", commandtest.Away))
			},
			happens: func(s *site, _ *memstore.Store) {
				time.Sleep(lease)
				s.Refuse(nil)
				time.Sleep(lease)
				s.Cut()
				time.Sleep(lease / 5)
				s.signals <- syscall.SIGTERM
			}, want: `
!can't compete for job, will try again: queue: rpc error: code = Unavailable desc = the database is away; the database can't be reached
competing for job again
waiting for job: held by other, token N`},
		"another gives the semaphore a smaller size": {
			change: func(s *site, store *memstore.Store) {
				s.exec.slots = 3
				other := newSite(s.t, store, "other", func(s *site) { s.exec.slots = 1 }).start()
				other.running()
			},
			happens: func(s *site, _ *memstore.Store) {
				time.Sleep(3 * lease)
				s.signals <- syscall.SIGTERM
			}, want: `
!job: other gives this semaphore size 1, but this process gives it size 3; until that process releases its slot, this one acquires only slots within both sizes; use the same size in all processes`},
	} {
		t.Run(name, func(t *testing.T) {
			for _, quiet := range []bool{false, true} {
				synctest.Test(t, func(t *testing.T) {
					store := &memstore.Store{}
					said := transcript(t, "a", func() {
						s := newSite(t, store, "a", func(s *site) {
							if s.exec.quiet = quiet; r.change != nil {
								r.change(s, store)
							}
						}).start()
						if r.happens != nil {
							r.happens(s, store)
						}
						s.ends()
					})
					want := strings.TrimPrefix(r.want, "\n")
					if quiet {
						want = problems(want)
					}
					assert.Equal(t, want, said)
				})
			}
		})
	}
}

// problems returns the lines that --quiet leaves.
func problems(said string) string {
	lines := slices.DeleteFunc(strings.Split(said, "\n"), func(line string) bool {
		return !strings.HasPrefix(line, "!") && !strings.HasPrefix(line, "*safe") && !strings.HasPrefix(line, "competing for")
	})
	return strings.Join(lines, "\n")
}

// An operator reads in the log what guard did, when and why.
func TestGuardTellsEachTermFromItsBeginningToItsEnd(t *testing.T) {
	for name, r := range map[string]struct {
		held    bool // by another guard
		dies    bool // that guard is cut off after two leases
		change  func(*guardSite)
		happens func(w *guardWorld, a *guardSite)
		want    string
	}{
		"it is active, and stopped": {happens: func(w *guardWorld, a *guardSite) { w.until("a") }, want: `
lock: the service is inactive
*lock: holding the lock, token N
*lock: the service is active
*lock: the service is inactive
*lock: released the lock`},
		"it is asked for the lock": {change: func(a *guardSite) { handsOver(a.guard) }, happens: func(w *guardWorld, a *guardSite) {
			w.until("a")
			time.Sleep(renew)
			ask(w.t, w.store, "lock")
			w.gone("a")
			w.until("a")
		}, want: `
lock: the service is inactive
*lock: holding the lock, token N
*lock: the service is active
*lock: asked to hand over the lock
*lock: the service is inactive
*lock: released the lock
*lock: holding the lock, token N
*lock: the service is active
*lock: the service is inactive
*lock: released the lock`},
		"the activation fails": {change: func(a *guardSite) { a.turnOn = renew }, happens: func(w *guardWorld, a *guardSite) {
			w.until("a")
			a.set(func() { a.broken = 1 })
			w.gone("a")
			w.until("a")
			time.Sleep(2 * renew)
		}, want: `
lock: the service is inactive
*lock: holding the lock, token N
!*lock: the service could not be activated: it does not want to
*lock: the service is inactive
*lock: released the lock
*lock: holding the lock, token N
*lock: the service is active
*lock: the service is inactive
*lock: released the lock`},
		"the service is sick while it is active": {happens: func(w *guardWorld, a *guardSite) {
			w.until("a")
			a.set(func() { a.sick, a.broken = true, 2 })
			w.gone("a")
			time.Sleep(3 * guardLease)
			a.set(func() { a.sick = false })
			w.until("a")
		}, want: `
lock: the service is inactive
*lock: holding the lock, token N
*lock: the service is active
!*lock: the health check failed: sick
!*lock: THE SERVICE COULD NOT BE DEACTIVATED, trying again: it does not want to
*lock: left the lock to expire
!lock: THE SERVICE COULD NOT BE DEACTIVATED, trying again: it does not want to
lock: the service is inactive
!lock: not competing because the health check failed: sick
lock: competing again because the health check succeeded
*lock: holding the lock, token N
*lock: waiting 2s because the service may still be active on the last holder's machine
*lock: the service is active
*lock: the service is inactive
*lock: released the lock`},
		"it is stopped while it checks the service, and the check fails": {change: func(a *guardSite) { a.turnOff = renew }, happens: func(w *guardWorld, a *guardSite) {
			w.until("a")
			a.set(func() { a.sick, a.checkTakes = true, renew/2 })
			for _, before := a.seen(); ; time.Sleep(renew / 100) {
				if _, now := a.seen(); len(now) > len(before) {
					break
				}
			}
		}, want: `
lock: the service is inactive
*lock: holding the lock, token N
*lock: the service is active
*lock: the service is inactive
*lock: released the lock`},
		"the service is sick on standby": {held: true, happens: func(w *guardWorld, a *guardSite) {
			time.Sleep(2 * guardLease)
			a.set(func() { a.sick = true })
			time.Sleep(2 * guardLease)
			a.set(func() { a.sick = false })
			time.Sleep(2 * guardLease)
		}, want: `
lock: the service is inactive
waiting for lock: held by other, token N
!lock: not competing because the health check failed: sick
lock: competing again because the health check succeeded`},
		"it is stopped while it checks the service on standby": {held: true, change: func(a *guardSite) { a.checkTakes = renew / 2 }, happens: func(w *guardWorld, a *guardSite) {
			time.Sleep(2 * guardLease)
			for _, before := a.seen(); ; time.Sleep(renew / 100) {
				if _, now := a.seen(); len(now) > len(before) {
					break
				}
			}
		}, want: `
lock: the service is inactive
waiting for lock: held by other, token N`},
		"the holder dies": {held: true, dies: true, happens: func(w *guardWorld, a *guardSite) {
			time.Sleep(2 * guardLease)
			w.until("a")
		}, want: `
lock: the service is inactive
waiting for lock: held by other, token N
*lock: holding the lock, token N
*lock: waiting 2s because the service may still be active on the last holder's machine
*lock: the service is active
*lock: the service is inactive
*lock: released the lock`},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(t *testing.T, w *guardWorld) {
				said := transcript(t, "a", func() {
					a := w.site("a", func(g *guarding) { g.quiet = false })
					if r.held {
						other := w.start("other")
						w.until("other")
						if r.dies {
							time.AfterFunc(2*guardLease, other.Cut)
						}
					}
					if r.change != nil {
						r.change(a)
					}
					a.begin()
					r.happens(w, a)
					a.end()
				})
				assert.Equal(t, strings.TrimPrefix(r.want, "\n"), said)
			})
		})
	}
}
