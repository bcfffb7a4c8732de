package run

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/spindle-lock/spindle/internal/elect"
	"github.com/spindle-lock/spindle/internal/table"
	"github.com/spindle-lock/spindle/internal/testkit/memstore"
)

// The tests of this file run guards in virtual time on a table in memory.

const (
	renew      = time.Second
	guardLease = 3 * renew
)

// guardWorld is the machines, with one table, and who is active.
type guardWorld struct {
	t      testing.TB
	store  *memstore.Store
	over   table.Store   // their way to it, which may have faults
	dying  time.Duration // how long a command takes to end that is killed
	mu     sync.Mutex
	active string
}

func (w *guardWorld) on(name string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.active != "" && w.active != name {
		w.t.Errorf("%s and %s are active at once", w.active, name)
	}
	w.active = name
}

func (w *guardWorld) off(name string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.active == name {
		w.active = ""
	}
}

func (w *guardWorld) who() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.active
}

// site is a machine: its guard, its way to the table, and its service.
type guardSite struct {
	*guardWorld
	memstore.Link // its way to the table
	guard         *guarding
	name          string

	faults      sync.Mutex
	sick        bool          // checks fail
	hang        bool          // checks don't return
	unwatched   bool          // checks find that the watchdog has gone
	broken      int           // so many commands fail
	turnOn      time.Duration // how long an activation takes
	turnOff     time.Duration
	checkTakes  time.Duration
	command     string // that runs
	checks      []role
	checkBegan  time.Time // the last one
	checkEnded  time.Time
	deactivated int
	extended    []time.Time
	ctx         context.Context
	stop        context.CancelFunc
	done        chan struct{}
}

func (w *guardWorld) start(name string, change ...func(*guarding)) *guardSite {
	s := w.site(name, change...)
	s.begin()
	return s
}

func (w *guardWorld) site(name string, change ...func(*guarding)) *guardSite {
	s := &guardSite{guardWorld: w, Link: memstore.Link{Store: w.over}, name: name, done: make(chan struct{})}
	s.guard = &guarding{reports: reportsOn(&s.Link, "lock", name, guardLease), renew: renew, confirm: 2, checks: checks{unhealthy: 1}, activation: time.Minute}
	for _, f := range change {
		f(s.guard)
	}
	s.ctx, s.stop = context.WithCancel(context.Background())
	return s
}

func (s *guardSite) begin() {
	go func() { defer close(s.done); s.guard.newServices(s).run(s.ctx) }()
	s.t.Cleanup(func() { // what a test has left that failed
		s.Mend()
		s.set(func() { s.sick, s.hang, s.broken, s.turnOn, s.turnOff = false, false, 0, 0, 0 })
		s.end()
	})
}

// works reports whether the service is active on the only machine of a world.
func (s *guardSite) works() bool { return s.who() != "" }

func (s *guardSite) set(f func()) { s.faults.Lock(); defer s.faults.Unlock(); f() }

func (s *guardSite) takes(d *time.Duration) time.Duration {
	s.faults.Lock()
	defer s.faults.Unlock()
	return *d
}

// seen is how often the service was deactivated, and all checks.
func (s *guardSite) seen() (int, []role) {
	s.faults.Lock()
	defer s.faults.Unlock()
	return s.deactivated, slices.Clone(s.checks)
}

// end ends the guard.
func (s *guardSite) end() {
	s.stop()
	select {
	case <-s.done:
	case <-time.After(20 * s.guard.lease()):
		s.t.Errorf("the guard of %s does not end", s.name)
		s.Cut() // it ends once it has lost its lock
		<-s.done
	}
}

// run runs a command of the service, which may be killed.
func (s *guardSite) run(ctx context.Context, command string, takes time.Duration) error {
	s.set(func() {
		if s.command != "" {
			s.t.Errorf("%s runs beside %s", command, s.command)
		}
		s.command = command
	})
	if elect.Sleep(ctx, elect.SystemClock{}, takes); ctx.Err() != nil {
		time.Sleep(s.dying)
	}
	s.faults.Lock()
	defer s.faults.Unlock()
	s.command = ""
	if s.broken > 0 {
		s.broken--
		return errors.New("it does not want to")
	}
	return ctx.Err()
}

