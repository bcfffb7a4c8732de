package lock

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"cloud.google.com/go/spanner"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/spindle-lock/spindle"
	"github.com/spindle-lock/spindle/internal/table"
	"github.com/spindle-lock/spindle/internal/wait"
)

func TestATryWhoseCtxEndsSaysSo(t *testing.T) {
	inVirtualTime(t, func(b *bed) {
		p := b.process()
		p.Cut()
		ctx, cancel := within1s(b.Context())
		defer cancel()
		_, err := p.mutex("m").TryLock(ctx)
		assert.ErrorIs(t, err, context.DeadlineExceeded)
		ctx, cancel = within1s(b.Context())
		defer cancel()
		_, _, err = p.semaphore("s", 2).TryAcquire(ctx)
		assert.ErrorIs(t, err, context.DeadlineExceeded)

		p.Mend() // a poll may fail because of the deadline before ctx ends
		p.Refuse(failing(refused(codes.DeadlineExceeded), "observe"))
		ctx, cancel = within1s(b.Context())
		defer cancel()
		time.Sleep(time.Millisecond)
		_, err = p.mutex("m").TryLock(tardyContext{ctx})
		assert.ErrorIs(t, err, context.DeadlineExceeded)
		_, _, err = p.semaphore("s", 2).TryAcquire(tardyContext{ctx})
		assert.ErrorIs(t, err, context.DeadlineExceeded)
	})
}

// Spanner may abort a claim although no process holds the lock. A try then claims again, and says that the lock is not
// free only if a process has it. It does not go on for ever.
func TestATryWhoseClaimWasAbortedClaimsAgain(t *testing.T) {
	inVirtualTime(t, func(b *bed) {
		p, aborts := b.process(), 0
		p.Refuse(func(step string) error {
			if step == "claim" && aborts > 0 {
				aborts--
				return table.ErrAborted
			}
			return nil
		})
		for _, kind := range []struct {
			name string
			try  func(name string) (bool, error)
		}{
			{"mutex", func(name string) (bool, error) { return p.mutex(name).TryLock(b.Context()) }},
			{"set", func(name string) (bool, error) { return p.set(name, name+" too").TryLock(b.Context()) }},
			{"semaphore", func(name string) (bool, error) {
				permit, ok, err := p.semaphore(name, 2).TryAcquire(b.Context())
				return ok && permit != nil, err
			}},
		} {
			aborts = 3
			ok, err := kind.try(kind.name)
			require.NoError(t, err)
			assert.True(t, ok, kind.name)

			aborts = 1000
			ok, err = kind.try("another " + kind.name)
			assert.ErrorContains(t, err, "10 claims in a row have failed, although no process holds the lock", kind.name)
			assert.False(t, ok)
		}
		aborts = 0
		ok, err := b.process().mutex("mutex").TryLock(b.Context())
		require.NoError(t, err)
		assert.False(t, ok, "it is held")
	})
}

// The goroutine that lost a lock may still be at work. So the other goroutines of its process wait for its Unlock. If
// Unlock does not follow, they learn what they are waiting for, even those that began to wait before the loss.
func TestAWaitBehindALostLockSaysWhatIsToBeUnlocked(t *testing.T) {
	for name, early := range map[string]bool{"that began before the loss": true, "that begins after it": false} {
		t.Run(name, func(t *testing.T) {
			inVirtualTime(t, func(b *bed) {
				p := b.process()
				m, other := p.mutex("m"), p.mutex("m")
				require.NoError(t, m.Lock(b.Context()))
				token, lost := m.Token(), m.Lost()
				got := make(chan error, 1)
				wait := func() { got <- other.Lock(b.Context()) }
				if early {
					go wait()
				}
				p.Cut()
				<-lost
				p.Mend()
				theirs := b.process().mutex("m")
				require.NoError(t, theirs.Lock(b.Context()), "another process does not wait")
				require.NoError(t, theirs.Unlock(b.Context()))
				if !early {
					time.Sleep(time.Minute)
					assert.Len(t, p.log.lines("level=WARN"), 1, "nothing waits: only the loss")
					go wait()
					time.Sleep(time.Second)
					require.Len(t, p.log.lines("not unlocked"), 1, "at once")
				}
				time.Sleep(11 * time.Second) // a lease, and more
				require.Len(t, p.log.lines("not unlocked"), 1)
				for value, says := range map[*Mutex]string{m: "lost, but not yet unlocked, by this same value under token %v; unlock it first",
					p.mutex("m"): "lost, but not yet unlocked, by another value in this process under token %v; unlock that value first"} {
					ctx, cancel := within1s(b.Context())
					assert.ErrorContains(t, value.Lock(ctx), fmt.Sprintf(says, token))
					cancel()
				}
				warned := p.log.lines("not unlocked")
				require.Len(t, warned, 1, "again")
				assert.Contains(t, warned[0], fmt.Sprint("token=", token))
				assert.Empty(t, got)
				assert.ErrorIs(t, m.Unlock(b.Context()), ErrNotHeld)
				require.NoError(t, <-got, "unlocked, so that it is the next one's turn")
				require.NoError(t, other.Unlock(b.Context()))
			})
		})
	}
}

