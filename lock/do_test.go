package lock

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"cloud.google.com/go/spanner"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"

	"github.com/spindle-lock/spindle"
	"github.com/spindle-lock/spindle/internal/fence"
	"github.com/spindle-lock/spindle/internal/options"
	"github.com/spindle-lock/spindle/internal/table"
	"github.com/spindle-lock/spindle/internal/testkit/memstore"
)

// If ctx ends while the lock is being given back, that is not interrupted.
func TestDoGivesBackThoughItsCtxEndsMeanwhile(t *testing.T) {
	inVirtualTime(t, func(b *bed) {
		p := b.process()
		ctx, cancel := context.WithCancel(b.Context())
		require.NoError(t, Do(ctx, p.mutex("m"), func(context.Context) error {
			p.Lose(memstore.Once("release"), nil)
			time.AfterFunc(time.Second/2, cancel) // while the first attempt waits for its answer
			return nil
		}))
		ok, err := b.process().mutex("m").TryLock(b.Context())
		require.NoError(t, err)
		assert.True(t, ok)
	})
}

func TestTryDoWaitsForNobody(t *testing.T) {
	inVirtualTime(t, func(b *bed) {
		mine, theirs := b.process(), b.process()
		for _, pair := range [][2]Locker{
			{mine.mutex("m"), theirs.mutex("m")},
			{mine.set("a", "b"), theirs.set("b", "c")},
			{mine.semaphore("s", 1), theirs.semaphore("s", 1)},
			{mine.mutex("n"), mine.mutex("n")}, // in one process
		} {
			own := errors.New("own")
			ran, err := TryDo(b.Context(), pair[0], func(ctx context.Context) error {
				began := time.Now()
				ran, err := TryDo(b.Context(), pair[1], func(context.Context) error { panic("it is held") })
				assert.NoError(t, err)
				assert.False(t, ran)
				assert.Less(t, time.Since(began), time.Second)
				return own
			})
			assert.True(t, ran)
			assert.ErrorIs(t, err, own)
			ran, err = TryDo(b.Context(), pair[1], func(context.Context) error { return nil })
			assert.True(t, ran, "it was given back")
			assert.NoError(t, err)
		}
		theirs.Refuse(failing(refused(codes.PermissionDenied), "observe"))
		ran, err := TryDo(b.Context(), theirs.mutex("m"), func(context.Context) error { return nil })
		assert.False(t, ran)
		assert.ErrorContains(t, err, "PermissionDenied")
	})
}

func TestDoIsToldWhenItsLockIsUnlockedByAnother(t *testing.T) {
	inVirtualTime(t, func(b *bed) {
		for _, l := range []interface {
			Locker
			Lock(context.Context) error
			Unlock(context.Context) error
			Token() spindle.Token
		}{b.process().mutex("m"), b.process().set("a", "b"), &struct{ *Mutex }{b.process().mutex("embedded")}} {
			require.NoError(t, l.Lock(b.Context()))
			working, unlocked, taken := make(chan context.Context), make(chan bool), make(chan bool)
			var all sync.WaitGroup
			own := errors.New("own")
			all.Go(func() {
				err := Do(b.Context(), l, func(ctx context.Context) error {
					working <- ctx
					<-unlocked
					<-taken
					return own
				})
				assert.ErrorIs(t, err, own)
				assert.ErrorIs(t, err, ErrNotHeld)
			})
			synctest.Wait()
			require.NoError(t, l.Unlock(b.Context()))
			work := <-working
			require.NoError(t, l.Unlock(b.Context())) // as a deferred one does, by mistake
			close(unlocked)
			<-work.Done()
			assert.ErrorIs(t, context.Cause(work), ErrLost)
			require.NoError(t, l.Lock(b.Context()), "a third has its turn")
			third := l.Token()
			close(taken)
			all.Wait()
			assert.Equal(t, third, l.Token(), "Do gave back what it did not have")
			require.NoError(t, l.Unlock(b.Context()))
		}
	})
}