func (s *guardSite) Activate(ctx context.Context, _ *elect.Term) error {
	s.on(s.name) // from the first moment on
	return s.run(ctx, "an activation", s.takes(&s.turnOn))
}

func (s *guardSite) Extended() { s.set(func() { s.extended = append(s.extended, time.Now()) }) }

func (s *guardSite) Deactivate(ctx context.Context) error {
	err := s.run(ctx, "a deactivation", s.takes(&s.turnOff))
	if s.set(func() { s.deactivated++ }); err == nil {
		s.off(s.name)
	}
	return err
}

func (s *guardSite) Check(ctx context.Context, role role) error {
	s.faults.Lock()
	hang, sick, unwatched, takes := s.hang, s.sick, s.unwatched, s.checkTakes
	s.checks, s.checkBegan = append(s.checks, role), time.Now()
	s.faults.Unlock()
	defer s.set(func() { s.checkEnded = time.Now() })
	if elect.Sleep(ctx, elect.SystemClock{}, takes); ctx.Err() != nil {
		return ctx.Err()
	}
	if hang {
		<-ctx.Done()
		return ctx.Err()
	}
	if unwatched {
		return errUnwatched
	}
	if sick {
		return errors.New("sick")
	}
	return nil
}

func inWorld(t *testing.T, f func(t *testing.T, w *guardWorld)) {
	synctest.Test(t, func(t *testing.T) {
		store := &memstore.Store{}
		f(t, &guardWorld{t: t, store: store, over: store})
	})
}

// until waits for a machine to be active, and returns how long that took.
func (w *guardWorld) until(name string) time.Duration {
	w.t.Helper()
	start := time.Now()
	for w.who() != name {
		time.Sleep(time.Millisecond)
		require.Less(w.t, time.Since(start), time.Hour, "%s does not become active", name)
	}
	synctest.Wait() // the guard may not have reported it yet
	return time.Since(start)
}

// gone waits for a machine not to be active any more.
func (w *guardWorld) gone(name string) {
	w.t.Helper()
	for start := time.Now(); w.who() == name; time.Sleep(time.Millisecond) {
		require.Less(w.t, time.Since(start), time.Hour, "%s stays active", name)
	}
}

// pair starts machine a, and b once a is active.
func (w *guardWorld) pair() (a, b *guardSite) {
	a = w.start("a")
	w.until("a")
	b = w.start("b")
	time.Sleep(10 * time.Second)
	return a, b
}

func TestALockThatWasReleasedIsActivatedAtOnce(t *testing.T) {
	inWorld(t, func(t *testing.T, w *guardWorld) {
		a, b := w.pair()
		a.end()
		assert.Less(t, w.until("b"), renew+100*time.Millisecond)
		b.end()
	})
}

// idle returns how long no machine is active once a is not.
func (w *guardWorld) idle(a, b string) time.Duration {
	w.gone(a)
	return w.until(b)
}

func TestAMachineThatHandsOverStaysActiveUntilTheOthersKnow(t *testing.T) {
	inWorld(t, func(t *testing.T, w *guardWorld) {
		a := w.start("a", handsOver)
		w.until("a")
		b := w.start("b", handsOver)
		time.Sleep(10 * time.Second)
		for ask(t, w.store, "lock"); w.store.Rows()["lock"].Writer != ""; { // until the end is announced
			time.Sleep(time.Millisecond)
		}
		began := time.Now()
		a.stop() // which is no reason to be faster
		time.Sleep(guardLease/3 - 2*time.Millisecond)
		assert.Equal(t, "a", w.who())
		assert.LessOrEqual(t, w.idle("a", "b"), guardLease/50+5*time.Millisecond)
		assert.Less(t, time.Since(began), guardLease/3+guardLease/50+50*time.Millisecond)
		<-a.done

		c := w.start("c", handsOver) // a request hands over too, and the machine is on standby then
		time.Sleep(10 * time.Second)
		ask(t, w.store, "lock")
		assert.LessOrEqual(t, w.idle("b", "c"), guardLease/50+5*time.Millisecond)
		time.Sleep(10 * guardLease)
		assert.Equal(t, "c", w.who())
		c.end()
		assert.Less(t, w.until("b"), guardLease)
		b.end()
	})
}