// There is no warning if the lock is unlocked after a loss.
func TestAWaitThatALossEndsIsNotWarnedOf(t *testing.T) {
	inVirtualTime(t, func(b *bed) {
		p := b.process()
		m, other := p.mutex("m"), p.mutex("m")
		require.NoError(t, m.Lock(b.Context()))
		lost, got := m.Lost(), make(chan error)
		go func() { got <- other.Lock(b.Context()) }()
		p.Cut()
		<-lost
		p.Mend()
		assert.ErrorIs(t, m.Unlock(b.Context()), ErrNotHeld)
		require.NoError(t, <-got)
		time.Sleep(time.Minute)
		assert.Empty(t, p.log.lines("not unlocked"))
		require.NoError(t, other.Unlock(b.Context()))
	})
}

func TestWhatWaitingDoesNotMendIsReturnedAtOnce(t *testing.T) {
	for _, step := range []string{"observe", "claim", "confirm"} {
		for _, code := range []codes.Code{codes.PermissionDenied, codes.FailedPrecondition, codes.InvalidArgument} {
			t.Run(step+" "+code.String(), func(t *testing.T) {
				inVirtualTime(t, func(b *bed) {
					p := b.process()
					p.Refuse(failing(refused(code), step))
					ctx, cancel := context.WithTimeout(b.Context(), time.Minute)
					defer cancel()
					start := time.Now()
					assert.ErrorContains(t, p.mutex("m").Lock(ctx), "refused here")
					_, err := p.semaphore("s", 2).Acquire(ctx)
					assert.ErrorContains(t, err, "refused here")
					assert.Less(t, time.Since(start), time.Second)
				})
			})
		}
	}
}

func TestAMutexThatCanNotConfirmLeavesTheLockToOthers(t *testing.T) {
	for _, err := range []error{refused(codes.FailedPrecondition), refused(codes.Internal), nil} {
		inVirtualTime(t, func(b *bed) {
			sick, healthy := b.process(), b.process()
			sick.takes = 5 * time.Millisecond
			sick.Refuse(failing(err, "confirm", "heartbeat"))
			if err == nil {
				sick.Lose(func(step string) bool { return step == "confirm" || step == "heartbeat" }, nil)
			}
			ctx, cancel := context.WithCancel(b.Context())
			go func() {
				m := sick.mutex("m", spindle.WithLease(5*time.Second))
				for ctx.Err() == nil {
					_ = m.Lock(ctx)
					time.Sleep(time.Second)
				}
			}()
			time.Sleep(time.Second)
			start := time.Now()
			m := healthy.mutex("m")
			patience, end := context.WithTimeout(b.Context(), time.Minute)
			defer end()
			require.NoError(t, m.Lock(patience))
			assert.Less(t, time.Since(start), 30*time.Second, "three leases, while another that can't confirm goes on trying: %v", err)
			cancel()
			require.NoError(t, m.Unlock(b.Context()))
		})
	}
}

