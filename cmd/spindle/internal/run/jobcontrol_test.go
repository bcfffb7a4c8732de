//go:build unix

package run

import (
	"errors"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spindle-lock/spindle/cmd/spindle/internal/terminal"
	"github.com/spindle-lock/spindle/internal/testkit/fleet"
	"github.com/spindle-lock/spindle/internal/testkit/memstore"
)

// fakeTerminal is a terminal at which exec is in the foreground or not, and a job of a shell or not.
type fakeTerminal struct {
	keys       chan os.Signal
	foreground bool
	shell      time.Duration // how long it leaves exec stopped; 0: there is none
	lent       atomic.Bool
	suspended  int
	stops      func() // when exec is stopped, or nil
	killed     bool   // the program was, when the terminal was taken back
}

func (t *fakeTerminal) Stops() <-chan os.Signal { return t.keys }
func (t *fakeTerminal) Lent() bool              { return t.lent.Load() }
func (t *fakeTerminal) Lend(int) bool           { t.lent.Store(t.foreground); return t.foreground }
func (t *fakeTerminal) TakeBack(killed bool)    { t.lent.Store(false); t.killed = killed }

func (t *fakeTerminal) Suspend() bool {
	t.TakeBack(false)
	if t.suspended++; t.stops != nil {
		t.stops()
	}
	time.Sleep(t.shell)
	return t.shell > 0
}

func on(t *fakeTerminal) func(*site) {
	t.keys = make(chan os.Signal, 1)
	return func(s *site) { s.tty = t }
}

// A program that has the terminal stops with exec, and gets it back when exec continues.
func TestExecStopsWithItsProgram(t *testing.T) {
	for _, r := range []struct {
		signal     os.Signal
		foreground bool // where it goes on
		had        bool
	}{
		{syscall.SIGTSTP, true, true}, {syscall.SIGTSTP, true, false}, {syscall.SIGTSTP, false, true},
		{syscall.SIGSTOP, true, true}, {syscall.SIGTTIN, false, false}, {syscall.SIGTTOU, false, false},
	} {
		synctest.Test(t, func(t *testing.T) {
			tty := &fakeTerminal{foreground: r.had, shell: time.Second}
			s := newSite(t, &memstore.Store{}, "a", on(tty)).start()
			work := s.running()
			if r.had {
				work.stop(syscall.SIGTTIN)
				synctest.Wait()
			}
			synctest.Wait()
			tty.foreground = r.foreground
			work.stop(r.signal)
			time.Sleep(time.Second / 2)
			synctest.Wait()
			assert.Equal(t, r.signal, work.Stopped())
			assert.False(t, tty.lent.Load(), "the shell has it")
			time.Sleep(time.Second)
			synctest.Wait()
			assert.Nil(t, work.Stopped())
			assert.Equal(t, 1, tty.suspended)
			assert.Equal(t, r.had && r.foreground, tty.lent.Load())
			work.exit(3)
			assert.Equal(t, 3, s.ends().Code)
		})
	}
}

// slowLog is a reader of standard error that takes a while for each line.
type slowLog struct{ fleet.Log }

func (l *slowLog) Write(line []byte) (int, error) {
	time.Sleep(20 * time.Millisecond)
	return l.Log.Write(line)
}

// A user reads why exec stops, and until when it must be continued, before exec stops.
func TestExecStopsOnceItHasSaidSo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		before, out := terminal.Stderr, &slowLog{}
		terminal.Stderr = terminal.NewJournal(out)
		defer func() { terminal.Stderr = before }()
		defer terminal.Stderr.Detach()()
		said := ""
		tty := &fakeTerminal{shell: time.Second, stops: func() { said = out.String() }}
		s := newSite(t, &memstore.Store{}, "a", on(tty), func(s *site) { s.exec.quiet = false }).start()
		work := s.running()
		work.stop(syscall.SIGTSTP)
		time.Sleep(2 * time.Second)
		synctest.Wait()
		assert.Equal(t, 1, tty.suspended)
		assert.Contains(t, said, "work is stopped; if it does not continue within 9.9s, job will be lost and the program killed")
		work.exit(0)
		s.ends()
	})
}

// A program that uses the terminal gets it if exec has it, whether it reads from it or first changes its settings, as an editor does.
// It would otherwise stop exec again after every fg.
func TestAProgramGetsTheTerminalHoweverItUsesIt(t *testing.T) {
	for _, use := range []os.Signal{syscall.SIGTTIN, syscall.SIGTTOU} {
		synctest.Test(t, func(t *testing.T) {
			tty := &fakeTerminal{foreground: true, shell: time.Second}
			s := newSite(t, &memstore.Store{}, "a", on(tty)).start()
			work := s.running()
			work.stop(use)
			synctest.Wait()
			assert.True(t, tty.lent.Load(), use)
			assert.Nil(t, work.Stopped(), use)
			assert.Zero(t, tty.suspended, use)
			work.exit(0)
			s.ends()
		})
	}
}

