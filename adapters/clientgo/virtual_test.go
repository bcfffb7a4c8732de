package clientgo

import (
	"context"
	"log/slog"
	"maps"
	"math"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"

	"github.com/spindle-lock/spindle"
	"github.com/spindle-lock/spindle/internal/options"
	"github.com/spindle-lock/spindle/internal/table"
	"github.com/spindle-lock/spindle/internal/testkit/fleet"
	"github.com/spindle-lock/spindle/internal/testkit/memstore"
)

// This file runs client-go's electors in virtual time, on a table in memory: what the tests say of time is exact.

const lease = 10 * time.Second

// world is the table, and who leads.
type world struct {
	t     *testing.T
	store *memstore.Store

	machines []*machine

	mu    sync.Mutex
	leads map[*machine]bool
	terms []tenureOf
}

type tenureOf struct {
	by    *machine
	token spindle.Token
	from  time.Time
	to    time.Time // zero: it lasts
}

func inVirtualTime(t *testing.T, f func(*world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := &world{t: t, store: &memstore.Store{}, leads: map[*machine]bool{}}
		defer func() { // virtual time ends with no goroutine left
			for _, m := range w.machines {
				m.stop()
			}
		}()
		f(w)
	})
}

// begin and end are for what client-go calls leading: from OnStartedLeading to the end of its ctx.
func (w *world) begin(m *machine) (end func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for other := range w.leads {
		w.t.Errorf("%s leads, and so does %s", m.lock.Identity(), other.lock.Identity())
	}
	w.leads[m] = true
	n := len(w.terms)
	w.terms = append(w.terms, tenureOf{by: m, token: m.lock.Token(), from: time.Now()})
	return func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		delete(w.leads, m)
		w.terms[n].to = time.Now()
	}
}

func (w *world) all() []tenureOf {
	synctest.Wait()
	w.mu.Lock()
	defer w.mu.Unlock()
	return append([]tenureOf(nil), w.terms...)
}

// until lets time pass until cond holds, and says how much did.
func (w *world) until(limit time.Duration, cond func() bool) time.Duration {
	w.t.Helper()
	start := time.Now()
	for synctest.Wait(); !cond(); synctest.Wait() {
		require.Less(w.t, time.Since(start), limit, "waited in vain")
		time.Sleep(time.Millisecond)
	}
	return time.Since(start)
}

// machine is a process with a Lock, and an elector that is started again and again.
type machine struct {
	w      *world
	lock   *Lock
	link   *memstore.Link
	clock  *fleet.Clock
	config leaderelection.LeaderElectionConfig

	mu      sync.Mutex
	heard   []string // by OnNewLeader
	stopped int      // calls of OnStoppedLeading
	cancel  context.CancelFunc
	ended   chan struct{}
}

func (w *world) machine(id string, opts ...spindle.Option) *machine {
	w.t.Helper()
	m := &machine{w: w, link: &memstore.Link{Store: w.store}, clock: &fleet.Clock{}}
	seam := options.Option(func(c *options.Config) { c.Store, c.Clock = m.link, m.clock })
	lock, err := New(nil, "locktable", "mylock", append([]spindle.Option{seam, spindle.WithID(id),
		spindle.WithLogger(slog.New(slog.DiscardHandler))}, opts...)...)
	require.NoError(w.t, err)
	m.lock = lock
	w.machines = append(w.machines, m)
	m.config = lock.Config(leaderelection.LeaderCallbacks{OnStartedLeading: m.work, OnStoppedLeading: m.over, OnNewLeader: m.hear})
	return m
}

// unguarded leaves it to client-go's own clock when the work ends.
func (m *machine) unguarded() *machine {
	m.config.Callbacks.OnStartedLeading = m.work
	return m
}

func (m *machine) work(ctx context.Context) {
	defer m.w.begin(m)()
	<-ctx.Done()
}

func (m *machine) over() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.stopped++
}

func (m *machine) hear(id string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.heard = append(m.heard, id)
}

func (m *machine) told() []string {
	synctest.Wait()
	m.mu.Lock()
	defer m.mu.Unlock()
	return append([]string(nil), m.heard...)
}