// The first waiter in the queue looks often, because a holder can go away at any time. The failure of a claim is no
// reason to look often.
func TestAClaimThatFailsIsTriedAgainEverMoreSeldom(t *testing.T) {
	inVirtualTime(t, func(b *bed) {
		p := b.process()
		p.Refuse(failing(refused(codes.Unavailable), "claim"))
		ctx, cancel := context.WithTimeout(b.Context(), time.Minute)
		defer cancel()
		require.ErrorContains(t, p.mutex("m").Lock(ctx), "refused here")
		assert.Less(t, p.Counts()["claim"], 120, "each second, and at first more often")
	})
}

func TestAClaimThatCtxLeftBehindIsGivenBack(t *testing.T) {
	inVirtualTime(t, func(b *bed) {
		p := b.process()
		p.takes = 100 * time.Millisecond
		ctx, cancel := context.WithTimeout(b.Context(), 250*time.Millisecond) // in the middle of the confirmation
		defer cancel()
		start := time.Now()
		require.ErrorIs(t, p.mutex("m").Lock(ctx), context.DeadlineExceeded)
		require.Equal(t, 250*time.Millisecond, time.Since(start))
		time.Sleep(200 * time.Millisecond)
		require.Equal(t, []string{"observe", "claim", "confirm", "release"}, p.sent())
		ok, err := b.process().mutex("m").TryLock(b.Context())
		require.NoError(t, err)
		assert.True(t, ok)
	})
}

// Other transactions of the process abort first the confirmation and then the withdrawal.
func TestAClaimThatCtxLeftBehindIsWithdrawnHoweverOftenThatIsAborted(t *testing.T) {
	inVirtualTime(t, func(b *bed) {
		p := b.process()
		p.takes = 10 * time.Millisecond
		withdrawals := 0
		p.Refuse(func(step string) error {
			if step == "withdraw" {
				withdrawals++
			}
			if step == "confirm" || step == "withdraw" && withdrawals < 4 {
				return table.ErrAborted
			}
			return nil
		})
		ctx, cancel := context.WithTimeout(b.Context(), 25*time.Millisecond)
		defer cancel()
		require.ErrorIs(t, p.mutex("m").Lock(ctx), context.DeadlineExceeded)
		time.Sleep(time.Second)
		ok, err := b.process().mutex("m").TryLock(b.Context())
		require.NoError(t, err)
		assert.True(t, ok, "long before the lease of 10 s has passed")
	})
}

func TestTheNextGoroutineGoesOnceTheLockIsGivenBack(t *testing.T) {
	inVirtualTime(t, func(b *bed) {
		p := b.process()
		p.takes = 10 * time.Millisecond
		m := p.mutex("m")
		require.NoError(t, m.Lock(b.Context()))
		var all sync.WaitGroup
		all.Go(func() { assert.NoError(t, m.Lock(b.Context())) })
		synctest.Wait()
		start := time.Now()
		require.NoError(t, m.Unlock(b.Context()))
		all.Wait()
		assert.NotZero(t, m.Token(), "what the first gave back is not what the second holds")
		assert.Equal(t, 30*time.Millisecond, time.Since(start), "one request after the other")
		assert.Equal(t, []string{"observe", "claim", "confirm", "release", "observe", "claim"}, p.sent(), "what was released is claimed without a confirmation")
		require.NoError(t, m.Unlock(b.Context()))
	})
}

func TestGoroutinesHaveTheirTurnsInOrder(t *testing.T) {
	inVirtualTime(t, func(b *bed) {
		p := b.process()
		m, s := p.mutex("m"), p.semaphore("s", 1)
		require.NoError(t, m.Lock(b.Context()))
		first, err := s.Acquire(b.Context())
		require.NoError(t, err)
		var locked, acquired []int
		var all sync.WaitGroup
		for i := range 20 {
			all.Go(func() {
				assert.NoError(t, m.Lock(b.Context()))
				locked = append(locked, i)
				time.Sleep(time.Millisecond)
				assert.NoError(t, m.Unlock(b.Context()))
			})
			all.Go(func() {
				slot, err := s.Acquire(b.Context())
				assert.NoError(t, err)
				acquired = append(acquired, i)
				time.Sleep(time.Millisecond)
				assert.NoError(t, slot.Release(b.Context()))
			})
			time.Sleep(10 * time.Millisecond)
		}
		require.NoError(t, m.Unlock(b.Context()))
		require.NoError(t, first.Release(b.Context()))
		all.Wait()
		order := []int{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19}
		assert.Equal(t, order, locked)
		assert.Equal(t, order, acquired)
		assert.NotContains(t, queues.byKey, m.contender.queue(), "queues that nobody waits in are forgotten")
		assert.NotContains(t, queues.byKey, s.contender.queue())
	})
}

