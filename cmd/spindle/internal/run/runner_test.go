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

	"github.com/spindle-lock/spindle/cmd/spindle/internal/commandtest"
	"github.com/spindle-lock/spindle/cmd/spindle/internal/terminal"
	"github.com/spindle-lock/spindle/internal/elect"
	"github.com/spindle-lock/spindle/internal/loop"
	"github.com/spindle-lock/spindle/internal/table"
	"github.com/spindle-lock/spindle/internal/testkit/fleet"
	"github.com/spindle-lock/spindle/internal/testkit/memstore"
	"github.com/spindle-lock/spindle/internal/testkit/steps"
)

// The tests of this file run exec in virtual time on a table in memory. A bubble fails if a goroutine is left in it.

// program is one that obeys signals, unless it ignores them.
type program struct {
	ignores bool
	undying bool
	began   time.Time
	first   time.Time // the deadline when it begins
	end     sync.Once
	done    chan struct{}
	code    int
	got     []os.Signal
	told    time.Time // when it got its first signal
	allowed atomic.Pointer[time.Time]
	ended   time.Time

	killed, spared int // of what has left its group

	changed   chan struct{}
	stopped   atomic.Pointer[os.Signal]
	hears     func() // at Signal
	goesOn    func() // at Continue
	allows    func() // at Allow
	unwatched chan struct{}
	unwatches error // what Rewatch returns
	exited    bool  // as Rewatch finds it
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
func (p *program) Left() (killed, spared int) { return p.killed, p.spared }
func (p *program) Pid() int                   { return 4711 }
func (p *program) Changed() <-chan struct{}   { return p.changed }
func (p *program) Unwatched() <-chan struct{} { return p.unwatched }

func (p *program) Kill() {
	if !p.undying {
		p.exit(signalCode(syscall.SIGKILL))
	}
}

func (p *program) Allow(until time.Time) {
	p.allowed.Store(&until)
	if p.allows != nil {
		p.allows()
	}
}

func (p *program) Rewatch() (bool, error) {
	p.rewatched++
	if p.exited {
		return false, nil
	}
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
	if p.hears != nil {
		p.hears()
	}
	if !p.ignores {
		p.exit(signalCode(s))
	}
}

// site is a machine with an exec on it.
type site struct {
	t *testing.T
	memstore.Link
	exec    *execution
	run     *programs
	signals chan os.Signal
	tty     Terminal
	waited  time.Duration

	standsBy bool // it does not queue, as guard does not
	check    func(context.Context, role) error

	ignores bool          // its programs do
	undying bool          // its programs do not end when they are killed
	fails   error         // so they don't start
	starts  time.Duration // how long that takes

	began chan *program
	mu    sync.Mutex
	ran   []*program
	end   terminal.Exit
	done  chan struct{} // closed when the exec has ended
}

// long is more than anything takes here.
const long = time.Hour

func newSite(t *testing.T, store table.Store, name string, change ...func(*site)) *site {
	s := &site{t: t, Link: memstore.Link{Store: store}, signals: make(chan os.Signal, 16), began: make(chan *program, 16), done: make(chan struct{})}
	s.exec = &execution{reports: reportsOn(&s.Link, "job", name, lease), lease: lease, grace: MostGrace(lease), args: []string{"work"}}
	for _, f := range change {
		f(s)
	}
	return s
}

func (s *site) start() *site {
	s.t.Cleanup(s.stop)
	s.exec.joins(s.exec.slots, !s.exec.once.wanted() && !s.exec.atOnce && !s.standsBy)
	if s.exec.once.wanted() {
		s.exec.beginOnce()
	}
	s.run = s.exec.newPrograms(s.signals, s.tty, s.waited)
	s.run.launch = s.launch
	if s.check != nil {
		s.run.edge = checked{s.run, s.check}
	}
	go func() {
		defer close(s.done)
		if end, failed := s.run.run().(*terminal.Exit); failed {
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
		s.exitAll(0)
		time.Sleep(lease)
	}
}

// ends waits for the exec to end, and returns how.
func (s *site) ends() terminal.Exit {
	select {
	case <-s.done:
	case <-time.After(long):
		require.Fail(s.t, "exec does not end")
	}
	assert.Nil(s.t, s.exec.state.term, "a term has not ended")
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

func (s *site) launch(_ *elect.Term, until func() time.Time) (Program, error) {
	until()
	time.Sleep(s.starts)
	if s.fails != nil {
		return nil, s.fails
	}
	p := &program{ignores: s.ignores, undying: s.undying, began: time.Now(), done: make(chan struct{}), changed: make(chan struct{}, 1), unwatched: make(chan struct{})}
	p.first = until()
	p.Allow(p.first)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ran = append(s.ran, p)
	s.began <- p
	return p, nil
}

func waitsFor(d time.Duration) func(*site) { return func(s *site) { s.exec.wait = d } }

func handingOver(s *site) { s.exec.handover, s.exec.candidate.LeaseRecord.AcceptsHandover = true, true }

func doingOnce(s *site) { s.exec.once = once{schedule: table.Named("1"), already: 77} }

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
		for _, change := range []func(*site){func(*site) {}, doingOnce} {
			for range 20 { // which goroutine is first is left to chance
				synctest.Test(t, func(t *testing.T) {
					store := &memstore.Store{}
					s := newSite(t, store, "a", waitsFor(time.Second), change)
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

func TestTheWaitCountsWhatHasPassedOfIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &memstore.Store{}
		holder := newSite(t, store, "holder").start()
		work := holder.running()
		for _, waited := range []time.Duration{0, 4 * time.Second, 5 * time.Second, 6 * time.Second} {
			s := newSite(t, store, "a", waitsFor(5*time.Second), func(s *site) { s.waited = waited })
			began := time.Now()
			assert.Equal(t, NotInTime, s.start().ends().Code)
			assert.Equal(t, max(5*time.Second-waited, 0), time.Since(began))
			assert.ErrorContains(t, s.end.Err, "job was not acquired within 5s")
		}
		away := newSite(t, store, "away", waitsFor(5*time.Second))
		away.Cut()
		assert.Equal(t, terminal.Failed, away.start().ends().Code, "nobody knows who has it")
		work.exit(0)
		holder.ends()
	})
}

// The limit of --wait is for each wait. What has passed before the competition counts only for the first one.
func TestEachWaitIsAsLongAsTheUserAllows(t *testing.T) {
	for how, r := range map[string]struct {
		change func(*site)
		ends   func(*memstore.Store, *program)
		pause  time.Duration
	}{
		"its program ends":       {func(s *site) { s.exec.restart = true }, func(_ *memstore.Store, p *program) { p.exit(0) }, lease / 30},
		"it hands the lock over": {handingOver, func(store *memstore.Store, _ *program) { ask(t, store, "job") }, 0},
	} {
		synctest.Test(t, func(t *testing.T) {
			store := &memstore.Store{}
			s := newSite(t, store, "a", waitsFor(5*time.Second), r.change, func(s *site) { s.waited = 4 * time.Second }).start()
			first := s.running()
			other := newSite(t, store, "other").start()
			time.Sleep(lease)
			r.ends(store, first)
			work := other.running()
			assert.Equal(t, NotInTime, s.ends().Code, how)
			assert.InDelta(t, 5*time.Second+r.pause, time.Since(first.ended), float64(100*time.Millisecond), how)
			work.exit(0)
			other.ends()
		})
	}
}

// When its wait ends, exec says that the lock was not to be had, or that nobody knows: the last answered poll decides. If there
// was none in this wait, the check of the table does.
func TestTheEndOfAWaitSaysWhatIsKnown(t *testing.T) {
	away := func(step string) error { return commandtest.Away }
	for name, r := range map[string]struct {
		happens func(*site)
		waited  time.Duration
		code    int
	}{
		"it is held":                        {func(*site) {}, 0, NotInTime},
		"an outage that goes on":            {func(s *site) { s.Refuse(away) }, 0, terminal.Failed},
		"an outage that is over":            {func(s *site) { s.Refuse(away); time.Sleep(lease); s.Refuse(nil) }, 0, NotInTime},
		"the last poll is not answered":     {func(s *site) { time.Sleep(3*lease - 2*time.Second); s.Cut() }, 0, NotInTime},
		"it can't queue":                    {func(s *site) { s.Refuse(fleet.Refusing("queue", commandtest.Away)) }, 0, NotInTime},
		"the check of the table took it up": {func(s *site) { s.exec.trouble = commandtest.Away }, 4 * lease, terminal.Failed},
	} {
		synctest.Test(t, func(t *testing.T) {
			store := &memstore.Store{}
			holder := newSite(t, store, "holder").start()
			work := holder.running()
			s := newSite(t, store, "a", waitsFor(3*lease), func(s *site) { s.waited = r.waited })
			if r.waited == 0 {
				s.start()
				r.happens(s)
			} else {
				r.happens(s)
				s.start()
			}
			assert.Equal(t, r.code, s.ends().Code, name)
			work.exit(0)
			holder.ends()
			time.Sleep(lease)
		})
	}
}

// An exec that only tries says the same as one whose wait is over. A lock that no exec can ever have ends both at once.
func TestExecSaysTheSameWhetherItTriesOrWaits(t *testing.T) {
	for name, r := range map[string]struct {
		answer error // of each poll
		code   int
		atOnce bool
	}{
		"it is held":                    {nil, NotInTime, false},
		"it is held by a newer version": {fmt.Errorf("a row %w", table.ErrNewer), NotInTime, false},
		"an outage":                     {commandtest.Away, terminal.Failed, false},
		"it is a group's":               {fmt.Errorf("a row %w", table.ErrGroup), terminal.Failed, true},
	} {
		for kind, change := range map[string]func(*site){"a lock": func(*site) {}, "once": doingOnce, "slots": func(s *site) { s.exec.slots = 1 }} {
			for _, tries := range []bool{true, false} {
				synctest.Test(t, func(t *testing.T) {
					store := &memstore.Store{}
					holder := newSite(t, store, "holder", change).start()
					work := holder.running()
					s := newSite(t, store, "a", change, func(s *site) {
						if s.exec.atOnce = tries; !tries {
							s.exec.wait = lease
						}
					})
					s.Refuse(fleet.Refusing("observe", r.answer))
					began := time.Now()
					assert.Equal(t, r.code, s.start().ends().Code, "%s, %s, tries=%v", name, kind, tries)
					assert.ErrorContains(t, s.end.Err, "was not acquired", "%s, %s, tries=%v", name, kind, tries)
					assert.Equal(t, tries || r.atOnce, time.Since(began) == 0, "%s, %s, tries=%v", name, kind, tries)
					work.exit(3)
					holder.ends()
				})
			}
		}
	}
}

// If no process holds the lock, but a step of acquiring it fails, exec says which error it got. It does not say that another process holds
// the lock, because its caller would take that for the usual case.
func TestAnExecThatCanNotAcquireAFreeLockSaysWhy(t *testing.T) {
	for _, step := range []string{"observe", "claim", "confirm", "done"} {
		for kind, change := range map[string]func(*site){"a lock": func(*site) {}, "once": doingOnce, "slots": func(s *site) { s.exec.slots = 1 }} {
			for _, tries := range []bool{true, false} {
				if step == "done" && kind != "once" || step == "confirm" && !tries { // it leaves the lock to others, and the last poll was answered
					continue
				}
				synctest.Test(t, func(t *testing.T) {
					s := newSite(t, &memstore.Store{}, "a", change, func(s *site) {
						if s.exec.atOnce = tries; !tries {
							s.exec.wait = lease
						}
					})
					s.Refuse(fleet.Refusing(step, commandtest.Away))
					assert.Equal(t, terminal.Failed, s.start().ends().Code, "%s, %s, tries=%v", step, kind, tries)
					assert.ErrorContains(t, s.end.Err, "job was not acquired", "%s, %s, tries=%v", step, kind, tries)
					assert.ErrorIs(t, s.end.Err, commandtest.Away, "%s, %s, tries=%v", step, kind, tries)
				})
			}
		}
	}
}

// An exec that only tries runs its program although Spanner has aborted its claim on a free lock. Otherwise, no machine would run the
// program, and the exit code would say that another one does. If another candidate was first, exec names it only if it holds the lock.
func TestAnExecThatOnlyTriesGivesUpOnlyIfTheLockIsTaken(t *testing.T) {
	for name, r := range map[string]struct {
		meanwhile func(*testing.T, *memstore.Store) error // returns the answer to the first claim
		says      string                                  // "": its program runs
	}{
		"Spanner aborts the claim":   {func(*testing.T, *memstore.Store) error { return table.ErrAborted }, ""},
		"another candidate is first": {func(t *testing.T, store *memstore.Store) error { newSite(t, store, "b").start().running(); return nil }, "it is held by b, token "},
		"another candidate has begun": {func(t *testing.T, store *memstore.Store) error {
			steps.Claim(t, table.Table{Store: store}, "job")
			return nil
		}, "another candidate was first"},
	} {
		for kind, change := range map[string]func(*site){"a lock": func(*site) {}, "once": doingOnce} {
			synctest.Test(t, func(t *testing.T) {
				store := &memstore.Store{}
				dead := newSite(t, store, "dead").start()
				dead.running()
				dead.Cut()
				dead.ends()
				time.Sleep(lease)
				s := newSite(t, store, "a", change, func(s *site) { s.exec.atOnce = true })
				first := memstore.Once("claim")
				s.Refuse(func(step string) error {
					if first(step) {
						return r.meanwhile(t, store)
					}
					return nil
				})
				if s.start(); r.says == "" {
					s.running().exit(0)
					assert.Zero(t, s.ends(), "%s, %s", name, kind)
					return
				}
				assert.Equal(t, NotInTime, s.ends().Code, "%s, %s", name, kind)
				assert.ErrorContains(t, s.end.Err, "job was not acquired: "+r.says, "%s, %s", name, kind)
			})
		}
	}
}

func TestAHandoverLeavesTheLockToOthersAndCompetesAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &memstore.Store{}
		a := newSite(t, store, "a", handingOver).start()
		first := a.running()
		b := newSite(t, store, "b", handingOver).start()
		time.Sleep(lease)
		ask(t, store, "job")
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

// An exec that has yielded to a higher priority in vain ignores such requests for a while. An operator's request counts at any time.
func TestAnExecThatYieldedInVainKeepsTheLockFromPreferencesOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &memstore.Store{}
		s := newSite(t, store, "a", handingOver).start()
		for _, r := range []struct {
			by      table.Request
			ignored bool
		}{{table.ByOperator, false}, {table.ByPreference, false}, {table.ByPreference, true}, {table.ByOperator, false}} {
			p := s.running()
			time.Sleep(lease)
			require.NoError(t, table.Table{Store: store}.Ask(t.Context(), r.by, "job", tokenIn(store, "job")))
			time.Sleep(2 * lease)
			synctest.Wait()
			assert.Equal(t, r.ignored, p.ended.IsZero())
			if r.ignored {
				ask(t, store, "job")
			}
		}
		s.running().exit(0)
		s.ends()
	})
}

// Exec does not report recorded work as undone, even if each reply to the release is lost until the lease is over. The same holds if
// exec sends the release again, finds that it has lost the lock, and can't find out why.
func TestWhatIsRecordedIsDoneThoughNoReplySaysSo(t *testing.T) {
	finish := func(step string) bool { return step == "finish" }
	run := func(t *testing.T, request, reply func(string) bool) (terminal.Exit, *memstore.Store) {
		store := &memstore.Store{}
		s := newSite(t, store, "a", doingOnce).start()
		work := s.running()
		s.Lose(request, reply)
		work.exit(0)
		return s.ends(), store
	}
	synctest.Test(t, func(t *testing.T) {
		end, store := run(t, nil, finish)
		assert.Equal(t, terminal.Exit{}, end)
		assert.Contains(t, store.Rows(), "job!done")
	})
	synctest.Test(t, func(t *testing.T) {
		end, store := run(t, finish, nil)
		assert.Equal(t, terminal.Failed, end.Code)
		assert.ErrorContains(t, end.Err, "SUCCEEDED, BUT 1 COULD NOT BE RECORDED AS DONE")
		assert.NotContains(t, store.Rows(), "job!done")
	})
	synctest.Test(t, func(t *testing.T) {
		store := &memstore.Store{}
		s := newSite(t, store, "a", doingOnce).start()
		work := s.running()
		s.Lose(nil, memstore.Once("finish"))
		s.Refuse(fleet.Refusing("released", commandtest.Away))
		work.exit(0)
		assert.Equal(t, terminal.Exit{}, s.ends())
		assert.Contains(t, store.Rows(), "job!done")
	})
}

// A program that ignores signals is gone before another holds the lock.
func TestAProgramIsGoneBeforeTheNextOneStarts(t *testing.T) {
	for _, cut := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			store := &memstore.Store{}
			a := newSite(t, store, "a", func(s *site) { s.ignores, s.exec.grace = true, time.Hour }).start()
			first := a.running()
			b := newSite(t, store, "b").start()
			time.Sleep(time.Minute)
			beat := func() time.Time { return store.Rows()["job"].Heartbeat }
			for last := beat(); beat().Equal(last); { // the lease lasts for long
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
			assert.Equal(t, terminal.Exit{Code: 3}, b.ends())
		})
	}
}