// run runs an elector once.
func (m *machine) run() *machine {
	m.w.t.Helper()
	elector, err := leaderelection.NewLeaderElector(m.config)
	require.NoError(m.w.t, err)
	ctx, cancel := context.WithCancel(context.Background())
	m.cancel, m.ended = cancel, make(chan struct{})
	go func() {
		defer close(m.ended)
		elector.Run(ctx)
	}()
	synctest.Wait()
	return m
}

// stop ends the elector and what is left of its Lock, so that virtual time can end.
func (m *machine) stop() {
	m.w.t.Helper()
	m.link.Mend()
	if m.ended != nil {
		m.cancel()
		<-m.ended
	}
	m.lock.RecordEvent("stopped leading")
	assert.NoError(m.w.t, m.lock.Stop(context.Background()))
}

// get gets the lock's record, as an elector does to acquire the lock, and returns once the machine holds the spindle lock.
func (m *machine) get() {
	m.w.t.Helper()
	_, _, err := m.lock.Get(context.Background())
	require.NoError(m.w.t, err)
}

// lead acquires the lock as an elector does, but runs none.
func (m *machine) lead() {
	m.w.t.Helper()
	m.get()
	require.NoError(m.w.t, m.lock.Update(context.Background(), m.written()))
}

func (m *machine) isLeading() bool {
	m.w.mu.Lock()
	defer m.w.mu.Unlock()
	return m.w.leads[m]
}

func (m *machine) holds() bool {
	has, _ := m.lock.Spindle().HasLock()
	return has
}

func (m *machine) hasEnded() bool { return closed(m.ended) }

// A process that is cut off costs spindle's failover, to the millisecond: RetryPeriod does not add to it.
func TestAFollowerLeadsTheInstantItsLockDoes(t *testing.T) {
	inVirtualTime(t, func(w *world) {
		a, b := w.machine("a").run(), w.machine("b").run()
		w.until(time.Second, a.isLeading)
		time.Sleep(time.Minute)
		a.link.Cut()
		w.until(2*lease, b.holds)
		assert.Less(t, w.until(time.Second, b.isLeading), 2*time.Millisecond)
		assert.Equal(t, b.lock.Token(), w.all()[1].token)
	})
}

// Refused from now on, client-go stops by itself before the local deadline, however its beat falls to the heartbeats'.
func TestClientGoAloneStopsBeforeTheLeaseEnds(t *testing.T) {
	for wait := range 20 {
		inVirtualTime(t, func(w *world) {
			a := w.machine("a").unguarded().run()
			w.until(time.Second, a.isLeading)
			time.Sleep(time.Minute + time.Duration(wait)*lease/100)
			a.link.Cut()
			w.until(2*lease, func() bool { return !a.isLeading() })
			assert.True(t, a.holds(), "client-go has stopped, and the lock is still held")
		})
	}
}

// While heartbeats are acknowledged, each Update succeeds, whatever the lease: nobody is refused or stops.
func TestALeaderThatIsHeardFromIsNeverRefused(t *testing.T) {
	for _, l := range []time.Duration{time.Second, 2500 * time.Millisecond, lease, time.Minute} {
		inVirtualTime(t, func(w *world) {
			a := w.machine("a", spindle.WithLease(l)).run()
			w.until(time.Second, a.isLeading)
			for range 2000 {
				time.Sleep(l / 99)
				a.lock.seat.mu.Lock()
				err := a.lock.seat.offer(a.lock.seat.tenure)
				a.lock.seat.mu.Unlock()
				require.NoError(t, err)
			}
			assert.Len(t, w.all(), 1)
			assert.True(t, a.isLeading())
		})
	}
}

// An elector whose ctx is cancelled gives the lock back before Run returns, and the next leads at its next look.
func TestACancelledElectorHandsOverAtOnce(t *testing.T) {
	inVirtualTime(t, func(w *world) {
		a, b := w.machine("a").run(), w.machine("b").run()
		w.until(time.Second, a.isLeading)
		time.Sleep(time.Minute)
		a.cancel()
		assert.Less(t, w.until(lease, a.hasEnded), 2*time.Millisecond)
		assert.False(t, a.holds())
		assert.Less(t, w.until(lease, b.isLeading), lease/3)
	})
}