func handsOver(g *guarding) { g.handover, g.candidate.LeaseRecord.AcceptsHandover = true, true }

// There is no way back from an announcement: a machine that may not activate yet makes none.
func TestAMachineThatIsAskedWhileItWaitsHandsOverOnceItIsActive(t *testing.T) {
	patient := func(g *guarding) { handsOver(g); g.confirm = 10 }
	inWorld(t, func(t *testing.T, w *guardWorld) {
		a := w.start("a", patient)
		w.until("a")
		b := w.start("b", patient)
		time.Sleep(10 * time.Second)
		a.Cut()
		time.Sleep(guardLease + renew/4) // b has it, and waits
		ask(t, w.store, "lock")
		a.Mend()
		w.until("b")
		time.Sleep(2 * guardLease)
		assert.Equal(t, "a", w.who())
		a.end()
		b.end()
	})
}

// A machine that is asked for the lock while it activates the service breaks the activation off once the others know. If it did not hear
// the request, an operator would have to ask again.
func TestAMachineThatIsAskedWhileItActivatesHandsOver(t *testing.T) {
	inWorld(t, func(t *testing.T, w *guardWorld) {
		a := w.site("a", handsOver)
		a.turnOn = time.Minute
		a.begin()
		w.until("a")
		b := w.start("b", handsOver)
		time.Sleep(10 * time.Second)
		require.Equal(t, activating, a.guard.now().Why)
		ask(t, w.store, "lock")
		assert.Less(t, w.until("b"), guardLease)
		a.end()
		b.end()
	})
}

func TestTheFormerMachineHasTimeToDeactivate(t *testing.T) {
	inWorld(t, func(t *testing.T, w *guardWorld) {
		a, b := w.pair()
		a.set(func() { a.turnOff = 2*renew - 2*renew/20 - time.Millisecond })
		a.Cut()
		took := w.until("b")
		assert.Greater(t, took, guardLease-(renew+renew/20)+2*renew-time.Millisecond) // the last heartbeat was sent so long ago
		assert.Less(t, took, guardLease+2*renew+200*time.Millisecond)
		a.Mend()
		a.end()
		b.end()
	})
}

func TestASickServiceGivesTheLockUpAtOnce(t *testing.T) {
	for _, hang := range []bool{false, true} {
		inWorld(t, func(t *testing.T, w *guardWorld) {
			a, b := w.pair()
			a.set(func() { a.sick, a.hang = !hang, hang })
			assert.Less(t, w.until("b"), 3*renew+100*time.Millisecond) // a check, its limit, and a poll of b's
			time.Sleep(time.Minute)
			assert.Equal(t, "b", w.who())
			_, checks := a.seen()
			assert.Equal(t, standby, checks[len(checks)-1])
			b.set(func() { b.sick = true })
			time.Sleep(time.Minute)
			assert.Empty(t, w.who(), "a sick machine does not compete")
			b.set(func() { b.sick = false })
			assert.Less(t, w.until("b"), guardLease, "and one that is well again does")
			a.end()
			b.end()
		})
	}
}

func TestALockIsNotReleasedOverAServiceThatCannotBeDeactivated(t *testing.T) {
	inWorld(t, func(t *testing.T, w *guardWorld) {
		a, b := w.pair()
		a.set(func() { a.broken = 2; a.sick = true })
		took := w.until("b")
		assert.Greater(t, took, guardLease)
		assert.Less(t, took, guardLease+2*renew+2*renew, "a check, the first attempt, the lease and the confirmation")
		a.end()
		b.end()
	})
}