// Work never waits for itself, whichever value it uses.
func TestErrHeldIsForWorkThatHoldsTheLock(t *testing.T) {
	inVirtualTime(t, func(b *bed) {
		p := b.process()
		a, ab, other := p.mutex("a"), p.set("a", "b"), p.mutex("other")
		elsewhere := New(nil, "othertable", "a", p.options(nil)...)
		for _, l := range []Locker{a, ab, p.set("a", "c")} {
			var later context.Context
			patient, cancel := context.WithTimeout(b.Context(), time.Minute)
			defer cancel()
			require.NoError(t, Do(patient, l, func(ctx context.Context) error {
				return Do(ctx, other, func(ctx context.Context) error {
					for _, again := range []interface {
						Lock(context.Context) error
						TryLock(context.Context) (bool, error)
					}{a, p.mutex("a"), ab, p.set("c", "a"), other} {
						assert.ErrorIs(t, again.Lock(ctx), ErrHeld)
						_, err := again.TryLock(ctx)
						assert.ErrorIs(t, err, ErrHeld)
					}
					assert.NoError(t, Do(ctx, New(nil, "othertable", "z", p.options(nil)...), func(ctx context.Context) error {
						assert.ErrorIs(t, a.Lock(ctx), ErrHeld, "around work in another table")
						return nil
					}))
					own, _ := elsewhere.contender.ownIn(ctx, []string{"a"})
					assert.Empty(t, own, "a name in another table is another lock")
					for _, free := range []Locker{p.mutex("d"), p.set("d", "e")} {
						assert.NoError(t, Do(ctx, free, func(context.Context) error { return nil }))
					}
					later = context.WithoutCancel(ctx)
					return nil
				})
			}))
			later, end := within1s(later)
			defer end()
			require.NoError(t, a.Lock(later), "work that outlives Do does not hold the lock")
			require.NoError(t, a.Unlock(later))
		}
	})
}

// The error names a lock and the value whose Do holds it, wherever that Do is among others: a reader looks there for the mistake.
func TestErrHeldNamesALockAndTheDoThatHoldsIt(t *testing.T) {
	inVirtualTime(t, func(b *bed) {
		p := b.process()
		require.NoError(t, Do(b.Context(), p.mutex("a"), func(ctx context.Context) error {
			return Do(ctx, p.mutex("b"), func(ctx context.Context) error {
				for _, l := range []locking{p.set("a", "b"), p.set("a", "c"), p.set("b", "c")} {
					assert.Regexp(t, `"(\w)", by Do of mutex "(a|b)"$`, l.Lock(ctx))
					_, by, _ := strings.Cut(l.Lock(ctx).Error(), "the caller's own work: ")
					assert.Equal(t, by[:3], by[len(by)-3:], by)
				}
				return nil
			})
		}))
	})
}

func TestWhatWorkHasLostIsNotHeldByIt(t *testing.T) {
	inVirtualTime(t, func(b *bed) {
		p := b.process()
		ab := p.set("a", "b")
		err := Do(b.Context(), ab, func(ctx context.Context) error {
			b.lose("a", ab.Token())
			<-ctx.Done()
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
			defer cancel()
			assert.NoError(t, Do(ctx, p.mutex("a"), func(context.Context) error { return nil }))
			assert.ErrorIs(t, p.set("b", "a").Lock(ctx), ErrHeld, "the turn in the queue of the process is this work's still")
			return nil
		})
		assert.ErrorIs(t, err, ErrNotHeld)
	})
}

func TestWorkMayHaveSeveralPermits(t *testing.T) {
	inVirtualTime(t, func(b *bed) {
		p := b.process()
		s := p.semaphore("s", 2)
		patient, cancel := context.WithTimeout(b.Context(), time.Minute)
		defer cancel()
		require.ErrorIs(t, Do(patient, s, func(ctx context.Context) error {
			first := s.Permit(ctx)
			return Do(ctx, s, func(ctx context.Context) error {
				assert.NotEqual(t, first.names[0], s.Permit(ctx).names[0])
				_, err := p.semaphore("s", 2).Acquire(ctx)
				assert.ErrorIs(t, err, ErrHeld, "it would wait for itself")
				_, _, err = s.TryAcquire(ctx)
				assert.ErrorIs(t, err, ErrHeld)
				require.NoError(t, first.Release(ctx))
				third, err := s.Acquire(context.WithoutCancel(ctx))
				require.NoError(t, err)
				return third.Release(ctx)
			})
		}), ErrNotHeld, "the first permit was given back before")
	})
}

// A permit writes under the token of its own slot, whichever Do its ctx comes from: under another slot's token, its writes would go on after
// its own slot has been lost to another process.
func TestAPermitWritesUnderItsOwnSlot(t *testing.T) {
	inVirtualTime(t, func(b *bed) {
		s := b.process().semaphore("s", 3)
		alone, err := s.Acquire(b.Context())
		require.NoError(t, err)
		require.ErrorIs(t, Do(b.Context(), s, func(outer context.Context) error {
			return Do(outer, s, func(inner context.Context) error {
				permits := []*Permit{alone, s.Permit(outer), s.Permit(inner)}
				for range permits {
					for i, p := range permits {
						for _, ctx := range []context.Context{b.Context(), outer, inner} {
							f := p.FenceIn(ctx).(fence.Fence)
							assert.Equal(t, p.names, f.Names, i)
							assert.EqualValues(t, p.Token(), f.Token, i)
							assert.Equal(t, p.Token() == 0, errors.Is(second(p.Apply(context.WithoutCancel(ctx), nil)), spindle.ErrFenced), i)
						}
					}
					i := slices.IndexFunc(permits, func(p *Permit) bool { return p.Token() != 0 })
					require.NoError(t, permits[i].Release(b.Context()))
				}
				return nil
			})
		}), ErrNotHeld)
	})
}

