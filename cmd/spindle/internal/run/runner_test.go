//go:build unix

package run

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spindle-lock/spindle/cmd/spindle/internal/exit"
	"github.com/spindle-lock/spindle/internal/elect"
	"github.com/spindle-lock/spindle/internal/loop"
	"github.com/spindle-lock/spindle/internal/table"
	"github.com/spindle-lock/spindle/internal/testkit/fleet"
	"github.com/spindle-lock/spindle/internal/testkit/memstore"
)

// The tests of this file run exec in virtual time on a table in memory. A bubble fails if a goroutine is left in it.

const lease = 10 * time.Second

// program is one that obeys signals, unless it ignores them.
type program struct {
	ignores bool
	began   time.Time
	first   time.Time // the deadline when it begins
	end     sync.Once
	done    chan struct{}
	code    int
	got     []os.Signal
	told    time.Time // when it got its first signal
	allowed atomic.Pointer[time.Time]
	ended   time.Time

	changed   chan struct{}
	stopped   atomic.Pointer[os.Signal]
	goesOn    func() // at Continue
	allows    func() // at Allow
	unwatched chan struct{}
	unwatches error // what Rewatch returns
	rewatched int
}

func (p *program) exit(code int) {
	p.end.Do(func() {
		p.code, p.ended = code, time.Now()
		close(p.done)
	})
}

func (p *program) Done() <-chan struct{}      { return p.done }
func (p *program) Code() int                  { return p.code }
func (p *program) Kill()                      { p.exit(signalCode(syscall.SIGKILL)) }
func (p *program) Strays() int                { return 0 }
func (p *program) Spared() int                { return 0 }
func (p *program) Pid() int                   { return 4711 }
func (p *program) Changed() <-chan struct{}   { return p.changed }
func (p *program) Unwatched() <-chan struct{} { return p.unwatched }

func (p *program) Allow(until time.Time) {
	p.allowed.Store(&until)
	if p.allows != nil {
		p.allows()
	}
}

func (p *program) Rewatch() (bool, error) {
	p.rewatched++
	if p.unwatches == nil {
		p.unwatched = make(chan struct{})
	}
	return p.unwatches == nil, p.unwatches
}

func (p *program) Stopped() os.Signal {
	if s := p.stopped.Load(); s != nil {
		return *s
	}
	return nil
}

// stop stops the program, as a signal does.
func (p *program) stop(s os.Signal) {
	p.stopped.Store(&s)
	p.change()
}

func (p *program) change() {
	select {
	case p.changed <- struct{}{}: // only the latest state matters
	default:
	}
}

func (p *program) Continue() {
	if p.stopped.Swap(nil) == nil {
		return
	}
	p.change()
	if p.goesOn != nil {
		p.goesOn()
	}
}

func (p *program) Signal(s os.Signal) {
	if p.got = append(p.got, s); len(p.got) == 1 {
		p.told = time.Now()
	}
	if !p.ignores {
		p.exit(signalCode(s))
	}
}

// site is a machine with an exec on it. It is the exec's job.
type site struct {
	t         *testing.T
	candidate elect.Candidate
	memstore.Link
	exec    Exec
	signals chan os.Signal
	key     string

	ignores bool                        // its programs do
	fails   error                       // so they don't start
	starts  time.Duration               // how long that takes
	due     func(context.Context) error // for Due
	begins  func(*elect.Term)           // for Begin
	heard   *heard                      // or nil

	began chan *program
	mu    sync.Mutex
	ran   []*program
	terms []table.Token
	over  int
	end   exit.Error
	done  chan struct{} // closed when Run has returned
}

// long is more than anything takes here.
const long = time.Hour

func newSite(t *testing.T, store table.Store, name string, change ...func(*site)) *site {
	s := &site{t: t, Link: memstore.Link{Store: store}, signals: make(chan os.Signal, 16), began: make(chan *program, 16), done: make(chan struct{})}
	s.candidate = elect.Candidate{Table: table.Table{Store: &s.Link}, Clock: elect.SystemClock{}, Names: []string{"job"}, ID: name,
		LeaseRecord: table.LeaseRecord{Lease: lease}}
	say := func(f string, args ...any) {
		t.Logf("%v %s: %s", time.Now().Format("15:04:05.000"), name, fmt.Sprintf(f, args...))
	}
	s.exec = Exec{command: command{Candidate: &s.candidate, Say: say, Warn: say}, Job: s, Program: "work", Grace: MostGrace(lease), Signals: s.signals}
	for _, f := range change {
		f(s)
	}
	return s
}