func TestCtrlZIsForTheProgramAndForExecAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &memstore.Store{}
		tty := &fakeTerminal{foreground: true, shell: time.Second}
		holder := newSite(t, store, "holder").start()
		work := holder.running()
		s := newSite(t, store, "a", on(tty), func(s *site) { s.ignores = true }).start()
		tty.keys <- syscall.SIGTSTP // while it waits
		time.Sleep(2 * time.Second)
		synctest.Wait()
		assert.Equal(t, 1, tty.suspended)
		work.exit(0)
		holder.ends()
		work = s.running()
		synctest.Wait()
		tty.keys <- syscall.SIGTSTP
		synctest.Wait()
		assert.Equal(t, []os.Signal{syscall.SIGTSTP}, work.got)
		assert.Equal(t, 1, tty.suspended, "the program has not stopped")
		work.exit(0)
		s.ends()
	})
}

// Where no shell would continue exec, Ctrl-Z does nothing.
func TestWithoutAShellNobodyIsStoppedByAKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t, &memstore.Store{}, "a", on(&fakeTerminal{foreground: true})).start()
		work := s.running()
		work.stop(syscall.SIGTSTP)
		synctest.Wait()
		assert.Nil(t, work.Stopped())
		work.exit(0)
		s.ends()
	})
}

// If a key of the terminal kills the program that has it, exec ends too, though it did not get the signal.
func TestAKeyEndsExecWithItsProgram(t *testing.T) {
	for code, again := range map[int]bool{130: false, 131: false, 143: true, 0: true} {
		for _, has := range []bool{true, false} { // another process has sent the signal if the program does not have it
			synctest.Test(t, func(t *testing.T) {
				tty := &fakeTerminal{foreground: has, shell: time.Second}
				s := newSite(t, &memstore.Store{}, "a", on(tty), func(s *site) { s.exec.restart = true }).start()
				work := s.running()
				if has {
					work.stop(syscall.SIGTTIN)
					synctest.Wait()
				}
				work.exit(code)
				synctest.Wait()
				assert.Equal(t, code > 128, tty.killed, "a program that exits by itself may leave the terminal in another mode")
				if again || !has {
					s.running().exit(0)
					synctest.Wait()
					s.signals <- syscall.SIGTERM
					assert.Equal(t, byTerm, s.ends().Code)
					return
				}
				assert.Equal(t, code, s.ends().Code)
			})
		}
	}
}

// Without a terminal nobody notices that a program is stopped, so it must not keep the lock from others forever.
func TestAProgramThatIsStoppedForALeaseGivesTheLockUp(t *testing.T) {
	for _, r := range []struct {
		signal syscall.Signal // even Ctrl-Z's, which another process sends
		tty    *fakeTerminal
	}{
		{syscall.SIGSTOP, nil}, {syscall.SIGTSTP, nil}, {syscall.SIGTTIN, nil}, {syscall.SIGTTOU, nil},
		{syscall.SIGSTOP, &fakeTerminal{}}, {syscall.SIGTTIN, &fakeTerminal{}}, {syscall.SIGTTOU, &fakeTerminal{}},
	} {
		synctest.Test(t, func(t *testing.T) {
			store := &memstore.Store{}
			s := newSite(t, store, "a", func(s *site) {
				if r.tty != nil {
					on(r.tty)(s)
				}
			}).start()
			work := s.running()
			work.stop(r.signal)
			time.Sleep(lease - time.Second)
			work.Continue()
			time.Sleep(lease)
			synctest.Wait()
			assert.Empty(t, work.got, "it went on in time")
			began := time.Now()
			work.stop(r.signal)
			end := s.ends()
			assert.InDelta(t, lease, time.Since(began), float64(lease/20))
			assert.Equal(t, Lost, end.Code)
			assert.ErrorContains(t, end.Err, "job was given up: work was stopped for 10s")
			assert.Equal(t, []os.Signal{syscall.SIGTERM}, work.got)
			assert.True(t, free(store))
		})
	}
}

// A signal to end reaches a program that is stopped.
func TestASignalLetsAProgramThatIsStoppedGoOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t, &memstore.Store{}, "a", func(s *site) { s.ignores = true }).start()
		work := s.running()
		work.goesOn = func() { work.exit(9) }
		work.stop(syscall.SIGSTOP)
		synctest.Wait()
		s.signals <- syscall.SIGTERM
		began := time.Now()
		assert.Equal(t, 9, s.ends().Code)
		assert.Zero(t, time.Since(began))
	})
}