// A goroutine may stop waiting for its turn at the very instant at which the ticket of its process is left to it. Then it
// takes over the ticket, to delete it, unless another goroutine waits.
func TestATicketOnItsWayIsForWhoeverIsLeft(t *testing.T) {
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	for wants, nonce := range []string{"own", ""} {
		q := join(t.Name())
		q.turn <- struct{}{}
		q.wants, q.ticket = wants, wait.OwnTicket{Own: table.Ticket{Nonce: "own"}}
		own, front := q.enter(ended, false)
		assert.False(t, front)
		assert.Equal(t, nonce, own.Own.Nonce)
		q.leave(nil)
	}
}

func TestOfTwoUnlocksOfATurnOneIsTold(t *testing.T) {
	inVirtualTime(t, func(b *bed) {
		p := b.process()
		p.takes = 10 * time.Millisecond
		m := p.mutex("m")
		require.NoError(t, m.Lock(b.Context()))
		var all sync.WaitGroup
		all.Go(func() { assert.NoError(t, m.Lock(b.Context())) }) // the next in the queue
		var first error
		all.Go(func() { first = m.Unlock(b.Context()) })
		time.Sleep(5 * time.Millisecond)
		assert.ErrorIs(t, m.Unlock(b.Context()), ErrNotHeld)
		all.Wait()
		assert.NoError(t, first)
		assert.NotZero(t, m.Token(), "the second Unlock was not about the next one's turn")
		require.NoError(t, m.Unlock(b.Context()))
		select {
		case <-m.Lost():
		default:
			t.Error("it is not held")
		}
	})
}

func TestUnlockOfALostLockSaysSo(t *testing.T) {
	inVirtualTime(t, func(b *bed) {
		p := b.process()
		m := p.mutex("m")
		require.NoError(t, m.Lock(b.Context()))
		lost := m.Lost()
		b.lose("m", m.Token())
		<-lost
		steps := len(p.sent())
		assert.ErrorIs(t, m.Unlock(b.Context()), ErrNotHeld)
		assert.Len(t, p.sent(), steps, "nothing is asked of Spanner")

		require.NoError(t, m.Lock(b.Context()))
		b.lose("m", m.Token())
		assert.ErrorIs(t, m.Unlock(b.Context()), ErrNotHeld, "it finds out by itself")
	})
}

func TestALockIsNotHeldAfterItsDeadline(t *testing.T) {
	inVirtualTime(t, func(b *bed) {
		p := b.process()
		clock := &stepping{}
		p.clock = clock
		m := p.mutex("m")
		require.NoError(t, m.Lock(b.Context()))
		lost := m.Lost()
		synctest.Wait()
		clock.wall.Add(int64(time.Hour)) // the machine was suspended, and no timer has run yet
		assert.Zero(t, m.Token())
		err := m.Unlock(b.Context())
		assert.ErrorIs(t, err, ErrNotHeld)
		assert.ErrorContains(t, err, "lease expired")
		<-lost
	})
}

func TestALostSetIsGivenBack(t *testing.T) {
	inVirtualTime(t, func(b *bed) {
		s := b.process().set("a", "b", "c")
		require.NoError(t, s.Lock(b.Context()))
		b.lose("b", s.Token())
		require.ErrorIs(t, s.Unlock(b.Context()), ErrNotHeld)
		for _, name := range []string{"a", "c"} {
			m := b.process().mutex(name)
			ok, err := m.TryLock(b.Context())
			require.NoError(t, err)
			assert.True(t, ok, "%s was still held", name)
			require.NoError(t, m.Unlock(b.Context()))
		}
	})
}