func TestAnActiveMachineIsAsPatientWithItsHealthCheckAsItWasTold(t *testing.T) {
	inWorld(t, func(t *testing.T, w *guardWorld) {
		a := w.start("a", func(g *guarding) { g.unhealthy = 3 })
		w.until("a")
		b := w.start("b")
		sickFor := func(checks int) {
			_, before := a.seen()
			a.set(func() { a.sick = true })
			for n := len(before); n < len(before)+checks; {
				time.Sleep(time.Millisecond)
				_, all := a.seen()
				n = len(all)
			}
			a.set(func() { a.sick = false })
			time.Sleep(2 * renew)
		}
		for range 3 {
			sickFor(2)
			assert.Equal(t, "a", w.who(), "one that succeeds in between counts anew")
		}
		sickFor(3)
		w.until("b")
		a.end()
		b.end()
	})
}

// A guard whose watchdog has gone does not wait for more failures: if guard died, nothing would deactivate the service.
func TestAGuardWithoutItsWatchdogGivesUpAtOnce(t *testing.T) {
	inWorld(t, func(t *testing.T, w *guardWorld) {
		a := w.start("a", func(g *guarding) { g.unhealthy = 100 })
		w.until("a")
		time.Sleep(10 * time.Second)
		a.set(func() { a.unwatched = true })
		began := time.Now()
		w.gone("a")
		assert.Less(t, time.Since(began), 2*renew)
		a.set(func() { a.unwatched = false })
		a.end()
	})
}

// A service may be unhealthy on standby, for example if it depends on the active one. Once it is active, it is not given up
// for that.
func TestChecksThatFailedOnStandbyDoNotCountWhenActive(t *testing.T) {
	inWorld(t, func(t *testing.T, w *guardWorld) {
		patient := func(g *guarding) { g.unhealthy, g.confirm = 8, 6 }
		a := w.start("a", patient)
		w.until("a")
		b := w.start("b", patient)
		time.Sleep(10 * time.Second)
		a.Cut()
		time.Sleep(guardLease + renew) // b has it, and waits
		_, before := b.seen()
		b.set(func() { b.sick = true })
		w.until("b")
		whenActive := func() []role { // its first active check may be as early as its activation
			_, all := b.seen()
			if first := slices.Index(all, active); first >= 0 {
				return all[first:]
			}
			return nil
		}
		_, checks := b.seen()
		onStandby := len(checks) - len(whenActive()) - len(before)
		require.GreaterOrEqual(t, onStandby, 3, "so many checks have failed on standby")
		require.Less(t, onStandby, 8)
		for len(whenActive()) < 7 {
			time.Sleep(time.Millisecond)
			require.Equal(t, "b", w.who(), "after %v", whenActive())
		}
		b.set(func() { b.sick = false })
		assert.Equal(t, slices.Repeat([]role{active}, 7), whenActive())
		a.Mend()
		time.Sleep(time.Minute)
		assert.Equal(t, "b", w.who(), "seven of eight have failed")
		b.set(func() { b.sick = true })
		began := time.Now()
		w.until("a")
		assert.Greater(t, time.Since(began), 6*renew)
		a.end()
		b.end()
	})
}

// A service that fails here may work elsewhere: the others have a lease to take over. A lock that was lost says nothing of
// the service, and neither does an earlier failure.
func TestAMachineOnWhichTheServiceFailsLeavesTheLockToOthersForALease(t *testing.T) {
	for name, fails := range map[string]func(a *guardSite){
		"an unhealthy service":              func(a *guardSite) { a.sick = true },
		"a check that hangs":                func(a *guardSite) { a.hang = true },
		"a service that can't be activated": func(a *guardSite) { a.turnOn = time.Hour; a.sick = true },
	} {
		inWorld(t, func(t *testing.T, w *guardWorld) {
			a := w.start("a", func(g *guarding) { g.activation = renew })
			w.until("a")
			a.set(func() { fails(a) })
			w.gone("a")
			a.set(func() { a.sick, a.hang = false, false })
			alone := w.until("a")
			assert.GreaterOrEqual(t, alone, guardLease-10*time.Millisecond, name)
			assert.Less(t, alone, guardLease+renew, name)
			if a.takes(&a.turnOn) > 0 {
				w.gone("a")
				a.set(func() { a.turnOn = 0 })
				assert.GreaterOrEqual(t, w.until("a"), guardLease-10*time.Millisecond, name)
			}
			before, _ := a.seen()
			require.NoError(t, table.Table{Store: w.store}.Release(t.Context(), tokenIn(w.store, "lock"), "lock"))
			time.Sleep(2 * renew)
			after, _ := a.seen()
			assert.Equal(t, before+1, after, "it was deactivated")
			assert.Equal(t, "a", w.who(), "and is active again at once")
			a.end()
		})
	}
}