// client-go calls the lock free while its work may still be stopping. Here the lock is not free before the work has
// returned.
func TestTheLockIsKeptUntilTheWorkHasReturned(t *testing.T) {
	inVirtualTime(t, func(w *world) {
		a, b := w.machine("a"), w.machine("b")
		a.config = a.lock.Config(leaderelection.LeaderCallbacks{OnStoppedLeading: a.over, OnStartedLeading: func(ctx context.Context) {
			defer a.w.begin(a)()
			<-ctx.Done()
			time.Sleep(lease / 2)
		}})
		a.run()
		b.run()
		w.until(time.Second, a.isLeading)
		time.Sleep(time.Minute)
		a.cancel()
		time.Sleep(lease/2 - time.Millisecond)
		assert.True(t, a.holds() && a.isLeading() && !b.isLeading())
		w.until(lease, b.isLeading)
	})
}

// Work that does not return keeps the lock for what was promised, and a lease.
func TestWorkThatHangsKeepsNobodyOutForEver(t *testing.T) {
	inVirtualTime(t, func(w *world) {
		a, b := w.machine("a"), w.machine("b")
		hang, leads := make(chan struct{}), make(chan struct{})
		a.config = a.lock.Config(leaderelection.LeaderCallbacks{OnStoppedLeading: a.over, OnStartedLeading: func(context.Context) {
			close(leads)
			<-hang
		}})
		a.run()
		b.run()
		<-leads
		a.cancel()
		gone := w.until(3*lease, b.isLeading)
		assert.Greater(t, gone, lease)
		assert.Less(t, gone, 2*lease)
		close(hang)
	})
}

// Without ReleaseOnCancel nothing says that the work's ctx has ended, so the lock is kept for the promised time.
func TestWithoutReleaseOnCancelTheLockIsKeptAsPromised(t *testing.T) {
	inVirtualTime(t, func(w *world) {
		a := w.machine("a")
		a.config.ReleaseOnCancel = false
		a.run()
		w.until(time.Second, a.isLeading)
		time.Sleep(time.Minute)
		a.cancel()
		w.until(time.Second, a.hasEnded)
		kept := w.until(lease, func() bool { return !a.holds() })
		promised := a.lock.seat.limits.promise(a.config)
		assert.LessOrEqual(t, kept, promised)
		assert.GreaterOrEqual(t, kept, promised-a.config.RetryPeriod-time.Millisecond)
	})
}

// Asked to hand over, spindle waits for client-go, which does not stop at once: the work continues until it does.
func TestAHandoverWaitsForClientGo(t *testing.T) {
	inVirtualTime(t, func(w *world) {
		a := w.machine("a", spindle.WithHandover()).unguarded().run()
		w.until(time.Second, a.isLeading)
		b := w.machine("b").unguarded().run()
		time.Sleep(time.Minute)
		_, err := b.lock.Spindle().RequestHandover(w.t.Context(), a.lock.Token())
		require.NoError(t, err)
		w.until(time.Second, b.isLeading)
		terms := w.all()
		require.Len(t, terms, 2)
		assert.Less(t, terms[1].from.Sub(terms[0].to), lease/5, "without a leader")
		assert.True(t, terms[1].from.After(terms[0].to))
		w.until(time.Second, a.hasEnded)
		a.run() // and it competes on
		b.cancel()
		w.until(lease, a.isLeading)
	})
}

// An elector that leads is renewed until spindle is about to give up the lock. An announced handover does not end its work yet, because
// no other process can lead before the release. An elector that does not lead yet does not begin to lead under such a term.
func TestATermIsRenewedWhileItsHandoverIsOnlyAnnounced(t *testing.T) {
	for _, leads := range []bool{false, true} {
		inVirtualTime(t, func(w *world) {
			a := w.machine("a", spindle.WithHandover())
			a.get()
			if leads {
				require.NoError(t, a.lock.Update(context.Background(), a.written()))
			}
			given := a.lock.seat.term
			go func() { _ = a.lock.Spindle().StepDown(context.Background()) }()
			announced := 0
			for synctest.Wait(); given.lost.Err() == nil; synctest.Wait() {
				leader, _, _ := a.lock.Spindle().Seen()
				if leader.Leaving {
					announced++
				}
				a.lock.seat.mu.Lock()
				err := a.lock.seat.offer(given)
				a.lock.seat.mu.Unlock()
				require.Equal(t, leader.Leaving && !leads, err != nil, "leads: %v, leaving: %v: %v", leads, leader.Leaving, err)
				time.Sleep(lease / 1000)
			}
			assert.Greater(t, announced, 300)
			assert.Error(t, a.lock.Update(context.Background(), a.written()))
		})
	}
}