// In nested calls of Do, each semaphore has its own permit, in whichever order they are nested.
func TestEachSemaphoreHasItsOwnPermit(t *testing.T) {
	inVirtualTime(t, func(b *bed) {
		p := b.process()
		one, two, none := p.semaphore("one", 2), p.semaphore("two", 2), p.semaphore("none", 2)
		for _, order := range [][]*Semaphore{{one, two}, {two, one}} {
			require.NoError(t, Do(b.Context(), order[0], func(ctx context.Context) error {
				return Do(ctx, order[1], func(ctx context.Context) error {
					for _, s := range order {
						assert.Contains(t, s.Permit(ctx).names[0], s.name+"/slot/")
						assert.NotZero(t, s.Permit(ctx).Token())
					}
					for _, other := range []*Semaphore{none, p.semaphore("one", 2)} { // another value holds nothing
						assert.Zero(t, other.Permit(ctx).Token())
					}
					return nil
				})
			}))
		}
	})
}

func TestDoTakesAPermitAndGivesItBack(t *testing.T) {
	inVirtualTime(t, func(b *bed) {
		s, own := b.process().semaphore("s", 1), errors.New("own")
		var done *Permit
		for range 2 { // the second is given the slot that the first had
			assert.ErrorIs(t, Do(b.Context(), s, func(ctx context.Context) error {
				done = s.Permit(ctx)
				assert.NotZero(t, done.Token())
				_, ok, err := b.process().semaphore("s", 1).TryAcquire(b.Context())
				assert.NoError(t, err)
				assert.False(t, ok, "the slot is held")
				return own
			}), own)
			assert.Zero(t, done.Token())
		}
		none := s.Permit(b.Context())
		assert.Zero(t, none.Token())
		assert.ErrorIs(t, none.Release(b.Context()), ErrNotHeld)
		<-none.Lost()
	})
}

func TestErrLostSaysWhy(t *testing.T) {
	inVirtualTime(t, func(b *bed) {
		p := b.process()
		m, s := p.mutex("m"), p.semaphore("s", 1)
		for name, l := range map[string]Locker{"m": m, "s/slot/0000": s} {
			cause := func(lose func(token spindle.Token)) (why error) {
				err := Do(b.Context(), l, func(ctx context.Context) error {
					lose(working(ctx).token())
					<-ctx.Done()
					why = context.Cause(ctx)
					return nil
				})
				assert.ErrorIs(t, err, ErrNotHeld)
				assert.ErrorIs(t, why, ErrLost)
				return why
			}
			assert.ErrorIs(t, cause(func(token spindle.Token) { b.lose(name, token) }), spindle.ErrSuperseded)
			assert.ErrorIs(t, cause(func(spindle.Token) { p.Cut() }), spindle.ErrExpired)
			p.Mend()
		}
		assert.ErrorContains(t, func() (why error) {
			_ = Do(b.Context(), m, func(ctx context.Context) error {
				assert.NoError(t, m.Unlock(b.Context()))
				<-ctx.Done()
				why = context.Cause(ctx)
				return nil
			})
			return why
		}(), "given back")
	})
}

func tokenIn(ctx context.Context, m *Mutex) table.Token { return m.FenceIn(ctx).(fence.Fence).Token }

// Work whose turn has ended does not write under a later turn of the same value.
func TestTheCtxOfDoHasTheTokenOfItsTurn(t *testing.T) {
	inVirtualTime(t, func(b *bed) {
		p := b.process()
		m := p.mutex("m")
		require.ErrorIs(t, Do(b.Context(), m, func(ctx context.Context) error {
			assert.EqualValues(t, m.Token(), tokenIn(ctx, m))
			assert.EqualValues(t, m.Token(), tokenIn(b.Context(), m))
			assert.Zero(t, tokenIn(ctx, p.mutex("m")), "another value holds nothing")
			require.NoError(t, m.Unlock(ctx), "whose end, which this is, does not call it back")
			require.NoError(t, m.Lock(b.Context()), "another goroutine has its turn")
			assert.Zero(t, tokenIn(ctx, m))
			assert.NotZero(t, tokenIn(b.Context(), m))
			return nil
		}), ErrNotHeld)
		require.NoError(t, m.Unlock(b.Context()))
	})
}