func TestNamesOfPartsAreNames(t *testing.T) {
	for _, parts := range [][]string{
		{"tenant", "guild_123456789012345678"}, {"order_1700000000000000"}, {"a_1700000000000000", "b"},
		{"a", "_1700000000000000"}, {"a_", "1700000000000000"}, {"a_17000000000000001700000000000000"},
	} {
		assert.NoError(t, table.CheckName(Name(parts...)), "%q", parts)
	}
	assert.Equal(t, "a_1700000000000000/b", Name("a_1700000000000000", "b"), "escaped only where it must be")
	assert.NotEqual(t, Name("a_1700000000000000"), Name("a%5F1700000000000000"))
}

func TestALargeSetIsRefused(t *testing.T) {
	names := make([]string, maxSet)
	for i := range names {
		names[i] = fmt.Sprint("thing-", i)
	}
	for value, says := range map[string]string{
		strings.Repeat("x", 64<<10):    "",
		strings.Repeat("<", 64<<10):    "at most 90 MiB are allowed",
		strings.Repeat("\x00", 64<<10): "at most 90 MiB are allowed",
	} {
		s := All(&spanner.Client{}, "locktable", names, spindle.WithValue(value))
		if says == "" {
			assert.NoError(t, s.contender.err)
		} else {
			assert.ErrorContains(t, s.contender.err, says)
		}
		assert.NoError(t, All(&spanner.Client{}, "locktable", names[:200], spindle.WithValue(value)).contender.err)
	}
}

// A set has the names that All was given, and leaves the caller's list as it is, whatever the caller does with it later.
func TestASetKeepsItsOwnListOfNames(t *testing.T) {
	inVirtualTime(t, func(b *bed) {
		names := []string{"c", "a", "b"}
		s := b.process().set(names...)
		require.Equal(t, []string{"c", "a", "b"}, names)
		names[0], names[1] = "other", "other"
		require.NoError(t, s.Lock(b.Context()))
		for name, free := range map[string]bool{"a": false, "b": false, "c": false, "other": true} {
			ok, err := b.process().mutex(name).TryLock(b.Context())
			require.NoError(t, err)
			assert.Equal(t, free, ok, name)
		}
		require.NoError(t, s.Unlock(b.Context()))
	})
}

// The text that an announcement leaves in the row is not an id.
func TestAWaitForALeavingHolderSaysWhoItIs(t *testing.T) {
	inVirtualTime(t, func(b *bed) {
		holder, p := b.process().mutex("m", spindle.WithID("somebody")), b.process()
		require.NoError(t, holder.Lock(b.Context()))
		rows := table.Table{Store: b.store}
		says := func(m *Mutex) error {
			ctx, cancel := context.WithTimeout(b.Context(), time.Second)
			defer cancel()
			err := m.Lock(ctx)
			require.ErrorIs(t, err, context.DeadlineExceeded)
			return err
		}
		require.NoError(t, rows.Announce(b.Context(), table.Token(holder.Token()), "m"))
		assert.ErrorContains(t, says(p.mutex("m")), `"m" by "somebody" under token`)
		require.NoError(t, rows.Succeed(b.Context(), "next", "m", table.Token(holder.Token())))
		err := says(p.mutex("m"))
		assert.ErrorContains(t, err, `"m" by "somebody" under token`)
		assert.NotContains(t, err.Error(), "\n")
		require.NoError(t, holder.Unlock(b.Context()))
	})
}