// client-go gives up, and says that the lock is to be released, before its work's ctx ends. Lock does not believe that.
func TestAnElectorThatGivesUpDoesNotReleaseTheLock(t *testing.T) {
	for _, by := range []time.Duration{0, 8 * time.Second} {
		inVirtualTime(t, func(w *world) {
			a := w.machine("a").unguarded()
			elector := &late{Lock: a.lock}
			a.config.Lock = elector
			a.run()
			w.until(time.Second, a.isLeading)
			time.Sleep(time.Minute)
			elector.by.Store(int64(by))
			time.Sleep(a.config.RetryPeriod) // it was renewed, and is late from now on
			down := make(chan error, 1)
			go func() { down <- a.lock.Spindle().StepDown(context.Background()) }()
			w.until(2*lease, func() bool { return !a.isLeading() })
			assert.True(t, a.holds(), by)
			<-down // with an error if that took it a lease
			assert.False(t, a.holds())
		})
	}
}

// late is a Lock to an elector that does not run for some time after it was answered.
type late struct {
	*Lock
	by atomic.Int64 // nanoseconds, once
}

func (l *late) Update(ctx context.Context, r resourcelock.LeaderElectionRecord) error {
	err := l.Lock.Update(ctx, r)
	time.Sleep(time.Duration(l.by.Swap(0)))
	return err
}

// A process that stood still for longer than the promised time, but not until the lease was over, still leads, for a
// RenewDeadline at least. It holds the lock, so no other process does.
func TestALateElectorKeepsTheLock(t *testing.T) {
	for _, stood := range []time.Duration{6 * time.Second, 8 * time.Second, 9500 * time.Millisecond} {
		inVirtualTime(t, func(w *world) {
			a := w.machine("a").unguarded()
			elector := &late{Lock: a.lock}
			a.config.Lock = elector
			a.run()
			b := w.machine("b").run()
			w.until(time.Second, a.isLeading)
			time.Sleep(time.Minute)
			a.link.Counts()
			w.until(lease, func() bool { return a.link.Counts()["heartbeat"] > 0 })
			elector.by.Store(int64(stood - a.config.RetryPeriod))
			a.link.Cut()
			time.Sleep(stood)
			a.link.Mend()
			time.Sleep(2 * lease)
			assert.True(t, a.isLeading() && a.holds() && !b.isLeading(), stood)
		})
	}
}

// A process that comes back too late to be renewed finds that its ctx ended when the lock was released, and not before.
func TestAnElectorThatHangsIsToldWhenTheLockIsGivenBack(t *testing.T) {
	inVirtualTime(t, func(w *world) {
		a, b := w.machine("a"), w.machine("b")
		elector := &late{Lock: a.lock}
		elector.by.Store(int64(3 * lease))
		a.config.Lock = elector
		a.run()
		b.run()
		ctx, cancel := a.lock.Context(context.Background())
		defer cancel()
		w.until(2*lease, func() bool { return !a.holds() })
		assert.ErrorIs(t, context.Cause(ctx), spindle.ErrExpired)
		w.until(lease, b.isLeading)
	})
}

// losses are the ways in which a term of the spindle lock ends although its elector has not stopped.
var losses = map[string]func(*machine){
	"it is cut off":   func(m *machine) { m.link.Cut() },
	"it is suspended": func(m *machine) { m.clock.Wall.Add(int64(lease)) },
	"an operator takes the lock away": func(m *machine) {
		assert.NoError(m.w.t, m.w.store.Commit(m.w.t.Context(), "operator", withdrawn(m.lock.seat.term.token)))
	},
	"it is asked to step down": func(m *machine) { go func() { _ = m.lock.Spindle().StepDown(context.Background()) }() },
}