// Inside Do, each way to write uses the term of that Do, however deep in other work the call is. Under a later term of the same value, it
// would overwrite what the holder of that term does.
func TestEachWriteInDoIsUnderTheTermOfThatDo(t *testing.T) {
	type writer interface {
		spindle.Holding
		Lock(context.Context) error
		Unlock(context.Context) error
		Apply(context.Context, []*spanner.Mutation, ...spanner.ApplyOption) (time.Time, error)
		ReadWriteTransaction(context.Context, func(context.Context, *spanner.ReadWriteTransaction) error) (time.Time, error)
	}
	writes := map[string]func(context.Context, writer) error{
		"Apply":         func(ctx context.Context, w writer) error { _, err := w.Apply(ctx, nil); return err },
		"a transaction": func(ctx context.Context, w writer) error { _, err := w.ReadWriteTransaction(ctx, nil); return err },
		"Apply of both": func(ctx context.Context, w writer) error {
			_, err := spindle.Apply(ctx, []spindle.Holding{w}, nil)
			return err
		},
		"a fence of both": func(ctx context.Context, w writer) error { _, err := w.FenceIn(ctx).Apply(ctx, nil); return err },
	}
	for depth := range 3 {
		inVirtualTime(t, func(b *bed) {
			p := b.process()
			for _, l := range []Locker{p.mutex("m"), p.set("a", "b")} {
				w := l.(writer)
				may := func(want bool, ctx context.Context) {
					for how, write := range writes {
						assert.Equal(t, want, !errors.Is(write(ctx, w), spindle.ErrFenced), "%s, depth %d", how, depth)
					}
				}
				work := func(ctx context.Context) error {
					on := context.WithoutCancel(ctx)
					may(true, on)
					require.NoError(t, w.Unlock(on))
					may(false, on)
					require.NoError(t, w.Lock(b.Context()))
					may(false, on)
					may(true, b.Context())
					return nil
				}
				for i := range depth {
					inner, other := work, Locker(p.mutex(fmt.Sprint("other ", i)))
					if i == 1 {
						other = p.semaphore("other", 1)
					}
					work = func(ctx context.Context) error { return Do(ctx, other, inner) }
				}
				assert.ErrorIs(t, Do(b.Context(), l, work), ErrNotHeld)
				require.NoError(t, w.Unlock(b.Context()))
			}
		})
	}
}

func TestALossIsWarnedOfWithTheKeysOfTheElector(t *testing.T) {
	inVirtualTime(t, func(b *bed) {
		p := b.process()
		var lines bytes.Buffer
		tell := options.Option(func(c *options.Config) {
			c.Store, c.Process, c.ID = &p.Link, fmt.Sprint("told ", p.id), "me"
			c.Log = slog.New(slog.NewJSONHandler(&lines, nil))
		})
		warned := func(msg, reason string) map[string]any {
			synctest.Wait()
			var line map[string]any
			require.NoError(t, json.Unmarshal(lines.Bytes(), &line), "one line: %s", lines.String())
			lines.Reset()
			assert.Equal(t, "WARN", line["level"])
			assert.Equal(t, msg, line["msg"])
			assert.Equal(t, "me", line["id"])
			assert.NotZero(t, line["token"])
			assert.Contains(t, line["reason"], reason)
			return line
		}
		expired := func() map[string]any {
			p.Cut()
			time.Sleep(time.Minute)
			p.Mend()
			return warned("lost", spindle.ErrExpired.Error())
		}
		m, s := New(nil, "locktable", "m", tell), All(nil, "locktable", []string{"a", "b"}, tell)
		require.NoError(t, m.Lock(b.Context()))
		assert.Equal(t, "m", expired()["lock"])
		assert.ErrorIs(t, m.Unlock(b.Context()), ErrNotHeld)
		require.NoError(t, s.Lock(b.Context()))
		assert.Equal(t, []any{"a", "b"}, expired()["locks"])
		_, err := NewSemaphore(nil, "locktable", "s", 1, tell).Acquire(b.Context())
		require.NoError(t, err)
		assert.Equal(t, "s/slot/0000", expired()["lock"])

		require.NoError(t, m.Lock(b.Context()))
		b.lose("m", m.Token())
		assert.ErrorIs(t, m.Unlock(b.Context()), ErrNotHeld)
		warned("lost", spindle.ErrSuperseded.Error())
		require.NoError(t, m.Lock(b.Context()))
		p.Cut()
		ctx, cancel := within1s(b.Context())
		defer cancel()
		assert.Error(t, m.Unlock(ctx))
		warned("left to expire", "")
	})
}

// The ctx of Do ends before the lock is released, however the function ends. What the function has left behind would otherwise work beside
// the next holder.
func TestTheCtxOfDoEndsBeforeTheLockIsReleased(t *testing.T) {
	inVirtualTime(t, func(b *bed) {
		p := b.process()
		var work context.Context
		released := 0
		p.Refuse(func(step string) error {
			if step == "release" || step == "finish" {
				released++
				assert.Error(t, work.Err())
			}
			return nil
		})
		once, keys := p.once("o"), 0
		for _, fails := range []error{nil, errFails, errPanic} {
			does := func(ctx context.Context) error {
				work = ctx
				if fails == errPanic {
					panic(fails)
				}
				return fails
			}
			for kind, do := range map[string]func() error{
				"mutex":     func() error { return Do(b.Context(), p.mutex("m"), does) },
				"set":       func() error { _, err := TryDo(b.Context(), p.set("a", "b"), does); return err },
				"semaphore": func() error { return Do(b.Context(), p.semaphore("s", 1), does) },
				"once": func() error {
					keys++
					_, err := once.Do(b.Context(), KeyOf(fmt.Sprint(keys)), func(ctx context.Context, _ Run) error { return does(ctx) })
					return err
				},
			} {
				released = 0
				assert.Equal(t, fails, recovered(do), kind)
				assert.Equal(t, 1, released, kind)
			}
		}
	})
}