// A signal that does not end exec neither continues a stopped program nor limits its time.
func TestASignalThatEndsNothingLeavesAProgramStopped(t *testing.T) {
	for _, other := range passedOn[:3] {
		synctest.Test(t, func(t *testing.T) {
			s := newSite(t, &memstore.Store{}, "a", func(s *site) { s.ignores, s.exec.limit = true, lease/4 }).start()
			work := s.running()
			work.stop(syscall.SIGSTOP)
			synctest.Wait()
			s.signals <- other
			time.Sleep(lease * 3 / 4)
			synctest.Wait()
			assert.Equal(t, []os.Signal{other}, work.got)
			assert.Equal(t, syscall.SIGSTOP, work.Stopped(), "%v", other)
			assert.Zero(t, work.ended, "%v", other)
			work.exit(0)
			assert.Zero(t, s.ends())
		})
	}
}

// With --restart, exec looks after each program as after the first one: its watchdog is replaced, Ctrl-Z and signals are for it while
// it runs, and for exec alone until the next one runs. A limit counts from its own beginning.
func TestEachProgramIsLookedAfterLikeTheFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tty := &fakeTerminal{foreground: true, shell: time.Millisecond}
		s := newSite(t, &memstore.Store{}, "a", on(tty), func(s *site) {
			s.ignores, s.starts, s.exec.restart, s.exec.runTimeout, s.exec.grace = true, 2*lease, true, 3*lease, 0
		}).start()
		for n := 1; n <= 3; n++ {
			p := s.running()
			close(p.unwatched)
			synctest.Wait()
			assert.Equal(t, 1, p.rewatched, "program %d", n)
			tty.keys <- keyStop
			synctest.Wait()
			s.signals <- syscall.SIGUSR1
			synctest.Wait()
			assert.Equal(t, []os.Signal{keyStop, syscall.SIGUSR1}, p.got, "program %d", n)
			p.got = nil
			if <-p.Done(); n < 3 {
				time.Sleep(lease / 100)
				tty.keys <- keyStop
			}
			synctest.Wait()
			assert.InDelta(t, 3*lease, p.ended.Sub(p.began), float64(lease/10), "program %d", n)
			assert.NotContains(t, p.got, keyStop, "program %d", n)
			assert.Equal(t, min(n, 2), tty.suspended, "between two programs, Ctrl-Z stops exec")
		}
		s.signals <- syscall.SIGTERM
		s.ends()
	})
}

// A signal to end comes before a stop, whichever of the two exec notices first. Otherwise, exec would stop with the
// signal, and a shell would have to continue it a second time.
func TestASignalComesBeforeAStop(t *testing.T) {
	for range 20 { // exec chooses at random among the events of an instant
		synctest.Test(t, func(t *testing.T) {
			tty, asks := &fakeTerminal{shell: time.Second}, make(chan struct{})
			s := newSite(t, &memstore.Store{}, "a", on(tty), func(s *site) { s.exec.asks = asks }).start()
			work := s.running()
			work.allows = sync.OnceFunc(func() { // after a heartbeat, while exec waits for no event
				work.stop(syscall.SIGTTIN)
				s.signals <- syscall.SIGTERM
			})
			asks <- struct{}{}
			assert.Equal(t, byTerm, s.ends().Code)
			assert.Zero(t, tty.suspended)
		})
	}
}

// Exec has received a signal to end, and announces that it will release the lock. Until exec has passed the signal on to
// the program, exec does not stop. The program may stop, but Ctrl-Z does not stop it: the program has the terminal, so no
// shell could continue it.
func TestExecDoesNotStopBeforeItHasPassedASignalOn(t *testing.T) {
	for _, by := range []os.Signal{syscall.SIGTTIN, syscall.SIGSTOP, syscall.SIGTSTP} {
		synctest.Test(t, func(t *testing.T) {
			tty := &fakeTerminal{foreground: by == syscall.SIGTSTP, shell: lease}
			s := newSite(t, &memstore.Store{}, "a", on(tty), func(s *site) { s.exec.handover = true }).start()
			work := s.running()
			s.signals <- syscall.SIGTERM
			began := time.Now()
			work.stop(by)
			synctest.Wait()
			assert.Equal(t, by == syscall.SIGTSTP, work.Stopped() == nil)
			assert.Equal(t, by == syscall.SIGTSTP, tty.lent.Load())
			assert.Equal(t, byTerm, s.ends().Code)
			assert.Zero(t, tty.suspended)
			assert.GreaterOrEqual(t, work.told.Sub(began), lease/3, "the candidates knew")
		})
	}
}