// If client-go leads, each kind of loss ends the ctx of Context. A candidate that loses a term before client-go leads under
// it remains a candidate: otherwise, a manager would exit although it has not led.
func TestOnlyALossWhileClientGoLeadsEndsAContext(t *testing.T) {
	for name, lose := range losses {
		for _, leads := range []bool{false, true} {
			inVirtualTime(t, func(w *world) {
				a := w.machine("a")
				ctx, cancel := a.lock.Context(context.Background())
				defer cancel()
				_, _, err := a.lock.Get(ctx)
				require.NoError(t, err)
				if leads {
					require.NoError(t, a.lock.Update(ctx, a.written()))
				}
				lose(a)
				time.Sleep(3 * lease)
				err = a.lock.Update(context.Background(), a.written())
				assert.Equal(t, leads, err != nil && ctx.Err() != nil, "%s, leads: %v: %v", name, leads, err)
				if leads {
					assert.NotErrorIs(t, context.Cause(ctx), context.Canceled, name)
				}
			})
		}
	}
}

// A term that no elector has acquired is over as soon as spindle gives it up or loses it. If it were kept, no other
// process could lead, and this one could not compete.
func TestATermThatNobodyLeadsUnderIsNotKept(t *testing.T) {
	ends := maps.Clone(losses)
	ends["it is stopped"] = func(m *machine) { go func() { _ = m.lock.Stop(context.Background()) }() }
	for name, end := range ends {
		inVirtualTime(t, func(w *world) {
			a := w.machine("a")
			a.get()
			given := a.lock.seat.term
			end(a)
			w.until(lease, func() bool { return given.lost.Err() != nil })
			assert.NotSame(t, given, a.lock.seat.term, name)
		})
	}
}

// Token and Get say that this process leads for exactly as long as spindle says that it holds the lock. Otherwise, a late
// elector would write under a token that another process's term has replaced.
func TestClientGoLeadsForNoLongerThanItsLockIsHeld(t *testing.T) {
	for name, lose := range losses {
		inVirtualTime(t, func(w *world) {
			a := w.machine("a")
			a.lead()
			lose(a)
			for range 2000 {
				synctest.Wait()
				r, _, err := a.lock.Get(context.Background())
				require.NoError(t, err)
				require.Equal(t, []bool{a.holds(), a.holds()}, []bool{a.lock.Token() != 0, r.HolderIdentity == "a"}, name)
				time.Sleep(lease / 1000)
			}
			assert.False(t, a.holds(), name)
		})
	}
}

// The lock is kept for as long as the last Update lets the elector lead, and for lease/20 after the elector has said that
// it stops, because the elector cancels its work only then. If the elector says nothing, the lock is kept a lease longer.
func TestTheLockOutlastsAnElectorHoweverLateItStops(t *testing.T) {
	for _, late := range []time.Duration{-5900, -1000, -500, -499, -1, 0, 1, 5000, 9999} { // ms after the promised time
		inVirtualTime(t, func(w *world) {
			a := w.machine("a")
			a.lead()
			time.Sleep(5900*time.Millisecond + late*time.Millisecond)
			assert.True(t, a.holds(), "until the elector stops")
			a.lock.RecordEvent("stopped leading")
			assert.Equal(t, max(-late, 500)*time.Millisecond, w.until(lease, func() bool { return !a.holds() }), late)
		})
	}
}

// A term that was lost is not renewed under another: not from client-go's cache, and not if this process is the next
// to hold the lock.
func TestALostTermIsNotRenewedUnderTheNext(t *testing.T) {
	inVirtualTime(t, func(w *world) {
		a := w.machine("a").unguarded().run()
		w.until(time.Second, a.isLeading)
		time.Sleep(time.Minute)
		first := a.lock.Token()
		require.NoError(t, w.store.Commit(w.t.Context(), "operator", withdrawn(first)))
		w.until(lease, func() bool { return !a.holds() })
		w.until(2*lease, a.hasEnded)
		require.Len(t, w.all(), 1, "one term for client-go, and it ended")
		a.run()
		w.until(2*lease, a.isLeading)
		assert.Greater(t, w.all()[1].token, first)
	})
}