func (s *site) start() *site {
	s.t.Cleanup(s.stop)
	go func() {
		defer close(s.done)
		if end, failed := s.exec.Run().(*exit.Error); failed {
			s.end = *end
		}
	}()
	return s
}

// stop ends what a test has left when it failed.
func (s *site) stop() {
	for {
		select {
		case <-s.done:
			return
		case s.signals <- syscall.SIGTERM:
		default:
		}
		s.mu.Lock()
		for _, p := range s.ran {
			p.exit(0)
		}
		s.mu.Unlock()
		time.Sleep(lease)
	}
}

// ends waits for the exec to end, and returns how.
func (s *site) ends() exit.Error {
	select {
	case <-s.done:
	case <-time.After(long):
		require.Fail(s.t, "exec does not end")
	}
	assert.Equal(s.t, len(s.terms), s.over, "terms begin and end")
	return s.end
}

// running waits for the next program.
func (s *site) running() *program {
	select {
	case p := <-s.began:
		return p
	case <-time.After(long):
		require.Fail(s.t, "no program is started")
		return nil
	}
}

func (s *site) Try(ctx context.Context) (elect.Step, *exit.Error) {
	return s.candidate.Try(ctx, elect.All, 0), nil
}

func (s *site) Due(ctx context.Context) error { return s.due(ctx) }
func (s *site) Begin(t *elect.Term) {
	s.terms = append(s.terms, t.Token())
	if s.begins != nil {
		s.begins(t)
	}
}
func (s *site) Over()                       { s.over++ }
func (s *site) Jeopardy(*elect.Term, error) {}
func (s *site) Safe()                       {}
func (s *site) Ending()                     { s.heard.notes("ending") }
func (s *site) Lost(err error)              { s.heard.notes("lost: " + err.Error()) }
func (s *site) Stuck(err error)             { s.heard.notes("stuck: " + err.Error()) }
func (s *site) Done() table.Due             { return table.Due{Key: s.key} }
func (s *site) Explain(err error) error     { return err }

func (s *site) Start(_ *elect.Term, until func() time.Time) (Program, error) {
	until()
	time.Sleep(s.starts)
	if s.fails != nil {
		return nil, s.fails
	}
	p := &program{ignores: s.ignores, began: time.Now(), done: make(chan struct{}), changed: make(chan struct{}, 1), unwatched: make(chan struct{})}
	p.first = until()
	p.Allow(p.first)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ran = append(s.ran, p)
	s.began <- p
	return p, nil
}

// free reports whether the lock was released.
func free(store *memstore.Store) bool {
	row, exists := store.Rows()["job"]
	return exists && row.Heartbeat.IsZero() && row.Writer == ""
}

// takeAway releases the lock as spindle release does.
func takeAway(t *testing.T, store *memstore.Store) {
	require.NoError(t, table.Table{Store: store}.Release(t.Context(), table.TokenAt(store.Rows()["job"].Token), "job"))
}

func heartbeat(store *memstore.Store) time.Time { return store.Rows()["job"].Heartbeat }

func waitsFor(d time.Duration) func(*site) { return func(s *site) { s.exec.Wait = d } }

func doingOnce(due func(context.Context) error) func(*site) {
	return func(s *site) { s.exec.Once, s.key, s.due = true, "1", due }
}

// The reply to a claim takes longer than the wait, or comes with its end, or with a signal.
func TestAProgramDoesNotStartOnceTheWaitIsOver(t *testing.T) {
	for name, r := range map[string]struct {
		answer time.Duration // when it comes
		signal time.Duration // when that comes; 0: none does
		code   int
	}{
		"the wait ends before":           {answer: 2 * time.Second, code: NotInTime},
		"the wait ends with it":          {answer: time.Second, code: NotInTime},
		"a signal before":                {answer: time.Second / 2, signal: time.Second / 4, code: byTerm},
		"a signal with it":               {answer: time.Second / 2, signal: time.Second / 2, code: byTerm},
		"the wait ends, then a signal":   {answer: 3 * time.Second, signal: 2 * time.Second, code: byTerm},
		"a signal, then the wait's end":  {answer: 3 * time.Second, signal: time.Second / 2, code: byTerm},
		"both at one instant":            {answer: 3 * time.Second, signal: time.Second, code: byTerm},
		"both at one instant, and it":    {answer: time.Second, signal: time.Second, code: byTerm},
		"neither, but a little after it": {answer: time.Second / 2},
	} {
		for _, due := range []func(context.Context) error{nil, func(context.Context) error { return nil }} {
			for range 20 { // which goroutine is first is left to chance
				synctest.Test(t, func(t *testing.T) {
					store := &memstore.Store{}
					s := newSite(t, store, "a", waitsFor(time.Second))
					if due != nil {
						doingOnce(due)(s)
					}
					began := time.Now()
					s.After(func(step string) {
						if step != "confirm" {
							return
						}
						time.Sleep(r.answer - time.Since(began))
						if r.signal == r.answer {
							s.signals <- syscall.SIGTERM
						}
					})
					if r.signal != 0 && r.signal != r.answer {
						time.AfterFunc(r.signal, func() { s.signals <- syscall.SIGTERM })
					}
					s.start()
					if r.code == 0 {
						s.running().exit(0)
					}
					assert.Equal(t, r.code, s.ends().Code, name)
					assert.Equal(t, r.code != 0, len(s.ran) == 0, name)
					assert.True(t, free(store), "%s: the lock is kept", name)
				})
			}
		}
	}
}

