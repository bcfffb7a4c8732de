package lock

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"

	"github.com/spindle-lock/spindle"
	"github.com/spindle-lock/spindle/internal/options"
	"github.com/spindle-lock/spindle/internal/testkit/memstore"
	"github.com/spindle-lock/spindle/internal/wait"
)

// The tests in this file are about processes that give one semaphore different sizes, as in a rolling update.

func TestInARollingUpdateEachVersionGetsPermitsAndNeverMoreThanTheLargestHold(t *testing.T) {
	for _, sizes := range [][]int{{4, 6}, {2, 4, 6}, {1, 9}} {
		t.Run(fmt.Sprint(sizes), func(t *testing.T) {
			inVirtualTime(t, func(b *bed) {
				ctx, cancel := context.WithTimeout(b.Context(), 6*time.Second)
				defer cancel()
				var mu sync.Mutex
				got, holding, most := map[int]int{}, 0, 0
				var all sync.WaitGroup
				for i := range 4 * len(sizes) {
					size := sizes[i%len(sizes)]
					p := b.process()
					p.takes = 5 * time.Millisecond
					s := p.semaphore("s", size)
					all.Go(func() {
						for ctx.Err() == nil {
							slot, err := s.Acquire(ctx)
							if err != nil {
								assert.ErrorIs(t, err, context.DeadlineExceeded)
								return
							}
							mu.Lock()
							got[size]++
							holding++
							most = max(most, holding)
							mu.Unlock()
							time.Sleep(100 * time.Millisecond)
							mu.Lock()
							holding--
							mu.Unlock()
							assert.NoError(t, slot.Release(b.Context()))
							time.Sleep(50 * time.Millisecond)
						}
					})
				}
				all.Wait()
				largest := 0
				for _, size := range sizes {
					assert.Greater(t, got[size], 5, "permits of size %d", size)
					largest = max(largest, size)
				}
				assert.LessOrEqual(t, most, largest)
			})
		})
	}
}

func TestWhileASmallerSizeHoldsNoSlotBeyondItIsTaken(t *testing.T) {
	inVirtualTime(t, func(b *bed) {
		for _, size := range []int{5, 4} { // each takes its last slot
			p := b.process()
			p.clock = &stepping{}
			_, err := p.semaphore("s", size).Acquire(b.Context())
			require.NoError(t, err)
		}
		large := b.process().semaphore("s", 6)
		for range 3 {
			slot, ok, err := large.TryAcquire(b.Context())
			require.NoError(t, err)
			require.True(t, ok)
			assert.Less(t, slot.names[0], "s/slot/0004")
		}
		_, ok, err := large.TryAcquire(b.Context())
		assert.NoError(t, err, "that another gives it another size is no error")
		assert.False(t, ok, "all slots of the smallest size are taken")
		ctx, cancel := within1s(b.Context())
		defer cancel()
		_, err = large.Acquire(ctx)
		assert.ErrorIs(t, err, context.DeadlineExceeded)
		assert.ErrorContains(t, err, "another process gives this semaphore 4 slots, but this process gives it 6")
	})
}

// Both look at a time when no slot is held, and the process with the larger size chooses a slot that the smaller one
// does not know.
func TestASlotThatAHolderDoesNotKnowIsGivenBackForOneThatItKnows(t *testing.T) {
	for _, try := range []bool{false, true} {
		inVirtualTime(t, func(b *bed) {
			small, large := b.process(), b.process()
			large.clock = &stepping{} // it chooses the last slot
			large.After(func(step string) {
				if step == "claim" {
					large.After(nil)
					_, err := small.semaphore("s", 3).Acquire(b.Context())
					assert.NoError(t, err)
				}
			})
			s := large.semaphore("s", 5)
			slot, ok, err := (*Permit)(nil), true, error(nil)
			if try {
				slot, ok, err = s.TryAcquire(b.Context())
			} else {
				slot, err = s.Acquire(b.Context())
			}
			require.NoError(t, err)
			require.True(t, ok)
			assert.Less(t, slot.names[0], "s/slot/0003")
			assert.NotZero(t, slot.Token())
			assert.Zero(t, b.store.Rows()["s/slot/0004"].Heartbeat, "given back")
			assert.Len(t, heldSlots(b), 2)
		})
	}
}

