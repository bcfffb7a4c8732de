package run

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
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
	t        *testing.T
	store    memstore.Store
	mu       sync.Mutex
	active   string
	since    time.Time
	turns    int
	overlaps int
}

func (w *guardWorld) on(name string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.active != "" && w.active != name {
		w.overlaps++
		w.t.Errorf("%s and %s are active at once", w.active, name)
	}
	if w.active != name {
		w.turns++
	}
	w.active, w.since = name, time.Now()
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
	story         // what it has heard
	name          string

	faults      sync.Mutex
	sick        bool          // checks fail
	hang        bool          // checks don't return
	broken      int           // so many deactivations fail
	turnOn      time.Duration // how long an activation takes
	turnOff     time.Duration
	checks      []Role
	term        *elect.Term // of the last activation
	allowed     time.Time   // when a watchdog would deactivate
	deactivated int
	stop        context.CancelFunc
	done        chan struct{}
}

func (w *guardWorld) start(name string, change ...func(*Guard)) *guardSite {
	s := &guardSite{guardWorld: w, Link: memstore.Link{Store: &w.store}, name: name, done: make(chan struct{})}
	say := func(f string, args ...any) {
		w.t.Logf("%v %s: %s", time.Now().Format("15:04:05.000"), name, fmt.Sprintf(f, args...))
	}
	g := &Guard{
		command: command{Candidate: &elect.Candidate{Table: table.Table{Store: &s.Link}, Clock: elect.SystemClock{}, Names: []string{"lock"}, ID: name,
			LeaseRecord: table.LeaseRecord{Lease: guardLease}}, Say: say, Warn: say},
		Service: s, Renew: renew, Confirmation: 2 * renew, Unhealthy: 1, Activation: time.Minute,
	}
	for _, f := range change {
		f(g)
	}
	var ctx context.Context
	ctx, s.stop = context.WithCancel(context.Background())
	go func() { defer close(s.done); g.Run(ctx) }()
	w.t.Cleanup(func() { // what a test has left that failed
		s.Mend()
		s.set(func() { s.sick, s.hang, s.broken, s.turnOn, s.turnOff = false, false, 0, 0, 0 })
		s.end()
	})
	return s
}

func (s *guardSite) set(f func()) { s.faults.Lock(); defer s.faults.Unlock(); f() }

func (s *guardSite) takes(d *time.Duration) time.Duration {
	s.faults.Lock()
	defer s.faults.Unlock()
	return *d
}

// seen is how often the service was deactivated, and all checks.
func (s *guardSite) seen() (int, []Role) {
	s.faults.Lock()
	defer s.faults.Unlock()
	return s.deactivated, slices.Clone(s.checks)
}

func (w *guardWorld) count() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.turns
}

// end ends the guard.
func (s *guardSite) end() {
	s.stop()
	select {
	case <-s.done:
	case <-time.After(time.Hour):
		s.t.Errorf("the guard of %s does not end", s.name)
		s.Cut() // it ends once it has lost its lock
		<-s.done
	}
}

func (s *guardSite) Activate(ctx context.Context, t *elect.Term) error {
	s.set(func() { s.term, s.allowed = t, time.Now().Add(t.Left()) })
	s.on(s.name)
	elect.Sleep(ctx, elect.SystemClock{}, s.takes(&s.turnOn))
	return ctx.Err()
}

func (s *guardSite) Extended() {
	s.set(func() {
		if s.term != nil {
			s.allowed = time.Now().Add(s.term.Left())
		}
	})
}

func (s *guardSite) Deactivate(ctx context.Context) error {
	elect.Sleep(ctx, elect.SystemClock{}, s.takes(&s.turnOff))
	s.faults.Lock()
	defer s.faults.Unlock()
	s.deactivated++
	if s.broken > 0 {
		s.broken--
		return errors.New("it does not want to")
	}
	if ctx.Err() == nil {
		s.off(s.name)
	}
	return ctx.Err()
}

func (s *guardSite) Check(ctx context.Context, role Role) error {
	s.faults.Lock()
	hang, sick := s.hang, s.sick
	s.checks = append(s.checks, role)
	s.faults.Unlock()
	if hang {
		<-ctx.Done()
		return ctx.Err()
	}
	if sick {
		return errors.New("sick")
	}
	return nil
}