// Users are shown each state, and that a deactivation fails only as long as it does. The loop answers whatever it waits for.
func TestUsersAreShownEachState(t *testing.T) {
	inWorld(t, func(t *testing.T, w *guardWorld) {
		asks := make(chan struct{})
		s := w.site("a", handsOver, func(g *guarding) { g.asks = asks })
		s.turnOn, s.turnOff = 10*time.Second, renew
		s.begin()
		var shown []string
		shows := func(d time.Duration) {
			for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(renew / 10) {
				select {
				case asks <- struct{}{}:
				case <-time.After(time.Second):
					assert.Fail(t, "no answer", "%q", shown)
				}
				synctest.Wait()
				if now := s.guard.now().Why; len(shown) == 0 || shown[len(shown)-1] != now {
					shown = append(shown, now)
				}
			}
		}
		shows(20 * time.Second)
		assert.Equal(t, []string{deactivating, activating, working}, shown)
		for _, broken := range []int{2, 0} {
			s.set(func() { s.sick, s.broken, s.turnOn = true, broken, renew })
			shown = nil
			shows(2 * renew)
			s.set(func() { s.sick = false })
			shows(6 * guardLease)
			if broken > 0 {
				assert.Equal(t, []string{working, deactivating, stuck, competing, confirming, activating, working}, shown)
			} else {
				assert.Equal(t, []string{working, deactivating, competing, activating, working}, shown, "nothing failed this time")
			}
		}
		s.stop()
		shown = nil
		shows(guardLease / 4)
		assert.Equal(t, []string{working}, shown, "the end is announced first")
		s.end()
	})
}

// Users are shown why a machine on standby does not compete, whether its health check fails or hangs, and only as long as that is so. If
// the reason changes, they are shown the new reason. A check that fails while the machine holds the lock does not put it on standby.
func TestAMachineIsShownNotToCompeteExactlyWhileItDoesNot(t *testing.T) {
	const idle = "on standby: not competing because the health check failed: "
	for _, hang := range []bool{false, true} {
		inWorld(t, func(t *testing.T, w *guardWorld) {
			a := w.start("a")
			w.until("a")
			b := w.start("b", func(g *guarding) { g.unhealthy, g.confirm = 100, 10 })
			shows := func(want string) {
				t.Helper()
				synctest.Wait()
				assert.Regexp(t, "^"+want, b.guard.now().Why, "hang=%v", hang)
			}
			for range 2 {
				time.Sleep(2 * renew)
				shows("on standby: lock is held by a")
				b.set(func() { b.sick, b.hang = !hang, hang })
				time.Sleep(guardLease + 2*renew)
				shows(idle)
				b.set(func() { b.sick, b.hang = hang, !hang })
				time.Sleep(guardLease + 2*renew)
				shows(idle)
				assert.Equal(t, hang, strings.HasSuffix(b.guard.now().Why, ": sick"), b.guard.now().Why)
				b.set(func() { b.sick, b.hang = false, false })
				time.Sleep(guardLease)
			}
			a.Cut()
			time.Sleep(guardLease + renew/4)
			b.set(func() { b.sick, b.hang = !hang, hang })
			time.Sleep(renew)
			shows(confirming)
			w.until("b")
			time.Sleep(2 * guardLease)
			shows(working)
			b.set(func() { b.sick, b.hang = false, false })
			a.Mend()
			a.end()
			b.end()
		})
	}
}