// heldSlots returns the lease rows of slots.
func heldSlots(b *bed) (rows []string) {
	for name, row := range b.store.Rows() {
		if strings.HasPrefix(name, "s/slot/") && strings.Contains(name, "_") && !isFree(row) {
			rows = append(rows, name)
		}
	}
	return rows
}

func TestASizeThatOthersDoNotShareIsLoggedOnce(t *testing.T) {
	for _, size := range []int{5, wait.MostSlots} { // it holds its last slot, which the smaller does not look at
		inVirtualTime(t, func(b *bed) {
			var lines bytes.Buffer
			logs := options.Option(func(c *options.Config) { c.Log = slog.New(slog.NewTextHandler(&lines, nil)) })
			large, small := b.process(), b.process()
			large.clock, small.clock = &stepping{}, &stepping{}
			first, err := large.semaphore("s", size, spindle.WithID("large")).Acquire(b.Context())
			require.NoError(t, err)
			s := small.semaphore("s", 3)
			logs(&s.contender.config)
			for range 10 {
				slot, err := s.Acquire(b.Context())
				require.NoError(t, err, "its slot is known to both")
				require.NoError(t, slot.Release(b.Context()))
			}
			assert.Equal(t, 1, strings.Count(lines.String(), "level=WARN"), lines.String())
			assert.Contains(t, lines.String(), fmt.Sprintf("lock=s id=%s slots=3 theirs=%d holder=large", s.contender.config.ID, size))
			require.NoError(t, first.Release(b.Context()))
			_, err = b.process().semaphore("s", 4).Acquire(b.Context())
			require.NoError(t, err)
			_, _, err = s.TryAcquire(b.Context())
			require.NoError(t, err)
			assert.Equal(t, 2, strings.Count(lines.String(), "level=WARN"), "and another size once more")
		})
	}
}

func TestACrashedHolderOfASmallerSizeIsMindedForItsLease(t *testing.T) {
	inVirtualTime(t, func(b *bed) {
		crashed, large := b.process(), b.process()
		_, err := crashed.semaphore("s", 1).Acquire(b.Context())
		require.NoError(t, err)
		crashed.Cut()
		start := time.Now()
		s := large.semaphore("s", 2)
		_, ok, err := s.TryAcquire(b.Context())
		require.NoError(t, err)
		assert.False(t, ok, "the only slot that both know is taken")
		for range 2 {
			_, err = s.Acquire(b.Context())
			require.NoError(t, err)
		}
		assert.InDelta(t, 10, time.Since(start).Seconds(), 0.5, "a lease")
		_, ok, err = s.TryAcquire(b.Context())
		assert.NoError(t, err)
		assert.False(t, ok)
	})
}

// A process with a smaller size counts only while it holds a slot. A waiter that had to give back a higher slot then takes
// one again.
func TestASmallerSizeCountsOnlyWhileItIsHeld(t *testing.T) {
	for _, size := range []int{2, 5} { // the last slot is the first that the smaller size does not have, or a later one
		inVirtualTime(t, func(b *bed) {
			small, large := b.process(), b.process()
			large.clock = &stepping{} // it chooses the last slot
			var first *Permit
			large.After(func(step string) {
				if step == "claim" {
					large.After(nil)
					var err error
					first, err = small.semaphore("s", 1).Acquire(b.Context())
					assert.NoError(t, err)
				}
			})
			waits := make(chan *Permit)
			go func() {
				slot, err := large.semaphore("s", size).Acquire(b.Context())
				assert.NoError(t, err)
				waits <- slot
			}()
			time.Sleep(time.Minute)
			require.Len(t, heldSlots(b), 1, "the waiter has given back its slot")
			require.NoError(t, first.Release(b.Context()))
			require.NoError(t, b.process().mutex("s/slot/0000").Lock(b.Context()), "the only slot that both know")
			select {
			case slot := <-waits:
				assert.Greater(t, slot.names[0], "s/slot/0000")
			case <-time.After(time.Minute):
				t.Error("it waits for a process that is gone")
			}
		})
	}
}