// The last look is answered when the wait ends, and a signal comes with the answer.
func TestASignalAtTheEndOfTheWaitIsASignal(t *testing.T) {
	for range 100 {
		synctest.Test(t, func(t *testing.T) {
			store := &memstore.Store{}
			holder := newSite(t, store, "holder").start()
			work := holder.running()
			s := newSite(t, store, "a", waitsFor(time.Second))
			began := time.Now()
			s.After(func(string) {
				time.Sleep(time.Second - time.Since(began))
				s.signals <- syscall.SIGINT
			})
			assert.Equal(t, exit.Error{Code: byInt}, s.start().ends())
			assert.Empty(t, s.ran)
			work.exit(0)
			holder.ends()
		})
	}
}

func TestTheWaitCountsWhatHasPassedOfIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &memstore.Store{}
		holder := newSite(t, store, "holder").start()
		work := holder.running()
		for _, waited := range []time.Duration{0, 4 * time.Second, 5 * time.Second, 6 * time.Second} {
			s := newSite(t, store, "a", waitsFor(5*time.Second), func(s *site) { s.exec.Waited = waited })
			began := time.Now()
			assert.Equal(t, NotInTime, s.start().ends().Code)
			assert.Equal(t, max(5*time.Second-waited, 0), time.Since(began))
			assert.ErrorContains(t, s.end.Err, "job was not acquired within 5s")
		}
		away := newSite(t, store, "away", waitsFor(5*time.Second))
		away.Cut()
		assert.Equal(t, exit.Failed, away.start().ends().Code, "nobody knows who has it")
		work.exit(0)
		holder.ends()
	})
}

// A term that is lost while it is handed over is lost.
func TestALockThatIsLostDuringAHandoverIsNotHandedOver(t *testing.T) {
	for _, restart := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			store := &memstore.Store{}
			s := newSite(t, store, "a", func(s *site) {
				s.exec.Handover, s.exec.Restart, s.candidate.LeaseRecord.AcceptsHandover, s.ignores = true, restart, true, true
			}).start()
			work := s.running()
			require.NoError(t, table.Table{Store: store}.Ask(t.Context(), table.ByOperator, "job", s.terms[0]))
			time.Sleep(lease + lease/3 + time.Second)
			synctest.Wait()
			require.Equal(t, []os.Signal{syscall.SIGTERM}, work.got, "the others know")
			takeAway(t, store)
			if restart {
				s.running().exit(0)
				synctest.Wait()
				s.signals <- syscall.SIGTERM // while it competes again
				assert.Equal(t, byTerm, s.ends().Code)
			} else {
				assert.Equal(t, Lost, s.ends().Code)
				assert.Len(t, s.ran, 1)
			}
			assert.Equal(t, signalCode(syscall.SIGKILL), work.code)
		})
	}
}