// A caller with the ctx of work that has lost its lock learns this from the error, and not only that a ctx was
// canceled.
func TestACtxThatEndedSaysWhy(t *testing.T) {
	inVirtualTime(t, func(b *bed) {
		p := b.process()
		m, s := p.mutex("m"), p.semaphore("s", 1)
		require.NoError(t, m.Lock(b.Context()))
		permit, err := s.Acquire(b.Context())
		require.NoError(t, err)
		for _, before := range []bool{true, false} {
			for what, ask := range map[string]func(context.Context) error{
				"in the queue":    m.Lock,
				"for another":     b.process().mutex("m").Lock,
				"a permit":        func(ctx context.Context) error { _, err := b.process().semaphore("s", 1).Acquire(ctx); return err },
				"without waiting": func(ctx context.Context) error { _, err := m.TryLock(ctx); return err },
				"in line":         func(ctx context.Context) error { _, err := s.Acquire(ctx); return err },
				"in an outage": func(ctx context.Context) error {
					q := b.process()
					q.Cut()
					return q.mutex("m").Lock(ctx)
				},
			} {
				ctx, end := context.WithCancelCause(b.Context())
				defer end(nil)
				if before {
					end(ErrLost)
				} else if what == "without waiting" {
					continue
				}
				time.AfterFunc(15*time.Second, func() { end(ErrLost) })
				err := ask(ctx)
				assert.ErrorIs(t, err, context.Canceled, what)
				assert.ErrorIs(t, err, ErrLost, what)
			}
		}
		require.NoError(t, m.Unlock(b.Context()))
		require.NoError(t, permit.Release(b.Context()))
	})
}

// The client sends an unlock again if its reply was lost. By then another process may hold the lock.
func TestAnUnlockThatWasSentAgainIsNoLoss(t *testing.T) {
	inVirtualTime(t, func(b *bed) {
		p, q := b.process(), b.process()
		m, next := p.mutex("m"), q.mutex("m")
		require.NoError(t, m.Lock(b.Context()))
		p.Again(func(step string) bool {
			if step != "release" {
				return false
			}
			time.Sleep(250 * time.Millisecond)
			return true
		})
		locked := make(chan error, 1)
		go func() { locked <- next.Lock(b.Context()) }()
		time.Sleep(time.Second)
		assert.NoError(t, m.Unlock(b.Context()), "it was held all the time, and given back")
		require.NoError(t, <-locked)
		assert.NoError(t, next.Unlock(b.Context()))
	})
}

// Left falls from nearly one lease duration until the next heartbeat, and is zero for a lock that is not held.
func TestLeftIsTheTimeWithoutAnotherHeartbeat(t *testing.T) {
	inVirtualTime(t, func(b *bed) {
		m := b.process().mutex("m", spindle.WithLease(10*time.Second))
		assert.Zero(t, m.Left())
		require.NoError(t, m.Lock(b.Context()))
		assert.InDelta(t, 9.9, m.Left().Seconds(), 0.05)
		time.Sleep(time.Second)
		assert.InDelta(t, 8.9, m.Left().Seconds(), 0.05)
		time.Sleep(time.Minute)
		assert.Greater(t, m.Left(), 6*time.Second)
		require.NoError(t, m.Unlock(b.Context()))
		assert.Zero(t, m.Left())
	})
}

// Once the program has closed its Spanner client, Unlock returns at once, because no later attempt can succeed.
func TestUnlockOnAClosedClientDoesNotWait(t *testing.T) {
	inVirtualTime(t, func(b *bed) {
		p := b.process()
		m, permits := p.mutex("m"), p.semaphore("s", 1)
		require.NoError(t, m.Lock(b.Context()))
		permit, err := permits.Acquire(b.Context())
		require.NoError(t, err)
		closed := spanner.ToSpannerError(status.Error(codes.Canceled, "grpc: the client connection is closing"))
		p.Refuse(func(string) error { return closed })
		start := time.Now()
		assert.ErrorIs(t, m.Unlock(b.Context()), closed)
		assert.ErrorIs(t, permit.Release(b.Context()), closed)
		assert.Less(t, time.Since(start), time.Second/10)
	})
}

