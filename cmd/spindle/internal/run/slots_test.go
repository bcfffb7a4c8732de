//go:build unix

package run

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spindle-lock/spindle"
	"github.com/spindle-lock/spindle/cmd/spindle/internal/commandtest"
	"github.com/spindle-lock/spindle/cmd/spindle/internal/terminal"
	"github.com/spindle-lock/spindle/internal/elect"
	"github.com/spindle-lock/spindle/internal/options"
	"github.com/spindle-lock/spindle/internal/table"
	"github.com/spindle-lock/spindle/internal/testkit/fleet"
	"github.com/spindle-lock/spindle/internal/testkit/memstore"
	"github.com/spindle-lock/spindle/internal/wait"
	"github.com/spindle-lock/spindle/lock"
)

// semaphore is one as all its holders see it.
type semaphore struct {
	*testing.T
	store memstore.Store

	mu      sync.Mutex
	rnd     *rand.Rand
	holders map[string]slotHolder
	most    int
	grants  map[int]int // for each size
}

type slotHolder struct {
	size  int
	began time.Time
}

func newSemaphore(t *testing.T, seed uint64) *semaphore {
	return &semaphore{T: t, rnd: rand.New(rand.NewPCG(seed, 1)), holders: map[string]slotHolder{}, grants: map[int]int{}}
}

func (s *semaphore) upTo(d time.Duration) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return time.Duration(s.rnd.Int64N(int64(d)))
}

// slow delays the replies to a process.
func (s *semaphore) slow(l *memstore.Link) {
	l.After(func(string) { time.Sleep(s.upTo(20 * time.Millisecond)) })
}

// works lets a holder work, and checks that it may hold its slot: no one else does, and no holder with too small a size for the
// slot did already when the slot was claimed.
func (s *semaphore) works(slot string, size int) {
	s.mu.Lock()
	number, err := strconv.Atoi(slot[len("job/slot/"):])
	assert.NoError(s, err)
	assert.Less(s, number, size)
	assert.NotContains(s, s.holders, slot)
	claimed := tokenIn(&s.store, slot).Time()
	for _, h := range s.holders {
		assert.Falsef(s, number >= h.size && h.began.Before(claimed), "slot %d is taken although a holder has only %d", number, h.size)
	}
	s.holders[slot] = slotHolder{size, time.Now()}
	s.grants[size]++
	s.most = max(s.most, len(s.holders))
	s.mu.Unlock()
	time.Sleep(50*time.Millisecond + s.upTo(300*time.Millisecond))
	s.mu.Lock()
	delete(s.holders, slot)
	s.mu.Unlock()
}

// execs runs several programs under one exec each.
func (s *semaphore) execs(id string, size, times int) {
	for range times {
		x := newSite(s.T, &s.store, id, func(x *site) { x.exec.slots = size; s.slow(&x.Link) }).start()
		p := x.running()
		s.works(x.exec.slot, size)
		p.exit(0)
		assert.Zero(s, x.ends().Code)
		time.Sleep(s.upTo(200 * time.Millisecond))
	}
}

// permits acquires permits as a program with the library does.
func (s *semaphore) permits(process string, size, times int) {
	link := &memstore.Link{Store: &s.store}
	s.slow(link)
	l := semaphoreOf(link, process, size)
	for range times {
		p, err := l.Acquire(s.Context())
		if !assert.NoError(s, err) {
			return
		}
		s.works(s.slotOf(p.Token()), size)
		assert.NoError(s, p.Release(s.Context()))
		time.Sleep(s.upTo(200 * time.Millisecond))
	}
}

// slotOf returns the slot that was claimed with a token.
func (s *semaphore) slotOf(token spindle.Token) string {
	for i := range wait.MostSlots {
		if name := wait.Slot("job", i); tokenIn(&s.store, name) == table.Token(token) {
			return name
		}
	}
	return ""
}

