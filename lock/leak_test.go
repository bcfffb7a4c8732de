package lock

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spindle-lock/spindle"
	"github.com/spindle-lock/spindle/internal/table"
	"github.com/spindle-lock/spindle/internal/testkit/fleet"
	"github.com/spindle-lock/spindle/internal/testkit/memstore"
)

const leakLease = 10 * time.Second

// site is a process whose calls must leave nothing behind.
type site struct {
	*bed
	*process
	remains *fleet.Remains

	mutex     *Mutex
	set       *Set
	semaphore *Semaphore
	once      *Once
	keys      int
}

const permits = 2

func newSite(b *bed) *site {
	s := &site{bed: b, process: b.process(), remains: fleet.NewRemains()}
	opts := s.options([]Option{s.remains.Options(), spindle.WithLease(leakLease)})
	s.mutex = New(nil, "locktable", "m", opts...)
	s.set = All(nil, "locktable", []string{"a", "b"}, opts...)
	s.semaphore = NewSemaphore(nil, "locktable", "s", permits, opts...)
	s.once = NewOnce(nil, "locktable", "o", opts...)
	return s
}

// key returns a key that was not done.
func (s *site) key() Key {
	s.keys++
	return KeyOf(string(rune('a' + s.keys)))
}

// kept is everything that the calls have left behind, including the queues of the process.
func (s *site) kept() map[string]int {
	kept := s.remains.Kept(s.T)
	queues.Lock()
	defer queues.Unlock()
	for key, q := range queues.byKey {
		if strings.HasPrefix(key, s.mutex.contender.where()+" ") {
			kept["queue of "+key] = q.users
		}
	}
	return kept
}

// call makes a call. Its ctx ends if the call takes longer than the given time.
func (s *site) call(limit time.Duration, f func(*site, context.Context, func()) error, trouble func()) error {
	done := make(chan error, 1)
	go func() {
		var err error
		defer func() { done <- err }() // also if it fails the test
		err = f(s, s.remains.Ctx, trouble)
	}()
	select {
	case err := <-done:
		return err
	case <-time.After(limit):
		s.remains.Ctx.End()
		return <-done
	}
}

var (
	errFails = errors.New("fn fails")
	errPanic = errors.New("fn panics")
)

// hanging is long enough for a heartbeat to be in progress if heartbeats hang.
const hanging = leakLease/3 + leakLease/20

func (s *site) work(err error) func(context.Context) error {
	return func(context.Context) error {
		time.Sleep(hanging)
		if err == errPanic {
			panic(err)
		}
		return err
	}
}

func (s *site) run(err error) func(context.Context, Run) error {
	return func(ctx context.Context, _ Run) error { return s.work(err)(ctx) }
}

func unlock(ctx context.Context, l interface{ Unlock(context.Context) error }, err error) error {
	if err != nil {
		return err
	}
	return l.Unlock(ctx)
}

func release(ctx context.Context, p *Permit, err error) error {
	if p == nil {
		return err
	}
	return p.Release(ctx)
}