// The error of a waiter for a set says which of its locks are held, and by which holders. It leaves out locks whose
// holder has crashed or released them.
func TestAWaitForASetNamesThoseThatHoldALockOfIt(t *testing.T) {
	inVirtualTime(t, func(b *bed) {
		holder, crashed, gone := b.process().mutex("held"), b.process(), b.process().mutex("released")
		require.NoError(t, crashed.mutex("crashed").Lock(b.Context()))
		crashed.Cut()
		require.NoError(t, gone.Lock(b.Context()))
		require.NoError(t, gone.Unlock(b.Context()))
		time.Sleep(time.Minute)
		require.NoError(t, holder.Lock(b.Context()))
		ctx, cancel := within1s(b.Context())
		defer cancel()
		err := b.process().set("held", "crashed", "released", "never").Lock(ctx)
		require.ErrorContains(t, err, `(held: "held" by `)
		_, by, _ := strings.Cut(err.Error(), "(held: ")
		assert.Equal(t, 1, strings.Count(by, " by "), by)
		require.NoError(t, holder.Unlock(b.Context()))
	})
}

// The error of a wait says how long it lasted, and for each lock that is held, by whom, under which token and how old the last heartbeat is:
// from this an operator sees whether the holder is alive, and which one to look for.
func TestTheErrorOfAWaitSaysWhoHoldsEachLock(t *testing.T) {
	inVirtualTime(t, func(b *bed) {
		var tokens []any
		for _, name := range []string{"a", "b"} {
			p := b.process()
			m := p.mutex(name, spindle.WithID("holder of "+name), spindle.WithLease(30*time.Second))
			require.NoError(t, m.Lock(b.Context()))
			tokens = append(tokens, m.Token())
			time.Sleep(12 * time.Second) // a heartbeat
			p.Cut()
		}
		ctx, cancel := context.WithTimeout(b.Context(), 3*time.Second)
		defer cancel()
		err := b.process().set("b", "a").Lock(ctx)
		says := fmt.Sprintf(`"a" by "holder of a" under token %v, last heartbeat 1[67](\.\d+)?s ago; "b" by "holder of b" under token %v, last heartbeat [45](\.\d+)?s ago`, tokens...)
		assert.Regexp(t, `^lock: set \["a" "b"\]: not acquired in 3s: context deadline exceeded \(held: `+says+`\)$`, err.Error())
	})
}

// The error of a wait says how many waiters were ahead, and claims to know it only if the poll has read all their tickets.
func TestAWaitThatEndsSaysHowManyWereAhead(t *testing.T) {
	for before, says := range map[int]string{0: "", 1: " (another process was ahead of this one in the queue)", 2: " (2 other processes were ahead of this one in the queue)",
		table.MostTickets - 1: " (31 other processes were ahead of this one in the queue)", table.MostTickets: " (at least 32 other processes were ahead of this one in the queue)"} {
		w := &waiter{}
		w.note(found{before: before})
		assert.Equal(t, says, w.by())
	}
}

// The loss of a lock names what was wrong with the last heartbeat.
func TestALossNamesItsCause(t *testing.T) {
	inVirtualTime(t, func(b *bed) {
		p := b.process()
		m := p.mutex("m")
		require.NoError(t, m.Lock(b.Context()))
		p.Refuse(failing(refused(codes.ResourceExhausted), "heartbeat"))
		<-m.Lost()
		assert.NotEmpty(t, p.log.lines("ResourceExhausted"))
		err := m.Unlock(b.Context())
		assert.ErrorIs(t, err, spindle.ErrExpired)
		assert.ErrorContains(t, err, "ResourceExhausted")
	})
}

// Whoever holds a lock in a database that was dropped does not look for another process that took the lock.
func TestALossOfTheWholeTableSaysSo(t *testing.T) {
	inVirtualTime(t, func(b *bed) {
		p := b.process()
		m := p.mutex("m")
		require.NoError(t, m.Lock(b.Context()))
		p.Refuse(failing(mayPass["session"], "heartbeat"))
		time.Sleep(m.contender.config.Lease / 2)
		assert.NotZero(t, m.Token(), "a lost session proves nothing about the lock")
		p.Refuse(failing(fmt.Errorf("%w: %w", table.ErrMissing, mayPass["database"]), "heartbeat"))
		<-m.Lost()
		err := m.Unlock(b.Context())
		assert.ErrorIs(t, err, spindle.ErrSuperseded)
		assert.NotContains(t, err.Error(), spindle.ErrSuperseded.Error())
		assert.ErrorContains(t, err, "the lock table is gone")
		assert.ErrorContains(t, err, "check the database path")
	})
}