func TestAHandoverLeavesTheLockToOthersAndCompetesAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &memstore.Store{}
		handingOver := func(s *site) { s.exec.Handover, s.candidate.LeaseRecord.AcceptsHandover = true, true }
		a := newSite(t, store, "a", handingOver).start()
		first := a.running()
		b := newSite(t, store, "b", handingOver).start()
		time.Sleep(lease)
		require.NoError(t, table.Table{Store: store}.Ask(t.Context(), table.ByOperator, "job", a.terms[0]))
		second := b.running()
		synctest.Wait()
		assert.Equal(t, signalCode(syscall.SIGTERM), first.code)
		assert.False(t, second.began.Before(first.ended))
		assert.Less(t, second.began.Sub(first.ended), lease/50+10*time.Millisecond)

		b.signals <- syscall.SIGTERM // announced first, and passed on a third of the lease later
		began := time.Now()
		third := a.running()
		assert.Equal(t, byTerm, b.ends().Code)
		assert.GreaterOrEqual(t, second.ended.Sub(began), lease/3)
		assert.Less(t, second.ended.Sub(began), lease/3+100*time.Millisecond)

		a.signals <- syscall.SIGTERM
		time.Sleep(time.Second)
		synctest.Wait()
		assert.Empty(t, third.got, "the others don't know yet")
		began = time.Now()
		a.signals <- syscall.SIGINT // at once
		assert.Equal(t, byInt, a.ends().Code)
		assert.Zero(t, time.Since(began))
		assert.True(t, free(store))
	})
}

// While exec asks under the lock whether the program is still to be run, it loses the lock, or gets a signal to end.
func TestWhileItAsksWhatIsDueExecNoticesALossAndASignal(t *testing.T) {
	unanswered := func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }
	failing := func(context.Context) error { return errors.New("unavailable") }
	for _, due := range []func(context.Context) error{unanswered, failing} {
		synctest.Test(t, func(t *testing.T) {
			store := &memstore.Store{}
			s := newSite(t, store, "a", doingOnce(due)).start()
			time.Sleep(time.Minute)
			takeAway(t, store)
			began := time.Now()
			assert.Equal(t, Lost, s.ends().Code)
			assert.LessOrEqual(t, time.Since(began), lease/2)
			assert.Empty(t, s.ran)
		})
		synctest.Test(t, func(t *testing.T) {
			store := &memstore.Store{}
			s := newSite(t, store, "a", doingOnce(due)).start()
			time.Sleep(time.Minute)
			s.signals <- syscall.SIGTERM
			began := time.Now()
			assert.Equal(t, exit.Error{Code: byTerm}, s.ends())
			assert.Zero(t, time.Since(began))
			assert.Empty(t, s.ran)
			assert.True(t, free(store))
		})
	}
}

func TestWhatWasDoneMeanwhileIsNotRunAndNotRecorded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &memstore.Store{}
		asked := 0
		s := newSite(t, store, "a", doingOnce(func(context.Context) error {
			if asked++; asked < 3 {
				return errors.New("unavailable")
			}
			return &exit.Error{Code: 77}
		})).start()
		assert.Equal(t, exit.Error{Code: 77}, s.ends())
		assert.Empty(t, s.ran)
		assert.True(t, free(store))
		assert.NotContains(t, store.Rows(), "job!done")
	})
}

// Each reply to the release is lost until the lease is over: exec does not report recorded work as undone.
func TestWhatIsRecordedIsDoneThoughNoReplySaysSo(t *testing.T) {
	finish := func(step string) bool { return step == "finish" }
	run := func(t *testing.T, request, reply func(string) bool) (exit.Error, *memstore.Store) {
		store := &memstore.Store{}
		s := newSite(t, store, "a", doingOnce(func(context.Context) error { return nil })).start()
		work := s.running()
		s.Lose(request, reply)
		work.exit(0)
		return s.ends(), store
	}
	synctest.Test(t, func(t *testing.T) {
		end, store := run(t, nil, finish)
		assert.Equal(t, exit.Error{}, end)
		assert.Contains(t, store.Rows(), "job!done")
	})
	synctest.Test(t, func(t *testing.T) {
		end, store := run(t, finish, nil)
		assert.Equal(t, exit.Failed, end.Code)
		assert.ErrorContains(t, end.Err, "SUCCEEDED, BUT IT WAS NOT RECORDED THAT 1 IS DONE")
		assert.NotContains(t, store.Rows(), "job!done")
	})
}