// Each method of a value that was made with a wrong argument says what is wrong, and asks nothing of Spanner.
func TestEachMethodSaysWhichArgumentIsWrong(t *testing.T) {
	inVirtualTime(t, func(b *bed) {
		p, ctx := b.process(), b.Context()
		p.Refuse(func(step string) error { assert.Fail(t, step); return nil })
		m, set, s, o := p.mutex(""), p.set("a", ""), p.semaphore("s", 0), p.once("")
		never := func(context.Context) error { assert.Fail(t, "it ran"); return nil }
		run := func(ctx context.Context, _ Run) error { return never(ctx) }
		for wrong, errs := range map[error][]error{
			m.Err():   {m.Lock(ctx), second(m.TryLock(ctx)), Do(ctx, m, never), second(TryDo(ctx, m, never)), second(m.Apply(ctx, nil)), second(m.ReadWriteTransaction(ctx, nil))},
			set.Err(): {set.Lock(ctx), second(set.TryLock(ctx)), Do(ctx, set, never), second(set.Apply(ctx, nil)), second(set.ReadWriteTransaction(ctx, nil))},
			s.Err(): {second(s.Acquire(ctx)), Do(ctx, s, never), second(TryDo(ctx, s, never)), second(s.Permit(ctx).Apply(ctx, nil)),
				second(s.Permit(ctx).ReadWriteTransaction(ctx, nil))},
			o.Err(): {second(o.Do(ctx, KeyOf("1"), run)), second(o.TryDo(ctx, KeyOf("1"), run))},
		} {
			require.Error(t, wrong)
			for i, err := range errs {
				assert.Equal(t, wrong, err, "%v: %d", wrong, i)
			}
		}
	})
}

func second[T any](_ T, err error) error { return err }

// Lost says of a permit whether it was lost, even later. A Mutex or a Set is used again, so that it says whether it is held.
func TestLostSaysWhetherALockWasLost(t *testing.T) {
	inVirtualTime(t, func(b *bed) {
		p := b.process()
		closed := func(c <-chan struct{}) bool {
			select {
			case <-c:
				return true
			default:
				return false
			}
		}
		for _, lost := range []bool{false, true} {
			m, set := p.mutex("m"), p.set("a", "b")
			permit, err := p.semaphore("s", 1).Acquire(b.Context())
			require.NoError(t, err)
			require.NoError(t, m.Lock(b.Context()))
			require.NoError(t, set.Lock(b.Context()))
			all := []interface{ Lost() <-chan struct{} }{m, set, permit}
			for _, l := range all {
				assert.False(t, closed(l.Lost()))
			}
			before := m.Lost()
			if lost {
				b.lose("m", m.Token())
				b.lose("b", set.Token())
				b.lose("s/slot/0000", permit.Token())
				time.Sleep(5 * time.Second)
				for _, l := range all {
					assert.True(t, closed(l.Lost()))
				}
			}
			for _, giveBack := range []func(context.Context) error{m.Unlock, set.Unlock, permit.Release} {
				assert.Equal(t, lost, errors.Is(giveBack(b.Context()), ErrNotHeld))
			}
			assert.Equal(t, lost, closed(before), "a release closes no channel")
			assert.Equal(t, lost, closed(permit.Lost()))
			assert.True(t, closed(m.Lost()) && closed(set.Lost()), "they are not held")
			time.Sleep(time.Minute)
		}
	})
}

func TestDoReturnsWhatItsFunctionReturns(t *testing.T) {
	inVirtualTime(t, func(b *bed) {
		m := b.process().mutex("m")
		err := Do(b.Context(), m, func(context.Context) error { return context.Canceled })
		assert.True(t, err == context.Canceled, "%T", err)
		assert.NoError(t, Do(b.Context(), m, func(context.Context) error { return nil }))
	})
}