// A machine on standby polls, and may claim the lock, only if a check has just succeeded or began less than half of --renew ago, however
// often it polls and however long a check takes. More checks than that would be a burden.
func TestAMachineOnStandbyClaimsOnlyOnAFreshHealthCheck(t *testing.T) {
	for _, takes := range []time.Duration{0, renew / 5, renew * 2 / 5, renew * 3 / 2} {
		inWorld(t, func(t *testing.T, w *guardWorld) {
			a := w.start("a", handsOver)
			w.until("a")
			b := w.site("b", handsOver)
			b.checkTakes = takes
			polls := 0
			var began []time.Time
			b.Refuse(func(step string) error {
				b.set(func() {
					if step == "observe" {
						polls++
						assert.True(t, time.Since(b.checkBegan) < renew/2 || time.Now().Equal(b.checkEnded), "a check of %v: poll %d", takes, polls)
					}
					if n := len(began); n == 0 || !began[n-1].Equal(b.checkBegan) {
						began = append(began, b.checkBegan)
					}
				})
				return nil
			})
			b.begin()
			time.Sleep(10 * guardLease)
			a.end() // b polls often while the end is announced
			w.until("b")
			assert.Greater(t, polls, 10)
			for i := range began[1:] {
				assert.GreaterOrEqual(t, began[i+1].Sub(began[i]), renew/2)
			}
			b.set(func() { b.checkTakes = 0 })
			b.end()
		})
	}
}

// As long as a deactivation fails, users are shown that the service may be active, whatever else happens.
func TestAServiceThatCanNotBeDeactivatedIsShownAsSuchWhateverHappens(t *testing.T) {
	for name, happens := range map[string]func(w *guardWorld, a *guardSite){
		"nothing":           func(*guardWorld, *guardSite) {},
		"it is stopped":     func(_ *guardWorld, a *guardSite) { a.stop() },
		"it loses the lock": func(_ *guardWorld, a *guardSite) { a.Cut() },
		"the lock is asked": func(w *guardWorld, _ *guardSite) { ask(w.t, w.store, "lock") },
		"it is well again":  func(_ *guardWorld, a *guardSite) { a.set(func() { a.sick = false }) },
		"it is released": func(w *guardWorld, _ *guardSite) {
			require.NoError(w.t, table.Table{Store: w.store}.Release(w.t.Context(), tokenIn(w.store, "lock"), "lock"))
		},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(t *testing.T, w *guardWorld) {
				a := w.start("a", handsOver)
				w.until("a")
				a.set(func() { a.sick, a.broken = true, 100 })
				for a.guard.now().Why != stuck {
					time.Sleep(renew / 100)
				}
				happens(w, a)
				for range 10 {
					time.Sleep(renew / 10)
					synctest.Wait()
					assert.Equal(t, stuck, a.guard.now().Why)
				}
				a.set(func() { a.broken, a.sick = 0, false })
				a.Mend()
				a.end()
				assert.Empty(t, w.who())
			})
		})
	}
}

// Whatever ends the service, its deactivation begins at once, because the lock may have another holder soon, and users are not shown that
// a deactivation has failed before one has.
func TestADeactivationBeginsAtOnceWhateverEndsTheService(t *testing.T) {
	for name, ends := range map[string]func(w *guardWorld, a *guardSite){
		"its activation fails":     func(_ *guardWorld, a *guardSite) { a.set(func() { a.broken = 1 }) },
		"it is stopped":            func(_ *guardWorld, a *guardSite) { a.stop() },
		"it is cut off":            func(_ *guardWorld, a *guardSite) { a.Cut() },
		"it is sick":               func(_ *guardWorld, a *guardSite) { time.Sleep(renew); a.set(func() { a.sick = true }) },
		"it is asked for the lock": func(w *guardWorld, _ *guardSite) { ask(w.t, w.store, "lock") },
		"the lock is released": func(w *guardWorld, _ *guardSite) {
			require.NoError(w.t, table.Table{Store: w.store}.Release(w.t.Context(), tokenIn(w.store, "lock"), "lock"))
		},
	} {
		for _, turnOn := range []time.Duration{renew / 4, time.Hour} {
			t.Run(fmt.Sprint(name, ", ", turnOn), func(t *testing.T) {
				inWorld(t, func(t *testing.T, w *guardWorld) {
					a := w.site("a", handsOver, func(g *guarding) { g.activation = 2 * renew })
					a.turnOff = renew / 2
					a.begin()
					for range 2 {
						a.set(func() { a.turnOn = turnOn })
						w.until("a")
						before, _ := a.seen()
						ends(w, a)
						for began := time.Now(); ; time.Sleep(renew / 100) {
							require.Less(t, time.Since(began), 3*guardLease)
							synctest.Wait()
							if now, _ := a.seen(); now > before {
								break
							}
							switch why := a.guard.now().Why; why {
							case activating, working:
							case deactivating:
								a.set(func() { assert.Equal(t, "a deactivation", a.command) })
							default:
								assert.Contains(t, why, "the lock is lost", "until its deactivation ends")
							}
						}
						a.Mend()
						a.set(func() { a.sick, a.broken = false, 0 })
						if a.ctx.Err() != nil {
							break
						}
					}
					a.end()
				})
			})
		}
	}
}