// A program that ignores signals is gone before another holds the lock.
func TestAProgramIsGoneBeforeTheNextOneStarts(t *testing.T) {
	for _, cut := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			store := &memstore.Store{}
			a := newSite(t, store, "a", func(s *site) { s.ignores, s.exec.Grace = true, time.Hour }).start()
			first := a.running()
			b := newSite(t, store, "b").start()
			time.Sleep(time.Minute)
			for beat := heartbeat(store); heartbeat(store).Equal(beat); { // the lease lasts for long
				time.Sleep(lease / 100)
			}
			began := time.Now()
			if cut {
				a.Cut()
			} else { // a break does not wait for the program: its grace is what it has
				takeAway(t, store)
			}
			second := b.running()
			assert.Equal(t, Lost, a.ends().Code)
			if !cut {
				assert.LessOrEqual(t, first.told.Sub(began), lease/3+lease/20, "the next heartbeat says it")
			}
			assert.Equal(t, syscall.SIGTERM, first.got[0])
			assert.InDelta(t, MostGrace(lease), first.ended.Sub(first.told), float64(lease/20))
			if cut {
				assert.True(t, first.ended.Before(second.began))
				assert.InDelta(t, lease, second.began.Sub(began), float64(lease/10), "a lease after the last heartbeat")
			}
			second.exit(3)
			assert.Equal(t, exit.Error{Code: 3}, b.ends())
		})
	}
}

func TestAProgramThatCanNotBeStartedLeavesTheLock(t *testing.T) {
	for err, code := range map[error]int{
		&exit.Error{Code: 126, Err: errors.New("not executable")}: 126,
		errors.New("no watchdog"):                                 exit.Failed,
	} {
		synctest.Test(t, func(t *testing.T) {
			store := &memstore.Store{}
			s := newSite(t, store, "a", func(s *site) { s.fails = err }).start()
			assert.Equal(t, code, s.ends().Code)
			assert.ErrorContains(t, s.end.Err, err.Error())
			assert.True(t, free(store))
		})
	}
}

// A watchdog that knows less than the lock's deadline kills the program of a healthy holder, and one that knows more lets it
// run beside the next.
func TestTheWatchdogKnowsUntilWhenTheLockIsHeld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &memstore.Store{}
		a := newSite(t, store, "a").start()
		first := a.running()
		b := newSite(t, store, "b").start()
		allowed := func() time.Duration { return time.Until(*first.allowed.Load()) }
		for range 1000 {
			require.Greater(t, allowed(), lease/2)
			require.Less(t, allowed(), lease-lease/50)
			time.Sleep(10 * time.Millisecond)
		}
		a.Cut()
		second := b.running()
		assert.Less(t, first.allowed.Load().Sub(second.began), -lease/50)
		assert.Equal(t, Lost, a.ends().Code)
		second.exit(0)
		b.ends()
	})
}

// The machine may be busy: heartbeats go on while a program is started.
func TestAProgramThatTakesLongToStartKeepsItsLock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t, &memstore.Store{}, "a", func(s *site) { s.starts = lease * 8 / 10 }).start()
		work := s.running()
		time.Sleep(lease)
		assert.Empty(t, work.got)
		work.exit(0)
		assert.Zero(t, s.ends().Code)
	})
}

// A start can take longer than a lease. Exec keeps the lock by heartbeats during the start, and tells the watchdog the
// current deadline just before the program begins.
func TestAProgramThatTakesLongerThanALeaseToStartBeginsUnderItsLock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &memstore.Store{}
		a := newSite(t, store, "a", func(s *site) { s.starts = 3 * lease }).start()
		synctest.Wait()
		b := newSite(t, store, "b", waitsFor(4*lease)).start()
		work := a.running()
		assert.Greater(t, work.first.Sub(work.began), lease/2)
		assert.Equal(t, NotInTime, b.ends().Code)
		assert.Empty(t, work.got)
		work.exit(0)
		assert.Zero(t, a.ends().Code)
	})
}

// If the lock is lost during a start, the next holder's program may already be running.
func TestAProgramWhoseLockIsLostDuringItsStartDoesNotBegin(t *testing.T) {
	for name, r := range map[string]struct {
		starts time.Duration
		lose   func(*site, *memstore.Store)
	}{
		"it expires":     {2 * lease, func(s *site, _ *memstore.Store) { s.Cut() }},
		"it is released": {lease * 2 / 3, func(_ *site, store *memstore.Store) { takeAway(t, store) }},
	} {
		synctest.Test(t, func(t *testing.T) {
			store := &memstore.Store{}
			s := newSite(t, store, "a", func(s *site) { s.starts, s.ignores = r.starts, true }).start()
			synctest.Wait()
			r.lose(s, store)
			work := s.running()
			assert.False(t, work.first.After(work.began), name)
			assert.Equal(t, Lost, s.ends().Code, name)
			assert.Equal(t, work.began, work.ended, "%s: it is killed at once", name)
		})
	}
}