// calls are the calls of the package. Trouble begins when trouble is called. The calls release the locks that they
// take.
var calls = map[string]func(s *site, ctx context.Context, trouble func()) error{
	"Lock": func(s *site, ctx context.Context, trouble func()) error {
		trouble()
		return unlock(ctx, s.mutex, s.mutex.Lock(ctx))
	},
	"TryLock": func(s *site, ctx context.Context, trouble func()) error {
		trouble()
		had, err := s.mutex.TryLock(ctx)
		if !had {
			return err
		}
		return s.mutex.Unlock(ctx)
	},
	"Unlock": func(s *site, ctx context.Context, trouble func()) error {
		require.NoError(s.T, s.mutex.Lock(ctx))
		trouble()
		return s.mutex.Unlock(ctx)
	},
	"Unlock while a heartbeat hangs": func(s *site, ctx context.Context, trouble func()) error {
		require.NoError(s.T, s.mutex.Lock(ctx))
		trouble()
		time.Sleep(hanging)
		return s.mutex.Unlock(ctx)
	},
	"Unlock late": func(s *site, ctx context.Context, trouble func()) error {
		require.NoError(s.T, s.mutex.Lock(ctx))
		trouble()
		time.Sleep(2 * leakLease)
		return s.mutex.Unlock(ctx)
	},
	"Lock in line": func(s *site, ctx context.Context, trouble func()) error {
		require.NoError(s.T, s.mutex.Lock(ctx))
		trouble()
		soon, cancel := context.WithTimeout(ctx, hanging)
		defer cancel()
		_, err := s.mutex.TryLock(soon)
		return errors.Join(err, unlock(ctx, s.set, s.set.Lock(soon)), s.blocked(s.mutex.Lock(soon)), s.mutex.Unlock(ctx))
	},
	"Do of a set in Do": func(s *site, ctx context.Context, trouble func()) error {
		return Do(ctx, s.mutex, func(ctx context.Context) error {
			trouble()
			return Do(ctx, s.set, s.work(nil))
		})
	},
	"TryDo": func(s *site, ctx context.Context, trouble func()) error {
		trouble()
		_, err := TryDo(ctx, s.set, s.work(nil))
		return err
	},
	"TryDo with a permit": func(s *site, ctx context.Context, trouble func()) error {
		trouble()
		_, err := TryDo(ctx, s.semaphore, s.work(nil))
		return err
	},
	"Set.Lock": func(s *site, ctx context.Context, trouble func()) error {
		trouble()
		return unlock(ctx, s.set, s.set.Lock(ctx))
	},
	"Acquire": func(s *site, ctx context.Context, trouble func()) error {
		trouble()
		p, err := s.semaphore.Acquire(ctx)
		return release(ctx, p, err)
	},
	"TryAcquire": func(s *site, ctx context.Context, trouble func()) error {
		trouble()
		p, _, err := s.semaphore.TryAcquire(ctx)
		return release(ctx, p, err)
	},
	"Release": func(s *site, ctx context.Context, trouble func()) error {
		p, err := s.semaphore.Acquire(ctx)
		require.NoError(s.T, err)
		trouble()
		time.Sleep(hanging)
		return p.Release(ctx)
	},
	"Acquire and never Release what is lost": func(s *site, ctx context.Context, trouble func()) error {
		p, err := s.semaphore.Acquire(ctx)
		require.NoError(s.T, err)
		trouble()
		select {
		case <-p.Lost():
			return ErrLost
		case <-time.After(2 * leakLease):
			return p.Release(ctx)
		}
	},
	"Acquire in line": func(s *site, ctx context.Context, trouble func()) error {
		p, err := s.semaphore.Acquire(ctx)
		require.NoError(s.T, err)
		q, err := s.semaphore.Acquire(ctx)
		require.NoError(s.T, err)
		trouble()
		soon, cancel := context.WithTimeout(ctx, hanging)
		defer cancel()
		sooner, end := context.WithTimeout(soon, hanging/2)
		defer end()
		behind := make(chan error, 1)
		time.AfterFunc(hanging/4, func() { // the third is in line
			p, _, err := s.semaphore.TryAcquire(sooner)
			tried := release(ctx, p, err)
			p, err = s.semaphore.Acquire(sooner)
			behind <- errors.Join(release(ctx, p, err), tried)
		})
		third, err := s.semaphore.Acquire(soon)
		<-behind        // whose outcome depends on the third's
		if err == nil { // one of the two was lost
			err = third.Release(ctx)
		} else {
			err = s.blocked(err)
		}
		return errors.Join(err, p.Release(ctx), q.Release(ctx))
	},
	"Once.TryDo": func(s *site, ctx context.Context, trouble func()) error {
		trouble()
		_, err := s.once.TryDo(ctx, s.key(), s.run(nil))
		return err
	},
}