// A release that Spanner does not answer takes as long as its ctx allows, but inside a Do of the same value at most ten seconds, and three
// seconds if ctx had ended before. Then the lock is left to expire: a program that stops is not kept waiting.
func TestHowLongAReleaseTakesThatIsNotAnswered(t *testing.T) {
	const alone, inOther, inOwn = 0, 1, 2
	canceled := func(ctx context.Context, in time.Duration) context.Context {
		ctx, cancel := context.WithCancel(ctx)
		time.AfterFunc(in, cancel)
		synctest.Wait()
		return ctx
	}
	limited := func(ctx context.Context, in time.Duration) context.Context {
		ctx, cancel := context.WithTimeout(ctx, in)
		context.AfterFunc(ctx, cancel)
		return ctx
	}
	for name, c := range map[string]struct {
		ends  func(context.Context, time.Duration) context.Context
		in    time.Duration
		takes [3]time.Duration // in seconds
	}{
		"canceled before":      {canceled, 0, [3]time.Duration{3, 3, 10}},
		"canceled meanwhile":   {canceled, time.Second, [3]time.Duration{1, 1, 10}},
		"canceled late":        {canceled, 20 * time.Second, [3]time.Duration{20, 20, 10}},
		"past a deadline":      {limited, 0, [3]time.Duration{3, 3, 3}},
		"with a deadline":      {limited, time.Second, [3]time.Duration{1, 1, 1}},
		"with a late deadline": {limited, 20 * time.Second, [3]time.Duration{20, 20, 10}},
	} {
		for kind := range 3 {
			inVirtualTime(t, func(b *bed) {
				p := b.process()
				opts := p.options([]Option{spindle.WithLease(time.Minute)})
				m, set, s := New(nil, "locktable", "m", opts...), All(nil, "locktable", []string{"a", "b"}, opts...), NewSemaphore(nil, "locktable", "s", 1, opts...)
				l := []Locker{m, set, s}[kind]
				release := func(ctx context.Context, giveBack func(context.Context) error, where int) {
					p.Cut()
					ctx, began := c.ends(ctx, c.in), time.Now()
					assert.ErrorContains(t, giveBack(ctx), "left to expire", name)
					assert.Equal(t, c.takes[where]*time.Second, time.Since(began), "%s, kind %d, where %d", name, kind, where)
				}
				again := func() { p.Mend(); time.Sleep(time.Hour) }
				take := func() (giveBack func(context.Context) error) {
					if kind == 2 {
						permit, err := s.Acquire(b.Context())
						require.NoError(t, err)
						return permit.Release
					}
					require.NoError(t, l.(locking).Lock(b.Context()))
					return l.(locking).Unlock
				}
				release(b.Context(), take(), alone)
				again()
				_ = Do(b.Context(), New(nil, "locktable", "other", opts...), func(ctx context.Context) error { release(ctx, take(), inOther); return nil })
				again()
				assert.ErrorIs(t, Do(b.Context(), l, func(ctx context.Context) error {
					giveBack := func(ctx context.Context) error { return s.Permit(ctx).Release(ctx) }
					if kind < 2 {
						giveBack = l.(locking).Unlock
					}
					release(ctx, giveBack, inOwn)
					assert.Zero(t, s.Permit(ctx).Token())
					assert.Zero(t, s.Permit(ctx).Left(), "it is given up, though its lease still runs")
					return nil
				}), ErrNotHeld)
				again()
				ended := time.Time{}
				assert.ErrorContains(t, Do(b.Context(), l, func(context.Context) error { p.Cut(); ended = time.Now(); return nil }), "left to expire")
				assert.Equal(t, 10*time.Second, time.Since(ended), "Do's own release")
			})
		}
	}
}

// Spanner accepts several spellings of a table's name, which all mean the same table.
func TestWorkKnowsItsTableHoweverItIsSpelled(t *testing.T) {
	inVirtualTime(t, func(b *bed) {
		p := b.process()
		patient, cancel := context.WithTimeout(b.Context(), time.Minute)
		defer cancel()
		require.NoError(t, Do(patient, p.mutex("m"), func(ctx context.Context) error {
			for _, spelled := range []string{"LockTable", "public.locktable"} {
				again := New(nil, spelled, "m", p.options(nil)...)
				assert.ErrorIs(t, again.Lock(ctx), ErrHeld, spelled)
				ok, err := again.TryLock(b.Context())
				assert.NoError(t, err)
				assert.False(t, ok)
				assert.Equal(t, p.mutex("m").contender.queue(), again.contender.queue())
			}
			return nil
		}))
	})
}