// An elector that has stopped and acquires again does not wait for what its last Update promised, and gets a new token. The
// record counts each of its terms as a transition.
func TestAnElectorThatAcquiresAgainDoesNotWaitForItself(t *testing.T) {
	inVirtualTime(t, func(w *world) {
		a := w.machine("a")
		var last spindle.Token
		for n := range 3 {
			start := time.Now()
			r, _, err := a.lock.Get(context.Background())
			require.NoError(t, err)
			assert.Equal(t, n+1, r.LeaderTransitions)
			assert.Less(t, time.Since(start), a.config.RetryPeriod)
			require.NoError(t, a.lock.Update(context.Background(), a.written()))
			require.Greater(t, a.lock.Token(), last)
			last = a.lock.Token()
			a.lock.RecordEvent("stopped leading")
		}
	})
}

// An elector that releases the lock has not lost it.
func TestAReleaseEndsNoContext(t *testing.T) {
	inVirtualTime(t, func(w *world) {
		a := w.machine("a")
		ctx, cancel := a.lock.Context(context.Background())
		defer cancel()
		a.run()
		w.until(time.Second, a.isLeading)
		a.cancel()
		w.until(time.Second, a.hasEnded)
		assert.False(t, a.holds())
		assert.NoError(t, context.Cause(ctx))
	})
}

// A process may run electors one after another, and each term has a token of its own. No term leaves anything behind:
// otherwise, a process that runs for months would need ever more memory.
func TestAnElectorMayRunAgain(t *testing.T) {
	inVirtualTime(t, func(w *world) {
		a, b := w.machine("a"), w.machine("b")
		a.config.ReleaseOnCancel = false
		var last spindle.Token
		for range 4 {
			for _, m := range []*machine{a, b} {
				m.run()
				w.until(2*lease, m.isLeading)
				require.Greater(t, m.lock.Token(), last)
				last = m.lock.Token()
				m.cancel()
				w.until(time.Second, m.hasEnded)
			}
		}
		synctest.Wait()
		assert.Equal(t, 4, a.stopped)
		assert.Empty(t, a.lock.seat.watching)
	})
}

// A process that holds the spindle lock while its elector is gone, in whatever way, keeps nobody out for long.
func TestALockWithoutAnElectorIsGivenBack(t *testing.T) {
	for name, c := range map[string]struct {
		kept time.Duration
		use  func(*machine)
	}{
		"it has asked, and is gone": {lease - time.Second, func(*machine) {}},
		"it has led, and is gone": {5900*time.Millisecond + lease, func(m *machine) {
			require.NoError(m.w.t, m.lock.Update(context.Background(), m.written()))
		}},
		"its settings are not those that were checked": {0, func(m *machine) {
			r := m.written()
			r.LeaseDurationSeconds = 15
			err := m.lock.Update(context.Background(), r)
			require.ErrorContains(m.w.t, err, "LeaseDuration of 15 s instead of 10 s")
			_, _, again := m.lock.Get(context.Background())
			require.ErrorContains(m.w.t, again, "pass its settings to Accept", "it does not compete any more")
		}},
	} {
		t.Run(name, func(t *testing.T) {
			inVirtualTime(t, func(w *world) {
				a, b := w.machine("a"), w.machine("b")
				a.get()
				b.run()
				time.Sleep(time.Second)
				c.use(a)
				assert.Equal(t, c.kept, w.until(2*lease, func() bool { return !a.holds() }))
				w.until(lease, b.isLeading)
			})
		})
	}
}

// A candidate that is cancelled before it leads leaves nothing behind, though it may hold the spindle lock by then.
func TestACandidateThatIsCancelledLeavesNothing(t *testing.T) {
	inVirtualTime(t, func(w *world) {
		a, b := w.machine("a").run(), w.machine("b").run()
		w.until(time.Second, a.isLeading)
		b.cancel()
		w.until(time.Second, b.hasEnded)
		require.NoError(t, b.lock.Stop(w.t.Context()))
		assert.Error(t, b.lock.Spindle().Health(), "it does not run")
		a.stop()

		ctx, cancel := context.WithCancel(w.t.Context())
		_, _, err := b.lock.Get(ctx) // it may lead, and does not come back
		require.NoError(t, err)
		assert.True(t, b.holds())
		cancel()
		w.until(time.Second, func() bool { return b.lock.Spindle().Health() != nil })
		assert.False(t, b.holds())
	})
}