// Execs share the slots of a semaphore with programs that use the library and give it another size: there are never more holders
// than the largest size, each has a slot of its own, and none takes a slot that another holder does not know.
func TestExecsAndPermitsOfDifferentSizesShareASemaphore(t *testing.T) {
	for _, size := range []struct{ execs, permits int }{{2, 3}, {3, 2}, {1, 3}} {
		for seed := range uint64(40) {
			synctest.Test(t, func(t *testing.T) {
				s := newSemaphore(t, seed)
				var all sync.WaitGroup
				for i := range 3 {
					all.Go(func() { s.execs(fmt.Sprint("exec", i), size.execs, 8) })
				}
				for i := range 2 {
					all.Go(func() { s.permits(fmt.Sprint("program", i), size.permits, 4) })
				}
				all.Wait()
				assert.LessOrEqual(t, s.most, 3)
				assert.Equal(t, map[int]int{size.execs: 24, size.permits: 8}, s.grants)
				s.most = 0
				for i := range 4 {
					all.Go(func() { s.execs(fmt.Sprint("last", i), size.execs, 3) })
				}
				all.Wait()
				assert.Equal(t, size.execs, s.most, "all of them are used once the others have left")
				assert.Empty(t, tickets(&s.store))
				if t.Failed() {
					t.Fatalf("seed %d, sizes %+v", seed, size)
				}
			})
		}
	}
}

// last is a clock that always chooses the last of several.
type last struct{ elect.SystemClock }

func (last) Random(d time.Duration) time.Duration { return d - 1 }

// Whether all holders know the slot is asked again after an error. Otherwise the exec would lose its place in the queue, too.
func TestAReadThatFailsOnceCostsNoSlot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		claimed, failed := 0, 0
		x := newSite(t, &memstore.Store{}, "exec", func(x *site) { x.exec.slots = 2 })
		x.After(func(step string) {
			if step == "claim" {
				claimed++
			}
		})
		x.Refuse(func(step string) error {
			if step == "observe" && claimed == 1 && failed < 2 {
				failed++
				return errors.New("unavailable")
			}
			return nil
		})
		x.start().running().exit(0)
		assert.Zero(t, x.ends().Code)
		assert.Equal(t, 1, claimed)
		assert.Equal(t, 2, failed)
	})
}

// The exec's poll shows no holder, and a program with a smaller size gets a slot before the exec has its own.
func TestASlotThatAHolderDoesNotKnowIsGivenBackBeforeTheProgramStarts(t *testing.T) {
	for name, r := range map[string]struct {
		change func(*site)
		fails  bool // the first read of the holders does
		code   int
		after  time.Duration
	}{
		"it waits":                       {change: func(*site) {}},
		"the holders can't be read once": {change: func(*site) {}, fails: true},
		"it waits for a while":           {change: waitsFor(5 * time.Second), code: NotInTime, after: 5 * time.Second},
		"it tries":                       {change: func(s *site) { s.exec.atOnce = true }, code: NotInTime},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := &memstore.Store{}
				small := lock.NewSemaphore(nil, "locktable", "job", 1, options.Option(func(c *options.Config) {
					c.Store, c.Process, c.ID, c.Lease = store, "small", "small", lease
				}))
				x := newSite(t, store, "exec", r.change, func(x *site) {
					x.exec.slots = 3
					x.exec.candidate.Clock, x.exec.config.Clock = last{}, last{}
				})
				var held *lock.Permit
				fails := r.fails
				claims := 0
				x.After(func(step string) {
					if step == "claim" {
						claims++
					}
					if step == "claim" && held == nil {
						var err error
						held, err = small.Acquire(t.Context())
						assert.NoError(t, err)
					}
				})
				x.Refuse(func(step string) error {
					if step == "observe" && held != nil && fails {
						fails = false
						return errors.New("unavailable")
					}
					return nil
				})
				began := time.Now()
				x.start()
				if r.code != 0 {
					assert.Equal(t, r.code, x.ends().Code)
					assert.Equal(t, r.after, time.Since(began), "it is one wait")
				} else {
					time.Sleep(lease)
				}
				assert.Empty(t, x.ran)
				x.exec.with(func(s *state) { assert.Zero(t, s.last, "nothing tells of such a slot") })
				assert.Equal(t, 1, claims, "it does not claim such a slot again")
				assert.True(t, store.Rows()[wait.Slot("job", 2)].Heartbeat.IsZero(), "given back")
				require.NoError(t, held.Release(t.Context()))
				if r.code == 0 {
					x.running().exit(0)
					assert.Zero(t, x.ends().Code)
				}
				assert.Empty(t, tickets(store))
			})
		})
	}
}