// Each limit of a program that ignores signals is kept to within the time between two looks at it, whenever it begins. A kill that
// comes later would take the time that is reserved for the kill itself, and the lock would be lost before the program is gone.
func TestEachLimitOfAProgramIsKept(t *testing.T) {
	const look, grace, margin = lease / 20 / 4, lease / 4, lease / 20
	for name, r := range map[string]struct {
		change func(*site)
		begins func(*site, *program)
		told   time.Duration // after it begins; -1: by the deadline
		killed time.Duration // after that
	}{
		"it runs too long": {func(s *site) { s.exec.runTimeout = lease }, func(*site, *program) {}, lease, grace},
		"it exits slowly":  {func(s *site) { s.exec.limit = lease }, func(s *site, _ *program) { s.signals <- syscall.SIGTERM }, 0, lease},
		"it is stopped":    {func(*site) {}, func(_ *site, p *program) { p.stop(syscall.SIGSTOP) }, lease, grace},
		"it is cut off":    {func(*site) {}, func(s *site, _ *program) { s.Cut() }, -1, grace},
	} {
		for i := range 10 {
			synctest.Test(t, func(t *testing.T) {
				s := newSite(t, &memstore.Store{}, "a", r.change, func(s *site) { s.ignores, s.starts = true, lease/4 }).start()
				p := s.running()
				due := p.began
				if s.exec.runTimeout == 0 {
					time.Sleep(2*lease + time.Duration(i)*lease/71)
					due = time.Now()
				}
				r.begins(s, p)
				s.ends()
				if r.told < 0 {
					due = p.allowed.Load().Add(-margin/2 - grace)
				} else {
					due = due.Add(r.told)
				}
				for what, late := range map[string]time.Duration{"told": p.told.Sub(due), "killed": p.ended.Sub(due.Add(r.killed))} {
					assert.True(t, late >= 0 && late <= 2*look, "%s, %d: %s %v late", name, i, what, late)
				}
				if r.told < 0 {
					assert.LessOrEqual(t, p.ended.Sub(due.Add(r.killed)), look+time.Millisecond, "%s, %d", name, i)
				}
			})
		}
	}
}