func init() {
	does := map[string]func(s *site, ctx context.Context, fails error) error{
		"Do":               func(s *site, ctx context.Context, fails error) error { return Do(ctx, s.mutex, s.work(fails)) },
		"Do with a permit": func(s *site, ctx context.Context, fails error) error { return Do(ctx, s.semaphore, s.work(fails)) },
		"Once.Do": func(s *site, ctx context.Context, fails error) error {
			_, err := s.once.Do(ctx, s.key(), s.run(fails))
			return err
		},
	}
	for name, do := range does {
		for how, fails := range map[string]error{"": nil, " that fails": errFails, " that panics": errPanic} {
			calls[name+how] = func(s *site, ctx context.Context, trouble func()) error {
				trouble()
				return s.expected(fails, recovered(func() error { return do(s, ctx, fails) }))
			}
		}
	}
}

// expected returns err, or nil if it is exactly one.
func (s *site) expected(one, err error) error {
	if joined, several := err.(interface{ Unwrap() []error }); several && errors.Is(err, one) && len(joined.Unwrap()) == 1 || err == one {
		return nil
	}
	return err
}

// blocked returns nil if a call waited until its deadline, as it should, and otherwise an error.
func (s *site) blocked(err error) error {
	if errors.Is(err, context.DeadlineExceeded) {
		return nil
	}
	return errors.Join(errors.New("it did not wait"), err)
}

// recovered returns the value with which f panics.
func recovered(f func() error) (err error) {
	defer func() {
		if said := recover(); said != nil {
			err = said.(error)
		}
	}()
	return f()
}

// takeAll takes all the locks at the same time, and gives them back.
func (s *site) takeAll() {
	s.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 3*leakLease)
	defer cancel()
	require.NoError(s.T, s.mutex.Lock(ctx))
	require.NoError(s.T, s.set.Lock(ctx))
	var all []*Permit
	for range permits {
		p, err := s.semaphore.Acquire(ctx)
		require.NoError(s.T, err)
		all = append(all, p)
	}
	_, err := s.once.Do(ctx, s.key(), succeed)
	require.NoError(s.T, err)
	for _, p := range all {
		require.NoError(s.T, p.Release(ctx))
	}
	require.NoError(s.T, s.set.Unlock(ctx))
	require.NoError(s.T, s.mutex.Unlock(ctx))
}

// breakAll deletes all lease rows, so that every lock that is held is lost.
func (s *site) breakAll() {
	for name := range s.store.Rows() {
		if strings.Contains(name, "_") {
			assert.NoError(s.T, s.store.Commit(context.Background(), "operator", []table.Write{{Kind: table.Delete, Name: name}}))
		}
	}
}

// holdAll makes another process hold all free locks until it gives them back.
func (s *site) holdAll() (giveBack func()) {
	var back []func(context.Context) error
	ctx, other := context.Background(), s.bed.process()
	for _, name := range []string{"m", "a", "o"} {
		m := other.mutex(name)
		if had, _ := m.TryLock(ctx); had {
			back = append(back, m.Unlock)
		}
	}
	for range permits {
		if p, had, _ := other.semaphore("s", permits).TryAcquire(ctx); had {
			back = append(back, p.Release)
		}
	}
	return func() {
		for _, f := range back {
			assert.NoError(s.T, f(ctx))
		}
	}
}

// trouble starts something, and returns a function that ends it.
type trouble struct {
	name  string
	begin func(*site) (end func())
}

func troubles() []trouble {
	all := []trouble{
		{"nothing", func(*site) func() { return func() {} }},
		{"an outage", func(s *site) func() { s.Link.Cut(); return s.Link.Mend }},
		{"a ctx that has ended", func(s *site) func() { s.remains.Ctx.End(); return func() {} }},
		{"locks that are broken", func(s *site) func() { time.AfterFunc(leakLease/10, s.breakAll); return func() {} }},
		{"another process", (*site).holdAll},
	}
	for _, how := range memstore.Sicknesses {
		all = append(all, trouble{fmt.Sprint("looks ", how, " once it holds"), func(s *site) func() {
			s.Link.After(func(step string) {
				if step == "confirm" {
					s.Link.Sicken("observe", how, 3*leakLease/2)
				}
			})
			return func() { s.Link.After(nil); s.Link.Heal() }
		}})
	}
	for _, step := range []string{"observe", "lease-record", "claim", "confirm", "withdraw", "heartbeat", "release", "released", "done", "finish"} {
		for _, how := range memstore.Sicknesses {
			all = append(all, trouble{fmt.Sprint(step, " ", how), func(s *site) func() { s.Link.Sicken(step, how, 3*leakLease/2); return s.Link.Heal }})
		}
	}
	return all
}