// With --restart the others have their turn, which does not count as a wait, and what can't be started at all is not tried again.
func TestAProgramIsRunAgainAfterOthersHadTheirTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &memstore.Store{}
		s := newSite(t, store, "a", waitsFor(time.Second), func(s *site) { s.exec.Restart = true }).start()
		first := s.running()
		first.exit(3)
		second := s.running()
		assert.InDelta(t, lease/3, second.began.Sub(first.began), float64(lease/30))
		time.Sleep(time.Minute)
		second.exit(0)
		third := s.running()
		assert.InDelta(t, lease/30, third.began.Sub(second.ended), float64(lease/30))
		third.exit(0)
		fourth := s.running()
		assert.InDelta(t, lease/3, fourth.began.Sub(third.began), float64(lease/30))
		s.fails = &exit.Error{Code: 127, Err: errors.New("gone")}
		fourth.exit(0)
		assert.Equal(t, 127, s.ends().Code)
		assert.True(t, free(store))
	})
}

// What a suspended machine finds when it resumes: no timer has noticed yet that the lease is over.
func TestAProgramThatEndsAfterASuspensionHasLostTheLock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &memstore.Store{}
		clock := &suspended{}
		s := newSite(t, store, "a", func(s *site) { s.candidate.Clock = clock }).start()
		work := s.running()
		synctest.Wait()
		clock.wall.Store(int64(time.Minute))
		work.exit(0)
		assert.Equal(t, Lost, s.ends().Code)
		assert.ErrorIs(t, s.end.Err, elect.ErrExpired)
	})
}

func TestAProgramDoesNotStartUnderALockThatIsLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		clock := &suspended{}
		s := newSite(t, &memstore.Store{}, "a", func(s *site) {
			s.candidate.Clock, s.begins = clock, func(*elect.Term) { clock.wall.Store(int64(time.Minute)) }
		}).start()
		assert.Equal(t, Lost, s.ends().Code)
		assert.Empty(t, s.ran)
	})
}

// suspended is the clock of a machine that was suspended for so long.
type suspended struct {
	elect.SystemClock
	wall atomic.Int64
}

func (c *suspended) Now() elect.Instant {
	now := c.SystemClock.Now()
	now.Wall += c.wall.Load()
	return now
}

// Both have happened when exec looks, whichever it finds first.
func TestASignalComesBeforeAClaim(t *testing.T) {
	for range 100 {
		synctest.Test(t, func(t *testing.T) {
			signals := make(chan os.Signal, 1)
			r := &runner{events: loop.NewInbox[event](), sources: sources{signals: signals}}
			r.events.Put(won)
			signals <- syscall.SIGTERM
			all := r.await()
			assert.Equal(t, terminated, all[0])
			if all[len(all)-1].what != elected {
				all = r.await()
			}
			assert.Equal(t, won, all[len(all)-1])
		})
	}
}

// A signal that ends exec is taken in together with a heartbeat that has failed, before the program is started.
func TestASignalThatComesWithAFailedHeartbeatEndsExec(t *testing.T) {
	failing := func(context.Context) error { return errors.New("unavailable") }
	for range 20 { // which of them is seen first is left to chance
		synctest.Test(t, func(t *testing.T) {
			store := &memstore.Store{}
			s := newSite(t, store, "a", doingOnce(failing))
			s.exec.prepare()
			r := s.exec.run
			r.handle(event{what: begun})
			for r.m.phase != checking {
				for _, e := range r.await() {
					r.receive(e)
				}
			}
			r.term.notify(elect.TermEvent{What: elect.InJeopardy, Err: errors.New("heartbeat: unavailable")})
			s.signals <- syscall.SIGTERM
			for r.m.phase != ended {
				for _, e := range r.await() {
					r.receive(e)
				}
			}
			assert.Equal(t, byTerm, s.exec.end(r.m.last).Code)
			assert.True(t, free(store))
		})
	}
}

// A lease that expires during a suspension leaves the program no time, because another process may hold the lock.
func TestAProgramIsKilledAtOnceAfterASuspension(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		clock := &fleet.Clock{}
		s := newSite(t, &memstore.Store{}, "a", func(s *site) { s.candidate.Clock, s.ignores = clock, true })
		var woke time.Time
		s.After(func(step string) {
			if step == "heartbeat" && woke.IsZero() {
				woke = time.Now()
				clock.Wall.Add(int64(lease))
			}
		})
		p := s.start().running()
		assert.Equal(t, Lost, s.ends().Code)
		assert.Less(t, p.ended.Sub(woke), lease/20)
	})
}