// Exec can't find out whether all holders know the slot that it has claimed. It gives the slot back, however its wait ends, and does not
// claim slots back to back meanwhile.
func TestASlotThatMayBeUnknownIsGivenBackHoweverTheWaitEnds(t *testing.T) {
	newer := fmt.Errorf("a row %w", table.ErrNewer)
	for name, r := range map[string]struct {
		change func(*site)
		why    error
		signal time.Duration // when it comes; 0: none does
		code   int
		after  time.Duration
	}{
		"a signal":                 {func(*site) {}, commandtest.Away, time.Second, byTerm, time.Second},
		"the end of the wait":      {waitsFor(lease), commandtest.Away, 0, terminal.Failed, lease},
		"it tries":                 {func(s *site) { s.exec.atOnce = true }, commandtest.Away, 0, terminal.Failed, 0},
		"newer, a signal":          {func(*site) {}, newer, lease, byTerm, lease},
		"newer, the wait's end":    {waitsFor(lease), newer, 0, NotInTime, lease},
		"newer, and it only tries": {func(s *site) { s.exec.atOnce = true }, newer, 0, NotInTime, 0},
	} {
		synctest.Test(t, func(t *testing.T) {
			store := &memstore.Store{}
			var claims, asked atomic.Int32
			x := newSite(t, store, "exec", r.change, func(x *site) { x.exec.slots = 2 })
			held := func() bool {
				return !store.Rows()[wait.Slot("job", 0)].Heartbeat.IsZero() || !store.Rows()[wait.Slot("job", 1)].Heartbeat.IsZero()
			}
			x.After(func(step string) {
				if step == "claim" {
					claims.Add(1)
				}
			})
			x.Refuse(func(step string) error {
				if step == "observe" && held() {
					asked.Add(1)
					return r.why
				}
				return nil
			})
			began := time.Now()
			if x.start(); r.signal != 0 {
				time.Sleep(r.signal)
				x.signals <- syscall.SIGTERM
			}
			assert.Equal(t, r.code, x.ends().Code, name)
			assert.InDelta(t, r.after, time.Since(began), float64(lease/100), name)
			assert.Empty(t, x.ran, name)
			assert.Positive(t, claims.Load(), name)
			assert.LessOrEqual(t, claims.Load(), int32(12), name)
			assert.True(t, r.why != newer || asked.Load() == claims.Load(), "%s: it keeps a slot although asking again does not help", name)
			assert.False(t, held(), "%s: the slot is kept", name)
		})
	}
}

// An exec in the only slot of a semaphore runs one that gives it more slots, of which it could only have the same.
func TestAnExecInTheOnlySlotThatAllKnowWaitsForItself(t *testing.T) {
	store := &memstore.Store{}
	for outer, itself := range map[int]bool{1: true, 2: false} {
		synctest.Test(t, func(t *testing.T) {
			x := newSite(t, store, "outer", func(s *site) { s.exec.slots = outer }).start()
			p := x.running()
			t.Setenv(lockVariable, x.exec.slot)
			t.Setenv(tokenVariable, x.exec.token.String())
			inner := newSite(t, store, "inner", func(s *site) { s.exec.slots = 3 }).start()
			if itself {
				assert.Equal(t, terminal.Failed, inner.ends().Code)
				assert.ErrorContains(t, inner.end.Err, "would wait for itself")
			} else {
				inner.running().exit(0)
				assert.Zero(t, inner.ends())
			}
			p.exit(0)
			assert.Zero(t, x.ends())
		})
	}
}