// A deferred Unlock has the ctx whose end was the reason to return. Other processes do not have to wait for the lease
// to expire.
func TestALockIsGivenBackThoughCtxHadEndedBefore(t *testing.T) {
	for name, end := range map[string]func(context.Context) context.Context{
		"canceled": func(ctx context.Context) context.Context {
			ctx, cancel := context.WithCancel(ctx)
			cancel()
			return ctx
		},
		"past a deadline": func(ctx context.Context) context.Context {
			ctx, cancel := context.WithTimeout(ctx, 0)
			cancel()
			return ctx
		},
	} {
		t.Run(name, func(t *testing.T) {
			inVirtualTime(t, func(b *bed) {
				p, other := b.process(), b.process()
				m, set, sem := p.mutex("m"), p.set("a", "b"), p.semaphore("s", 1)
				require.NoError(t, m.Lock(b.Context()))
				require.NoError(t, set.Lock(b.Context()))
				permit, err := sem.Acquire(b.Context())
				require.NoError(t, err)
				ended := end(b.Context())
				assert.NoError(t, m.Unlock(ended))
				assert.NoError(t, set.Unlock(ended))
				assert.NoError(t, permit.Release(ended))
				for _, l := range []Locker{other.mutex("m"), other.set("a", "b"), other.semaphore("s", 1)} {
					ran, err := TryDo(b.Context(), l, func(context.Context) error { return nil })
					assert.NoError(t, err)
					assert.True(t, ran)
				}
				_ = Do(b.Context(), m, func(ctx context.Context) error {
					assert.NoError(t, m.Unlock(end(ctx)))
					return nil
				})
				ok, err := other.mutex("m").TryLock(b.Context())
				assert.NoError(t, err)
				assert.True(t, ok)
			})
		})
	}
}

// The caller of Unlock determines by its ctx how long it waits. If ctx has ended already, as in a shutdown, Unlock takes three
// seconds at most. A lock that can't be given back in that time is left to expire.
func TestUnlockGoesOnUntilItsCtxEnds(t *testing.T) {
	for ends, takes := range map[time.Duration]time.Duration{0: 3 * time.Second, time.Second: time.Second, 20 * time.Second: 20 * time.Second} {
		inVirtualTime(t, func(b *bed) {
			p := b.process()
			m := p.mutex("m", spindle.WithLease(time.Minute))
			require.NoError(t, m.Lock(b.Context()))
			p.Cut()
			ctx, cancel := context.WithCancel(b.Context())
			time.AfterFunc(ends, cancel)
			synctest.Wait()
			start := time.Now()
			assert.ErrorContains(t, m.Unlock(ctx), "left to expire")
			assert.Equal(t, takes, time.Since(start))
			require.NoError(t, b.process().mutex("m").Lock(b.Context()))
			assert.Greater(t, time.Since(start), 50*time.Second, "it was held")
		})
	}
	inVirtualTime(t, func(b *bed) {
		p := b.process()
		m := p.mutex("m", spindle.WithLease(time.Minute))
		require.NoError(t, m.Lock(b.Context()))
		p.Cut()
		time.AfterFunc(20*time.Second, p.Mend)
		assert.NoError(t, m.Unlock(b.Context()))
	})
}

// A Do whose function ignores its context says so after one lease, and again each time that the wait has doubled, as an
// elector does.
func TestDoSaysThatItsFunctionDoesNotReturn(t *testing.T) {
	const lease = 10 * time.Second
	for why, stop := range map[string]func(b *bed, cancel func(), m *Mutex){
		"the lock stays held until it returns": func(_ *bed, cancel func(), _ *Mutex) { cancel() },
		"since the lock was lost":              func(b *bed, _ func(), m *Mutex) { b.lose("m", m.Token()); time.Sleep(lease / 3) },
		"since the lock was unlocked":          func(b *bed, _ func(), m *Mutex) { require.NoError(b, m.Unlock(b.Context())) },
	} {
		inVirtualTime(t, func(b *bed) {
			p := b.process()
			ctx, cancel := context.WithCancel(b.Context())
			returns, returned := make(chan struct{}), make(chan error, 1)
			m := p.mutex("m")
			go func() {
				returned <- Do(ctx, m, func(ctx context.Context) error { <-ctx.Done(); <-returns; return nil })
			}()
			synctest.Wait()
			time.Sleep(20 * lease)
			assert.Empty(t, p.log.lines("has not returned"), "it was not told to stop")
			stop(b, cancel, m)
			time.Sleep(9 * lease)
			said := p.log.lines("has not returned")
			if assert.Len(t, said, 4) {
				for i, waited := range []string{"10s", "20s", "40s", "1m20s"} {
					assert.Contains(t, said[i], " waited="+waited+" ")
					assert.Contains(t, said[i], why)
					assert.Contains(t, said[i], "do_test.go:")
				}
			}
			close(returns)
			<-returned
			cancel()
			time.Sleep(20 * lease)
			assert.Len(t, p.log.lines("has not returned"), 4, "it has returned")
		})
	}
}

// A nested Do of one semaphore that would wait for the outer one is refused at once, also if the two give the semaphore
// different sizes.
func TestANestedDoOfAnotherSizeIsRefusedAtOnce(t *testing.T) {
	inVirtualTime(t, func(b *bed) {
		p := b.process()
		nested := func(sizes ...int) (err error) {
			do := func(context.Context) error { return nil }
			for i := len(sizes) - 1; i >= 0; i-- {
				inner, s := do, p.semaphore("s", sizes[i])
				do = func(ctx context.Context) error { return Do(ctx, s, inner) }
			}
			ctx, cancel := context.WithTimeout(b.Context(), time.Minute)
			defer cancel()
			start := time.Now()
			err = do(ctx)
			assert.Less(t, time.Since(start), time.Second, "%v", sizes)
			return err
		}
		assert.ErrorIs(t, nested(1, 5), ErrHeld)
		assert.ErrorIs(t, nested(2, 5, 5), ErrHeld)
		_, _ = nested(5, 1), nested(5, 2, 5) // the outer one may have a slot beyond the smaller size
		assert.NoError(t, nested(2, 5))
		assert.NoError(t, nested(3, 3, 5))
	})
}