// Followers know the leader, and each change calls OnNewLeader.
func TestFollowersAreToldWhoLeads(t *testing.T) {
	inVirtualTime(t, func(w *world) {
		a, b, c := w.machine("a").run(), w.machine("b").run(), w.machine("c").run()
		w.until(time.Second, a.isLeading)
		time.Sleep(lease)
		assert.Equal(t, []string{"a"}, c.told())
		r, _, err := b.lock.Get(ended()) // as when its Run ends
		require.NoError(t, err)
		assert.Equal(t, "a", r.HolderIdentity)
		assert.True(t, a.lock.Token().Time().Equal(r.AcquireTime.Time), "the token is in the record")
		b.stop()
		a.cancel()
		w.until(lease, c.isLeading)
		assert.Equal(t, []string{"a", "c"}, c.told())
	})
}

// Get tells a follower of each leader, even if the follower has not led in between. The record counts each leader once, even if the
// follower's elector runs again.
func TestAFollowerIsToldOfEachLeader(t *testing.T) {
	inVirtualTime(t, func(w *world) {
		leads, next := w.machine("a").run(), w.machine("b")
		w.until(lease, leads.isLeading)
		c := w.machine("c")
		c.link.Lose(func(step string) bool { return step == "claim" }, nil)
		c.run()
		for range 2 {
			next.run()
			time.Sleep(2 * lease)
			leads.stop()
			w.until(2*lease, next.isLeading)
			leads, next = next, leads
		}
		time.Sleep(2 * lease)
		assert.Equal(t, []string{"a", "b", "a"}, c.told())
		for range 2 {
			r, _, err := c.lock.Get(ended())
			require.NoError(t, err)
			assert.Equal(t, 3, r.LeaderTransitions)
			c.cancel()
			w.until(time.Second, c.hasEnded)
			c.run()
			time.Sleep(2 * lease)
		}
	})
}

// A process that could not release its lock learns it: the next leader has to wait for the end of the lease. The process may
// lead again afterwards.
func TestAReleaseThatFailsIsReported(t *testing.T) {
	for name, release := range map[string]func(*machine) error{
		"Stop": func(m *machine) error {
			m.lock.RecordEvent("stopped leading")
			return m.lock.Stop(context.Background())
		},
		"Update": func(m *machine) error {
			return m.lock.Update(context.Background(), resourcelock.LeaderElectionRecord{})
		},
	} {
		inVirtualTime(t, func(w *world) {
			a := w.machine("a")
			a.lead()
			a.link.Cut()
			assert.ErrorContains(t, release(a), `clientgo: lock "mylock": `, name)
			a.link.Mend()
			a.lock.RecordEvent("stopped leading")
			a.lead()
			assert.NoError(t, release(a), name)
		})
	}
}

// A follower that is cut off names the leader for as long as the leader's lease may last, and no longer: it must not say
// that a dead process leads. The record covers the whole lease: otherwise, client-go would try to acquire too early.
func TestALeaderIsNamedForAsLongAsItsLease(t *testing.T) {
	for _, l := range []time.Duration{100 * time.Millisecond, time.Second, 2500 * time.Millisecond, lease} {
		inVirtualTime(t, func(w *world) {
			a := w.machine("a", spindle.WithLease(l)).run()
			w.until(time.Second, a.isLeading)
			b := w.machine("b").run()
			w.until(lease, func() bool { return len(b.told()) > 0 })
			a.link.Cut()
			b.link.Cut()
			for range 300 {
				synctest.Wait()
				_, age, known := b.lock.Spindle().Seen()
				require.True(t, known)
				r, _, err := b.lock.Get(ended())
				require.Equal(t, age < l, err == nil, "%v after %v", age, l)
				if err == nil {
					require.Equal(t, "a", r.HolderIdentity)
					require.Equal(t, time.Now().Add(-age), r.RenewTime.Time)
					require.Equal(t, math.Ceil(l.Seconds()), float64(r.LeaseDurationSeconds))
				}
				time.Sleep(l / 100)
			}
		})
	}
}