// A slot that Acquire does not return is given back whenever ctx ends: while the other holders are looked at, or between two
// attempts to release a slot that one of them does not know.
func TestASlotThatIsNotHandedOutIsGivenBackWheneverCtxEnds(t *testing.T) {
	for _, known := range []bool{true, false} {
		inVirtualTime(t, func(b *bed) {
			for after := time.Millisecond; after < 80*time.Millisecond; after += time.Millisecond {
				small, large := b.process(), b.process()
				large.clock, large.takes = &stepping{}, 10*time.Millisecond // it chooses the last slot
				var first atomic.Pointer[Permit]
				large.After(func(step string) {
					if step == "claim" && !known {
						large.After(nil)
						slot, err := small.semaphore("s", 1).Acquire(b.Context())
						assert.NoError(t, err)
						first.Store(slot)
					}
				})
				firstAttempt := memstore.Once("release")
				large.Refuse(func(step string) error {
					if firstAttempt(step) {
						return refused(codes.Unavailable)
					}
					return nil
				})
				ctx, cancel := context.WithTimeout(b.Context(), after)
				slot, err := large.semaphore("s", 5).Acquire(ctx)
				cancel()
				if err == nil && known {
					require.NoError(t, slot.Release(b.Context()))
				} else {
					require.ErrorIs(t, err, context.DeadlineExceeded)
				}
				time.Sleep(time.Second)
				if slot := first.Load(); slot != nil {
					require.NoError(t, slot.Release(b.Context()))
				}
				require.Empty(t, heldSlots(b), "after %v", after)
			}
		})
	}
}

// Inside calls of Do that use different sizes, the smallest one counts only while its slot is held. Whoever has lost that slot can acquire
// all slots of the larger semaphore again, and is not told that it would wait for itself.
func TestASmallerSizeDoesNotCountOnceItsSlotIsLost(t *testing.T) {
	for _, lost := range []bool{false, true} {
		inVirtualTime(t, func(b *bed) {
			p := b.process()
			small, large := p.semaphore("s", 1), p.semaphore("s", 2)
			err := Do(b.Context(), small, func(ctx context.Context) error {
				on := context.WithoutCancel(ctx)
				if lost {
					b.lose("s/slot/0000", small.Permit(ctx).Token())
					time.Sleep(time.Minute)
					assert.Zero(t, small.Permit(ctx).Token())
					q := b.process()
					q.clock = &stepping{} // it chooses the last slot
					other, err := q.semaphore("s", 2).Acquire(on)
					require.NoError(t, err)
					return Do(on, large, func(ctx context.Context) error {
						require.NoError(t, other.Release(ctx))
						limited, cancel := within1s(ctx)
						defer cancel()
						permit, err := large.Acquire(limited)
						require.NoError(t, err)
						return permit.Release(ctx)
					})
				}
				_, err := large.Acquire(on)
				assert.ErrorIs(t, err, ErrHeld)
				return nil
			})
			if lost {
				assert.ErrorIs(t, err, ErrNotHeld)
			} else {
				assert.NoError(t, err)
			}
		})
	}
}

// A process that changes the size of its semaphore hands its ticket on from a goroutine with the old size to one with the new
// size. The ticket then tells the new size. Otherwise, slots that no holder or waiter excludes would stay free.
func TestATicketThatIsHandedOnTellsTheSizeOfItsNewOwner(t *testing.T) {
	inVirtualTime(t, func(b *bed) {
		for _, slot := range []string{"s/slot/0000", "s/slot/0001"} {
			require.NoError(t, b.process().mutex(slot).Lock(b.Context()))
		}
		p := b.process()
		before, stop := context.WithCancel(b.Context())
		ctx, cancel := context.WithTimeout(b.Context(), time.Minute)
		defer cancel()
		waits := func(ctx context.Context, s *Semaphore) <-chan error {
			acquired := make(chan error, 1)
			go func() {
				_, err := s.Acquire(ctx)
				acquired <- err
			}()
			time.Sleep(time.Second)
			return acquired
		}
		old, next := waits(before, p.semaphore("s", 2)), waits(ctx, p.semaphore("s", 4))
		require.Equal(t, 1, b.tickets())
		stop()
		require.ErrorIs(t, <-old, context.Canceled)
		start := time.Now()
		assert.NoError(t, <-next, "two slots are free")
		assert.Less(t, time.Since(start), 2*time.Second)
	})
}