// Work that lost its lock must return before its process can have the lock again, however deep in other work the call is: it is
// refused at once, because it would wait for itself.
func TestALostLockIsRefusedAtEveryDepthOfItsWork(t *testing.T) {
	for _, depth := range []int{0, 1, 2, 5} {
		inVirtualTime(t, func(b *bed) {
			p := b.process()
			a := p.mutex("a")
			again := func(ctx context.Context) error {
				assert.ErrorIs(t, p.mutex("a").Lock(ctx), ErrHeld, depth)
				_, err := p.mutex("a").TryLock(ctx)
				assert.ErrorIs(t, err, ErrHeld, depth)
				return nil
			}
			for i := range depth {
				inner := again
				again = func(ctx context.Context) error { return Do(ctx, p.mutex(fmt.Sprint("inner ", i)), inner) }
			}
			assert.ErrorIs(t, Do(b.Context(), a, func(ctx context.Context) error {
				b.lose("a", a.Token())
				<-ctx.Done()
				ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
				defer cancel()
				assert.NoError(t, again(ctx))
				return nil
			}), ErrNotHeld)
		})
	}
}

// A refused write has shown that the lock is lost. From then on, nothing says that it is held.
func TestARefusedWriteEndsTheHoldingAtOnce(t *testing.T) {
	inVirtualTime(t, func(b *bed) {
		p := b.process()
		refused := func(h spindle.Holding, ctx context.Context) {
			_, err := spindle.Apply(ctx, []spindle.Holding{h}, nil)
			require.ErrorIs(t, err, spindle.ErrFenced)
		}
		m := p.mutex("m")
		require.NoError(t, m.Lock(b.Context()))
		b.lose("m", m.Token())
		refused(m, b.Context())
		assert.Zero(t, m.Token())
		<-m.Lost()
		require.ErrorIs(t, m.Unlock(b.Context()), ErrNotHeld)

		s := p.set("x", "y")
		require.NoError(t, s.Lock(b.Context()))
		b.lose("y", s.Token())
		refused(s, b.Context())
		assert.Zero(t, s.Token(), "one of its locks is lost")
		require.ErrorIs(t, s.Unlock(b.Context()), ErrNotHeld)

		one, err := p.semaphore("s", 2).Acquire(b.Context())
		require.NoError(t, err)
		other, err := p.semaphore("s", 2).Acquire(b.Context())
		require.NoError(t, err)
		b.lose(one.names[0], one.Token())
		refused(one, b.Context())
		assert.Zero(t, one.Token())
		<-one.Lost()
		assert.NotZero(t, other.Token())
		require.NoError(t, other.Release(b.Context()))
		require.ErrorIs(t, one.Release(b.Context()), ErrNotHeld)

		err = Do(b.Context(), m, func(ctx context.Context) error {
			b.lose("m", m.Token())
			refused(m, ctx)
			began := time.Now()
			<-ctx.Done()
			assert.Zero(t, time.Since(began))
			assert.ErrorIs(t, context.Cause(ctx), ErrLost)
			return nil
		})
		require.ErrorIs(t, err, ErrNotHeld)
	})
}

// A write under a lock that is not held any more is refused without a read, and ends no later holding.
func TestARefusedWriteEndsNoOtherHolding(t *testing.T) {
	inVirtualTime(t, func(b *bed) {
		p := b.process()
		m, other := p.mutex("m"), p.mutex("other")
		require.NoError(t, m.Lock(b.Context()))
		old := m.FenceIn(b.Context())
		require.NoError(t, m.Unlock(b.Context()))
		_, err := m.Apply(b.Context(), nil)
		require.ErrorIs(t, err, spindle.ErrFenced)

		require.NoError(t, m.Lock(b.Context()))
		_, err = old.Apply(b.Context(), nil)
		require.ErrorIs(t, err, spindle.ErrFenced)
		assert.NotZero(t, m.Token())

		require.NoError(t, other.Lock(b.Context()))
		b.lose("m", m.Token())
		_, err = spindle.Apply(b.Context(), []spindle.Holding{other, m}, nil)
		require.ErrorIs(t, err, spindle.ErrFenced)
		assert.Zero(t, m.Token())
		assert.NotZero(t, other.Token())
		require.NoError(t, other.Unlock(b.Context()))
	})
}