// A program that is ending for another reason has no more than its grace once the lock is lost: the next holder does not wait for it.
func TestAProgramThatIsEndingHasOnlyItsGraceOnceItsLockIsLost(t *testing.T) {
	for name, ends := range map[string]func(*site){
		"a signal":        func(s *site) { s.signals <- syscall.SIGTERM },
		"two signals":     func(s *site) { s.signals <- syscall.SIGTERM; s.signals <- syscall.SIGINT },
		"no other reason": func(*site) {},
	} {
		synctest.Test(t, func(t *testing.T) {
			store := &memstore.Store{}
			s := newSite(t, store, "a", func(s *site) { s.ignores = true }).start()
			p := s.running()
			time.Sleep(lease)
			ends(s)
			time.Sleep(lease)
			beat := func() time.Time { return store.Rows()["job"].Heartbeat }
			for last := beat(); beat().Equal(last); { // the lease lasts for long
				time.Sleep(lease / 100)
			}
			lost := time.Now()
			takeAway(t, store)
			assert.Equal(t, Lost, s.ends().Code, name)
			assert.LessOrEqual(t, p.ended.Sub(lost), lease/3+MostGrace(lease)+lease/20, name)
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
		s := newSite(t, store, "a", waitsFor(time.Second), func(s *site) { s.exec.restart = true }).start()
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
		s.fails = &terminal.Exit{Code: 127, Err: errors.New("gone")}
		fourth.exit(0)
		assert.Equal(t, 127, s.ends().Code)
		assert.True(t, free(store))
	})
}

// An event of a term that is over changes nothing, neither while exec competes again nor in its next term. What went wrong with the
// last program, for example, is no reason to end the next one.
func TestAnEventOfAnEarlierTermChangesNothing(t *testing.T) {
	for what := begun; what <= unwatched; what++ {
		synctest.Test(t, func(t *testing.T) {
			s := newSite(t, &memstore.Store{}, "a", func(s *site) { s.exec.restart = true }).start()
			first := s.running()
			synctest.Wait()
			earlier := s.run.term
			comesLate := func() {
				earlier.put(event{what: what, end: terminal.Exit{Code: 3}, signal: syscall.SIGTERM, by: "b", err: errGivenUp})
				synctest.Wait()
			}
			first.exit(0)
			comesLate()
			second := s.running()
			comesLate()
			time.Sleep(lease)
			synctest.Wait()
			assert.Empty(t, second.got, "event %d", what)
			assert.Zero(t, second.ended, "event %d", what)
			s.signals <- syscall.SIGTERM
			assert.Equal(t, byTerm, s.ends().Code, "event %d", what)
			assert.Len(t, s.ran, 2, "event %d", what)
		})
	}
}

// While exec asks under the lock whether the program is still to be run, it loses the lock, or gets a signal to end.
func TestWhileItAsksWhatIsDueExecNoticesALossAndASignal(t *testing.T) {
	for _, answer := range []error{nil, errors.New("unavailable")} {
		for _, loses := range []bool{true, false} {
			synctest.Test(t, func(t *testing.T) {
				store := &memstore.Store{}
				s := newSite(t, store, "a", doingOnce)
				var held atomic.Bool
				s.After(func(step string) { held.Store(held.Load() || step == "confirm") })
				asks := func(step string) bool { return step == "done" && held.Load() }
				if answer == nil {
					s.Lose(asks, nil)
				}
				s.Refuse(func(step string) error {
					if asks(step) {
						return answer
					}
					return nil
				})
				s.start()
				time.Sleep(time.Minute)
				began := time.Now()
				if loses {
					takeAway(t, store)
					assert.Equal(t, Lost, s.ends().Code)
					assert.LessOrEqual(t, time.Since(began), lease/2)
				} else {
					s.signals <- syscall.SIGTERM
					assert.Equal(t, terminal.Exit{Code: byTerm}, s.ends())
					assert.Zero(t, time.Since(began))
					assert.True(t, free(store))
				}
				assert.Empty(t, s.ran)
			})
		}
	}
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
// under the lock, with a strong read, and until it has an answer.
func TestWhatIsRecordedWhileTheLockIsClaimedIsNotRunAgain(t *testing.T) {
	for key, code := range map[string]int{"1": 77, "0": 0} {
		synctest.Test(t, func(t *testing.T) {
			store := &memstore.Store{}
			seen := &looks{Store: store}
			s := newSite(t, seen, "a", doingOnce)
			refused := 0
			s.After(func(step string) {
				if step == "confirm" {
					require.NoError(t, store.Commit(t.Context(), "test", table.Record("job", tokenIn(store, "job"), table.Due{Key: key}, "other")))
				}
			})
			s.Refuse(func(step string) error {
				if step == "done" && !store.Rows()["job"].Heartbeat.IsZero() && refused < 2 {
					refused++
					return errors.New("unavailable")
				}
				return nil
			})
			if s.start(); code == 0 {
				s.running().exit(0)
			}
			assert.Equal(t, terminal.Exit{Code: code}, s.ends())
			assert.Equal(t, code != 0, len(s.ran) == 0)
			assert.Equal(t, []table.Bound{table.Present, table.Present, table.Strong}, seen.bounds)
			assert.True(t, free(store))
		})
	}
}

// What a suspended machine finds when it resumes: no timer has noticed yet that the lease is over. Another process may hold
// the lock, so nothing is started under it, what runs has no time left, and what has just ended did not end under it.
func TestALeaseThatIsOverAfterASuspensionIsOver(t *testing.T) {
	for _, during := range []string{"confirm", "heartbeat", "a heartbeat that fails", ""} {
		synctest.Test(t, func(t *testing.T) {
			clock := &fleet.Clock{}
			s := newSite(t, &memstore.Store{}, "a", func(s *site) { s.exec.candidate.Clock, s.exec.config.Clock, s.ignores = clock, clock, true })
			var woke time.Time
			wakes := func() { woke = time.Now(); clock.Wall.Add(int64(time.Minute)) }
			s.After(func(step string) {
				if step == during && woke.IsZero() {
					wakes()
				}
			})
			s.Refuse(func(step string) error {
				if step != "heartbeat" || during != "a heartbeat that fails" {
					return nil
				}
				if woke.IsZero() {
					wakes()
				}
				return commandtest.Away
			})
			s.start()
			if during == "" {
				p := s.running()
				synctest.Wait()
				wakes()
				p.exit(0)
			}
			assert.Equal(t, Lost, s.ends().Code, during)
			assert.ErrorIs(t, s.end.Err, elect.ErrExpired, during)
			for _, p := range s.ran {
				assert.NotEqual(t, "confirm", during)
				assert.Less(t, p.ended.Sub(woke), lease/20, during)
			}
		})
	}
}

// Both have happened when exec looks, whichever it finds first.
func TestASignalComesBeforeAClaim(t *testing.T) {
	for range 100 {
		synctest.Test(t, func(t *testing.T) {
			signals := make(chan os.Signal, 1)
			r := &runner{of: &reports{}, events: loop.NewInbox[event](), sources: sources{signals: signals}}
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