// Execs that only try, and that are started at the same instant, fill all the slots: one that has lost a slot to another tries the next.
// One more is told that all of them are held.
func TestExecsThatTryAtOnceFillAllSlots(t *testing.T) {
	for n := range 5 {
		synctest.Test(t, func(t *testing.T) {
			store := &memstore.Store{}
			var all []*site
			for i := range n + 1 {
				all = append(all, newSite(t, store, fmt.Sprint(i), func(s *site) {
					s.exec.slots, s.exec.atOnce = max(n, 1), true
					s.exec.candidate.Clock, s.exec.config.Clock = last{}, last{} // all choose the same slot
				}).start())
			}
			time.Sleep(lease)
			assert.Equal(t, max(n, 1), strings.Count(fmt.Sprint(store.Rows()), `"kind":"semaphore"`), "alerts know that slots may be free")
			slots, late := map[string]bool{}, 0
			for _, s := range all {
				runs := s.runs()
				s.exitAll(0)
				if end := s.ends(); runs {
					slots[s.exec.slot] = true
				} else {
					late++
					assert.Equal(t, NotInTime, end.Code)
				}
			}
			assert.Len(t, slots, max(n, 1))
			assert.Equal(t, n+1-max(n, 1), late)
		})
	}
}

// While an exec with fewer slots waits, the others take only slots that it knows. Otherwise, there would be more holders than it allows
// as soon as it has its slot.
func TestAnExecThatWaitsLimitsTheSlotsOfTheOthers(t *testing.T) {
	for i := range 20 {
		synctest.Test(t, func(t *testing.T) {
			store := &memstore.Store{}
			sized := func(id string, n int) *site { return newSite(t, store, id, func(s *site) { s.exec.slots = n }).start() }
			holder := sized("holder", 1)
			work := holder.running()
			small := sized("small", 1)
			time.Sleep(lease)
			large := sized("large", 3)
			time.Sleep(lease + time.Duration(i)*lease/97)
			work.exit(0)
			p := small.running()
			time.Sleep(lease)
			assert.Empty(t, large.began)
			p.exit(0)
			large.running().exit(0)
			for _, s := range []*site{holder, small, large} {
				assert.Zero(t, s.ends())
			}
		})
	}
}

// An operator finds the slot that an exec holds by the name that its log and its status give, in each of its terms.
func TestExecNamesTheSlotThatItHolds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var store memstore.Store
		var slots []any
		two := func(s *site) { s.exec.slots = 2 }
		said := transcript(t, "a", func() {
			other := newSite(t, &store, "other", two).start().running()
			s := newSite(t, &store, "a", two, func(s *site) { s.exec.quiet, s.exec.restart = false, true }).start()
			at := func(format string) {
				t.Helper()
				synctest.Wait()
				assert.Regexp(t, fmt.Sprintf(format, s.exec.slot), s.exec.now().Why)
			}
			for range 2 {
				p := s.running()
				slots = append(slots, s.exec.slot)
				at(`^holding %s, token \d+; running work$`)
				p.spared = 1
				s.Refuse(fleet.Refusing("heartbeat", commandtest.Away))
				time.Sleep(lease / 2)
				s.Refuse(nil)
				p.exit(0)
				at("^%s is no longer held$")
				newSite(t, &store, fmt.Sprint("next", len(slots)), two).start().running() // in the slot of a
				other.exit(0)                                                             // a gets the other slot
			}
			s.signals <- syscall.SIGTERM
			s.ends()
		})
		require.NotEqual(t, slots[0], slots[1])
		var want []string
		for _, slot := range slots {
			want = append(want, fmt.Sprintf(`
*holding %[1]s, token N
!*jeopardy: %[1]s is still held, but will be lost in Ns unless a heartbeat is acknowledged: heartbeat: rpc error: code = Unavailable desc = the database is away
!*work left processes that can't be killed, for example because they belong to another user; 1 still running without the lock %[1]s
*released %[1]s
work has ended; competing again`, slot)[1:])
		}
		assert.Equal(t, strings.Join(want, "\n"), said)
	})
}