// A process with the same id is still another process: client-go would take its record for its own.
func TestAnotherOfTheSameIDIsAnother(t *testing.T) {
	inVirtualTime(t, func(w *world) {
		a, b := w.machine("same").run(), w.machine("same").run()
		w.until(time.Second, a.isLeading)
		time.Sleep(time.Minute)
		assert.False(t, b.isLeading())
		assert.Empty(t, b.told())
		a.link.Cut()
		w.until(2*lease, b.isLeading)
	})
}

// A machine that was suspended finds its lease gone at the first renewal. The work's ctx ends then, and not when client-go
// gives up.
func TestAfterASuspensionTheWorkIsToldAtOnce(t *testing.T) {
	inVirtualTime(t, func(w *world) {
		a := w.machine("a").run()
		w.until(time.Second, a.isLeading)
		ctx, cancel := a.lock.Context(w.t.Context())
		defer cancel()
		time.Sleep(time.Minute)
		a.clock.Wall.Add(int64(lease)) // the timers stood still
		assert.Zero(t, a.lock.Token())
		assert.LessOrEqual(t, w.until(lease, func() bool { return !a.isLeading() }), a.config.RetryPeriod+time.Millisecond)
		synctest.Wait()
		require.Error(t, ctx.Err())
		assert.ErrorIs(t, context.Cause(ctx), spindle.ErrExpired)
	})
}

// An elector that begins just as the last one ends goes on with its candidacy. The end of the last one's ctx, which is handled later, does
// not end it.
func TestTheEndOfTheLastElectorEndsNoOtherCandidacy(t *testing.T) {
	inVirtualTime(t, func(w *world) {
		w.machine("b").lead()
		s := w.machine("a").lock.seat
		ctx, cancel := context.WithCancel(w.t.Context())
		s.mu.Lock()
		c, err := s.compete(ctx)
		require.NoError(t, err)
		cancel()
		again, err := s.compete(w.t.Context())
		require.NoError(t, err)
		s.mu.Unlock()
		synctest.Wait()
		assert.Same(t, c, again)
		assert.NoError(t, c.ctx.Err())
	})
}

// Work does not begin if its machine was suspended after it had acquired the lock, and until its lease was over. Another machine may lead
// by then.
func TestWorkDoesNotBeginAfterASuspension(t *testing.T) {
	inVirtualTime(t, func(w *world) {
		a := w.machine("a")
		a.lead()
		a.clock.Wall.Add(int64(lease)) // the timers stood still
		a.config.Callbacks.OnStartedLeading(w.t.Context())
		assert.Empty(t, w.all())
	})
}

// The token in the ctx is the term's, and fences; no other ctx has one.
func TestTheWorkHasItsToken(t *testing.T) {
	inVirtualTime(t, func(w *world) {
		a := w.machine("a")
		tokens := make(chan spindle.Token, 1)
		a.config = a.lock.Config(leaderelection.LeaderCallbacks{OnStoppedLeading: a.over,
			OnStartedLeading: func(ctx context.Context) { tokens <- TokenOf(ctx); <-ctx.Done() }})
		a.run()
		assert.Equal(t, a.lock.Token(), <-tokens)
		assert.NotZero(t, a.lock.Token())
		require.Error(t, a.lock.Stop(w.t.Context()), "it leads")
		a.cancel()
		w.until(time.Second, a.hasEnded)
		assert.Zero(t, a.lock.Token())
		assert.Zero(t, TokenOf(w.t.Context()))
	})
}

func ended() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}

// written is what this machine's elector writes.
func (m *machine) written() resourcelock.LeaderElectionRecord {
	return resourcelock.LeaderElectionRecord{HolderIdentity: m.lock.Identity(), LeaseDurationSeconds: seconds(m.config)}
}

// withdrawn takes a lock away from its holder, as an operator does by hand.
func withdrawn(t spindle.Token) []table.Write {
	return []table.Write{{Kind: table.Delete, Name: fleet.Key(t)}}
}