// If exec was asked to hand over the lock, exec still stops together with its program, because exec has received no signal
// to end.
func TestExecStopsAlthoughItHandsTheLockOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &memstore.Store{}
		tty := &fakeTerminal{shell: time.Second}
		s := newSite(t, store, "a", on(tty), handingOver).start()
		work := s.running()
		for ask(t, store, "job"); store.Rows()["job"].Writer != ""; { // until the end is announced
			time.Sleep(time.Millisecond)
		}
		work.stop(syscall.SIGTTIN)
		synctest.Wait()
		assert.Equal(t, 1, tty.suspended)
		time.Sleep(lease)
		synctest.Wait()
		assert.Equal(t, []os.Signal{syscall.SIGTERM}, work.got)
		s.signals <- syscall.SIGTERM
		s.ends()
	})
}

func TestCtrlZDoesNotStopExecThatEnds(t *testing.T) {
	for range 20 {
		synctest.Test(t, func(t *testing.T) {
			store := &memstore.Store{}
			holder := newSite(t, store, "holder").start()
			work := holder.running()
			tty := &fakeTerminal{foreground: true, shell: time.Second}
			s := newSite(t, store, "a", on(tty)).start()
			time.Sleep(lease)
			synctest.Wait()
			s.signals <- syscall.SIGTERM
			tty.keys <- syscall.SIGTSTP
			assert.Equal(t, byTerm, s.ends().Code)
			assert.Zero(t, tty.suspended)
			work.exit(0)
			holder.ends()
		})
	}
}

// The time begins with the first signal to end that the program gets. Further signals do not begin it anew.
func TestAProgramThatDoesNotEndInTimeIsKilled(t *testing.T) {
	for _, handover := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			store := &memstore.Store{}
			s := newSite(t, store, "a", func(s *site) {
				s.ignores, s.exec.limit, s.exec.handover = true, time.Minute, handover
			}).start()
			work := s.running()
			for range 10 {
				s.signals <- syscall.SIGTERM
				select {
				case <-s.done:
				case <-time.After(lease):
				}
			}
			end := s.ends()
			assert.Equal(t, signalCode(syscall.SIGKILL), end.Code)
			assert.NoError(t, end.Err)
			assert.Greater(t, len(work.got), 3)
			assert.InDelta(t, time.Minute, work.ended.Sub(work.told), float64(time.Second))
			assert.True(t, free(store))
		})
	}
}

// What a program did at the moment of its exit is over with it, whichever exec notices first: the next one begins as ever.
func TestWhatAProgramDidAtItsExitIsOverWithIt(t *testing.T) {
	for range 10 { // exec chooses at random among the events of an instant, after the first one
		synctest.Test(t, func(t *testing.T) {
			s := newSite(t, &memstore.Store{}, "a", func(s *site) { s.exec.restart = true }).start()
			for first := range 3 {
				p := s.running()
				synctest.Wait()
				p.exited = true
				for i := range 3 {
					[]func(){func() { p.exit(3) }, func() { p.stop(syscall.SIGSTOP) }, func() { close(p.unwatched) }}[(first+i)%3]()
				}
			}
			last := s.running()
			time.Sleep(3 * lease)
			synctest.Wait()
			assert.Empty(t, last.got)
			s.signals <- syscall.SIGTERM
			assert.Equal(t, byTerm, s.ends().Code)
		})
	}
}

// A program that exits just when its watchdog is killed needs no other one. Its exit code counts.
func TestAProgramThatHasExitedNeedsNoWatchdog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t, &memstore.Store{}, "a").start()
		work := s.running()
		work.exited = true
		close(work.unwatched)
		time.Sleep(time.Second) // its strays are being killed
		synctest.Wait()
		assert.Equal(t, 1, work.rewatched)
		work.exit(3)
		assert.Equal(t, terminal.Exit{Code: 3}, s.ends())
	})
}

// Without a watchdog the program could outlive a killed exec, beside the next holder's.
func TestAProgramHasAnotherWatchdogOrEnds(t *testing.T) {
	for _, failed := range []error{nil, errors.New("too many processes")} {
		synctest.Test(t, func(t *testing.T) {
			store := &memstore.Store{}
			s := newSite(t, store, "a").start()
			work := s.running()
			work.unwatches = failed
			for n := 1; n == 1 || n <= 3 && failed == nil; n++ { // the other one may be killed, too
				close(work.unwatched)
				time.Sleep(time.Second)
				synctest.Wait()
				require.Equal(t, n, work.rewatched)
			}
			if failed == nil {
				assert.Empty(t, work.got)
				work.exit(0)
				assert.Equal(t, terminal.Exit{}, s.ends())
				return
			}
			end := s.ends()
			assert.Equal(t, Lost, end.Code)
			assert.ErrorIs(t, end.Err, failed)
			assert.Equal(t, []os.Signal{syscall.SIGTERM}, work.got)
			assert.True(t, free(store))
		})
	}
}