// Whatever goes wrong with a call, it has left nothing behind once everything works again: no goroutine, no callback,
// no place in a queue, no slot, and no rows except those of released locks.
func TestACallThatFailsLeavesNothingBehind(t *testing.T) {
	failed := map[string]int{}
	for call, f := range calls {
		for _, trouble := range troubles() {
			for _, limit := range fleet.Some(time.Second, hanging+time.Second, 4*leakLease) {
				inVirtualTime(t, func(b *bed) {
					s := newSite(b)
					var end atomic.Pointer[func()]
					err := s.call(limit, f, func() { heal := trouble.begin(s); end.Store(&heal) })
					if err != nil {
						failed[call]++
					}
					if heal := end.Load(); heal != nil {
						(*heal)()
					}
					time.Sleep(5 * leakLease)
					kept := s.kept()
					assert.Empty(t, kept, "%s, %s, limit %v: %v", call, trouble.name, limit, err)
					s.takeAll()
					s.remains.Ctx = fleet.NewContext()
					assert.NoError(t, s.call(time.Hour, f, func() {}), "again: %s, %s", call, trouble.name)
					time.Sleep(time.Minute)
					assert.Empty(t, s.kept(), "again: %s, %s", call, trouble.name)
					b.assertReleased()
				})
			}
		}
	}
	for call := range maps.Keys(calls) {
		assert.NotZero(t, failed[call], "%s never failed: nothing was shown", call)
	}
}

// assertReleased checks that every row belongs to a released lock, or to a record of work that was done.
func (b *bed) assertReleased() {
	b.Helper()
	for name, row := range b.store.Rows() {
		if !strings.HasSuffix(name, "!done") {
			assert.True(b, row.Heartbeat.IsZero() && row.Writer == "" || isFree(row), "%s: %v", name, row)
		}
	}
}

// What gives a lock back says whether it was released, was lost before, or is left to expire.
func TestWhatGivesALockBackSaysWhatBecameOfIt(t *testing.T) {
	for call, take := range map[string]func(s *site) (name string, giveBack func(context.Context) error){
		"Unlock":     func(s *site) (string, func(context.Context) error) { return "m", s.mutex.Unlock },
		"Set.Unlock": func(s *site) (string, func(context.Context) error) { return "a", s.set.Unlock },
		"Release": func(s *site) (string, func(context.Context) error) {
			p, err := s.semaphore.Acquire(context.Background())
			require.NoError(s.T, err)
			for name, row := range s.store.Rows() {
				if table.TokenAt(row.Token) == table.Token(p.Token()) && !strings.Contains(name, "_") {
					return name, p.Release
				}
			}
			return "", nil
		},
	} {
		for _, way := range fleet.Farewells("release") {
			inVirtualTime(t, func(b *bed) {
				s := newSite(b)
				require.NoError(t, s.mutex.Lock(b.Context()))
				require.NoError(t, s.set.Lock(b.Context()))
				name, giveBack := take(s)
				taken := way.Name == "its lock was taken just before"
				way.Begin(&s.Link, name)
				ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
				defer cancel()
				err := giveBack(ctx)
				assert.Equal(t, way.Left || taken, err != nil, "%s, %s: %v", call, way.Name, err)
				assert.Equal(t, taken, errors.Is(err, ErrNotHeld), "%s, %s: %v", call, way.Name, err)
				row := b.store.Rows()[name]
				assert.Equal(t, way.Left, !row.Heartbeat.IsZero(), "%s, %s", call, way.Name)
				s.Link.Mend()
				s.Link.Heal()
			})
		}
	}
}