func inWorld(t *testing.T, f func(t *testing.T, w *guardWorld)) {
	synctest.Test(t, func(t *testing.T) { f(t, &guardWorld{t: t}) })
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

func TestADeactivationComesFirst(t *testing.T) {
	inWorld(t, func(t *testing.T, w *guardWorld) {
		a := w.start("a")
		w.until("a")
		times, checks := a.seen()
		assert.Equal(t, 1, times)
		assert.Equal(t, Standby, checks[0])
		a.end()
		times, _ = a.seen()
		assert.Equal(t, 2, times)
		assert.Empty(t, w.who())
	})
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
	handingOver := func(g *Guard) { g.Handover, g.Candidate.LeaseRecord.AcceptsHandover = true, true }
	inWorld(t, func(t *testing.T, w *guardWorld) {
		a := w.start("a", handingOver)
		w.until("a")
		b := w.start("b", handingOver)
		time.Sleep(10 * time.Second)
		began := time.Now()
		a.stop()
		time.Sleep(guardLease/3 - time.Millisecond)
		assert.Equal(t, "a", w.who())
		assert.LessOrEqual(t, w.idle("a", "b"), guardLease/50+5*time.Millisecond)
		assert.Less(t, time.Since(began), guardLease/3+guardLease/50+50*time.Millisecond)
		<-a.done

		c := w.start("c", handingOver) // a request hands over too, and the machine is on standby then
		time.Sleep(10 * time.Second)
		token := table.TokenAt(w.store.Rows()["lock"].Token)
		require.NoError(t, table.Table{Store: &w.store}.Ask(t.Context(), table.ByOperator, "lock", token))
		assert.LessOrEqual(t, w.idle("b", "c"), guardLease/50+5*time.Millisecond)
		time.Sleep(10 * guardLease)
		assert.Equal(t, "c", w.who())
		c.end()
		assert.Less(t, w.until("b"), guardLease)
		b.end()
	})
}

// There is no way back from an announcement: a machine that may not activate yet makes none.
func TestAMachineThatIsAskedWhileItWaitsHandsOverOnceItIsActive(t *testing.T) {
	handingOver := func(g *Guard) {
		g.Handover, g.Candidate.LeaseRecord.AcceptsHandover, g.Confirmation = true, true, 10*renew
	}
	inWorld(t, func(t *testing.T, w *guardWorld) {
		a := w.start("a", handingOver)
		w.until("a")
		b := w.start("b", handingOver)
		time.Sleep(10 * time.Second)
		a.Cut()
		time.Sleep(guardLease + renew/4) // b has it, and waits
		token := table.TokenAt(w.store.Rows()["lock"].Token)
		require.NoError(t, table.Table{Store: &w.store}.Ask(t.Context(), table.ByOperator, "lock", token))
		a.Mend()
		w.until("b")
		time.Sleep(2 * guardLease)
		assert.Equal(t, "a", w.who())
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
			assert.Equal(t, Standby, checks[len(checks)-1])
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
		a := w.start("a", func(g *Guard) { g.Unhealthy = 3 })
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

// A service may be unhealthy on standby, for example if it depends on the active one. Once it is active, it is not given up
// for that.
func TestChecksThatFailedOnStandbyDoNotCountWhenActive(t *testing.T) {
	inWorld(t, func(t *testing.T, w *guardWorld) {
		patient := func(g *Guard) { g.Unhealthy, g.Confirmation = 8, 6*renew }
		a := w.start("a", patient)
		w.until("a")
		b := w.start("b", patient)
		time.Sleep(10 * time.Second)
		a.Cut()
		time.Sleep(guardLease + renew) // b has it, and waits
		_, before := b.seen()
		b.set(func() { b.sick = true })
		w.until("b")
		_, standby := b.seen()
		require.GreaterOrEqual(t, len(standby)-len(before), 3, "so many checks have failed on standby")
		require.Less(t, len(standby)-len(before), 8)
		active := func() []Role { _, all := b.seen(); return all[len(standby):] }
		for len(active()) < 7 {
			time.Sleep(time.Millisecond)
			require.Equal(t, "b", w.who(), "after %v", active())
		}
		b.set(func() { b.sick = false })
		assert.Equal(t, slices.Repeat([]Role{Active}, 7), active())
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

// A service that fails here may work elsewhere: the others have a lease to take over.
func TestAMachineOnWhichTheServiceFailsLeavesTheLockToOthersForALease(t *testing.T) {
	for name, fails := range map[string]func(a *guardSite){
		"an unhealthy service": func(a *guardSite) { a.sick = true },
		"a check that hangs":   func(a *guardSite) { a.hang = true },
	} {
		inWorld(t, func(t *testing.T, w *guardWorld) {
			a := w.start("a")
			w.until("a")
			a.set(func() { fails(a) })
			w.gone("a")
			a.set(func() { a.sick, a.hang = false, false })
			alone := w.until("a")
			assert.GreaterOrEqual(t, alone, guardLease-10*time.Millisecond, name)
			assert.Less(t, alone, guardLease+renew, name)
			a.end()
		})
	}
	inWorld(t, func(t *testing.T, w *guardWorld) { // a service that can't be activated
		a := w.start("a", func(g *Guard) { g.Activation, g.Service.(*guardSite).turnOn = renew, time.Hour })
		w.until("a")
		w.gone("a")
		alone := w.until("a")
		assert.GreaterOrEqual(t, alone, guardLease-10*time.Millisecond)
		assert.Less(t, alone, guardLease+renew)
		a.end()
	})
	inWorld(t, func(t *testing.T, w *guardWorld) { // a lock that was lost says nothing of the service, and neither does an earlier failure
		a := w.start("a")
		w.until("a")
		a.set(func() { a.sick = true })
		w.gone("a")
		a.set(func() { a.sick = false })
		w.until("a")
		before, _ := a.seen()
		require.NoError(t, table.Table{Store: &w.store}.Release(t.Context(), table.TokenAt(w.store.Rows()["lock"].Token), "lock"))
		time.Sleep(2 * renew)
		after, _ := a.seen()
		assert.Equal(t, before+1, after, "it was deactivated")
		assert.Equal(t, "a", w.who(), "and is active again at once")
		a.end()
	})
}

// A watchdog's deadline must neither let it deactivate a service whose lock is held, nor leave the service active once the
// lock is lost.
func TestAServiceIsAllowedWhatIsLeftOfItsTerm(t *testing.T) {
	inWorld(t, func(t *testing.T, w *guardWorld) {
		a, b := w.pair()
		allowed := func() (left time.Duration) {
			a.set(func() { left = time.Until(a.allowed) })
			return left
		}
		for range 1000 {
			time.Sleep(10 * time.Millisecond)
			require.Greater(t, allowed(), guardLease-2*renew)
		}
		assert.LessOrEqual(t, allowed(), guardLease)
		a.Cut()
		w.until("b")
		assert.Greater(t, allowed(), -2*renew-200*time.Millisecond)
		assert.Less(t, allowed(), -2*renew, "another waits for the confirmation after the end of what was allowed")
		a.Mend()
		a.end()
		b.end()
	})
}

// If b gives up while it waits for a, c must not take that for a release.
func TestAnUnsettledLockIsNotReleased(t *testing.T) {
	inWorld(t, func(t *testing.T, w *guardWorld) {
		a, b := w.pair()
		a.set(func() { a.turnOff = 2*renew - 2*renew/20 - time.Millisecond })
		a.Cut()
		time.Sleep(guardLease + renew/4) // b has it, and waits
		b.end()
		c := w.start("c")
		took := w.until("c")
		assert.Greater(t, took, guardLease)
		assert.Less(t, took, guardLease+2*renew+200*time.Millisecond)
		a.Mend()
		a.end()
		c.end()
	})
}

func TestAHundredFailoversWithRandomFaultsNeverOverlap(t *testing.T) {
	for seed := range uint64(20) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			inWorld(t, func(t *testing.T, w *guardWorld) {
				r := rand.New(rand.NewPCG(seed, 0))
				var sites []*guardSite
				for i := range 3 {
					s := w.start(fmt.Sprint(i))
					sites = append(sites, s)
				}
				for w.count() < 100 {
					s := sites[r.IntN(len(sites))]
					s.Mend()
					if r.IntN(3) == 0 {
						s.Cut()
					}
					s.set(func() {
						s.sick, s.hang, s.broken = r.IntN(4) == 0, r.IntN(6) == 0, 0
						s.turnOff = time.Duration(r.Int64N(int64(2*renew - 2*renew/20)))
						s.turnOn = time.Duration(r.Int64N(int64(4 * renew)))
					})
					if r.IntN(10) == 0 {
						i := r.IntN(len(sites))
						sites[i].end()
						sites[i] = w.start(fmt.Sprint(i))
					}
					time.Sleep(time.Duration(r.Int64N(int64(3 * guardLease))))
				}
				for _, s := range sites {
					s.Mend()
					s.set(func() { s.turnOff = 0 })
					s.end()
				}
				assert.Empty(t, w.who())
				assert.Zero(t, w.overlaps)
			})
		})
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
		assert.Zero(t, w.overlaps)
		for _, s := range []*guardSite{a, b, c} {
			s.Mend()
			s.end()
		}
	})
}