// What is reported of an earlier command changes nothing.
func TestWhatIsReportedTooLateChangesNothing(t *testing.T) {
	for _, what := range []happening{activated, unfit, exited, notExited} {
		s := (&guarding{reports: reportsOn(nil, "lock", "a", guardLease)}).newServices(nil)
		s.number = 2
		assert.Zero(t, s.hears(event{what: what, command: 1}))
		assert.False(t, s.retry)
		assert.Equal(t, what, s.hears(event{what: what, command: 2}).what)
	}
}

// If b gives up while it waits for a, or while it claims the lock, c must not take that for a release.
func TestAnUnsettledLockIsNotReleased(t *testing.T) {
	for _, during := range []string{"claim", "confirm", ""} {
		for _, early := range []bool{true, false} { // before the step takes effect
			inWorld(t, func(t *testing.T, w *guardWorld) {
				a, b := w.pair()
				a.set(func() { a.turnOff = 2*renew - 2*renew/20 - time.Millisecond })
				gaveUp := make(chan struct{})
				gives := sync.OnceFunc(func() {
					b.stop()
					for range 100 { // b hears of it before the step is over
						runtime.Gosched()
					}
					close(gaveUp)
				})
				at := func(step string) bool { return step == during }
				if early {
					b.Refuse(func(step string) error {
						if at(step) {
							gives()
						}
						return nil
					})
				} else {
					b.After(func(step string) {
						if at(step) {
							gives()
						}
					})
				}
				a.Cut()
				if during == "" {
					time.Sleep(guardLease + renew/4) // b has it, and waits
					gives()
				}
				<-gaveUp
				b.end()
				c := w.start("c")
				took := w.until("c")
				if during == "" {
					assert.Greater(t, took, guardLease)
				}
				assert.Greater(t, took, 2*renew-renew/20, during)
				assert.Less(t, took, guardLease+2*renew+200*time.Millisecond, during)
				a.Mend()
				a.end()
				c.end()
			})
		}
	}
}

// A machine that never held the lock withdraws a claim that it can't confirm. That says nothing about the service on the
// machine that lost the lock.
func TestAClaimThatIsWithdrawnIsNotTakenForARelease(t *testing.T) {
	inWorld(t, func(t *testing.T, w *guardWorld) {
		a := w.start("a")
		w.until("a")
		a.set(func() { a.turnOff = 2*renew - 2*renew/20 - time.Millisecond }) // all that it may take
		b, c := w.start("b"), w.start("c")
		b.Refuse(func(step string) error {
			if step == "confirm" {
				return status.Error(codes.PermissionDenied, "denied")
			}
			return nil
		})
		withdrawn := func() bool { return w.store.Rows()["lock"].Heartbeat.IsZero() }
		c.Lose(func(step string) bool { return step == "claim" && !withdrawn() }, nil)
		a.Cut()
		w.until("c")
		for _, s := range []*guardSite{a, b, c} {
			s.Mend()
			s.end()
		}
	})
}
