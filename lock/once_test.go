package lock

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"

	"github.com/spindle-lock/spindle"
	"github.com/spindle-lock/spindle/internal/elect"
	"github.com/spindle-lock/spindle/internal/memtable"
	"github.com/spindle-lock/spindle/internal/table"
)

const onceLease = 10 * time.Second

func (p *process) once(name string, opts ...spindle.Option) *Once {
	return NewOnce(nil, "locktable", name, p.options(append(opts, spindle.WithLease(onceLease)))...)
}

func succeed(context.Context, Run) error { return nil }

// last is what the table says was done last.
func (b *bed) last(name string) string {
	b.Helper()
	d, _, err := table.Table{Store: b.store}.Done(b.Context(), table.Strong, name)
	require.NoError(b, err)
	return d.Key
}

func TestAKeyIsDoneOnceAndSoAreTheKeysBeforeIt(t *testing.T) {
	inVirtualTime(t, func(b *bed) {
		ctx := context.Background()
		ran := func(key string) bool {
			ok, err := b.process().once("nightly").Do(ctx, KeyOf(key), func(_ context.Context, r Run) error {
				assert.Equal(t, key, r.Key())
				assert.NotZero(t, r.Token())
				return nil
			})
			require.NoError(t, err)
			return ok
		}
		assert.True(t, ran("b"))
		assert.False(t, ran("b"), "done twice")
		assert.False(t, ran("a"), "one before it")
		assert.True(t, ran("b0"))
		assert.Equal(t, "b0", b.last("nightly"))
	})
}

func TestDoAsksOnceIfTheKeyIsDone(t *testing.T) {
	inVirtualTime(t, func(b *bed) {
		p := b.process()
		ran, err := p.once("nightly").Do(context.Background(), KeyOf("1"), succeed)
		require.NoError(t, err)
		require.True(t, ran)
		assert.LessOrEqual(t, len(p.sent()), 8)
		late := b.process()
		_, err = late.once("nightly").Do(context.Background(), KeyOf("1"), succeed)
		require.NoError(t, err)
		assert.Len(t, late.sent(), 1)
	})
}

func TestWhatFailsOrPanicsIsNotDone(t *testing.T) {
	inVirtualTime(t, func(b *bed) {
		o, ctx := b.process().once("nightly"), context.Background()
		broken := errors.New("broken")
		ran, err := o.Do(ctx, KeyOf("1"), func(context.Context, Run) error { return broken })
		assert.True(t, ran)
		assert.ErrorIs(t, err, broken)
		assert.PanicsWithValue(t, "oh", func() {
			_, _ = o.Do(ctx, KeyOf("1"), func(context.Context, Run) error { panic("oh") })
		})
		assert.Empty(t, b.last("nightly"))
		start := time.Now()
		ran, err = b.process().once("nightly").TryDo(ctx, KeyOf("1"), succeed)
		assert.NoError(t, err)
		assert.True(t, ran, "the lock was not given back")
		assert.Zero(t, time.Since(start))
	})
}

// Ticks are what Spanner's clock says: two machines whose clocks are ten minutes apart run a job of no length once.
func TestClocksThatDifferMakeNoSecondTick(t *testing.T) {
	inVirtualTime(t, func(b *bed) {
		early, late := &stepping{}, &stepping{}
		early.wall.Store(int64(-5 * time.Minute))
		late.wall.Store(int64(5 * time.Minute))
		var runs []string
		for _, c := range []*stepping{early, late, early} {
			p := b.process()
			p.clock = c
			_, err := p.once("nightly").Do(context.Background(), Tick(time.Minute, 30*time.Second), func(_ context.Context, r Run) error {
				runs = append(runs, r.Key())
				return nil
			})
			require.NoError(t, err)
		}
		assert.Equal(t, []string{time.Now().UTC().Add(-30 * time.Second).Format(time.RFC3339)}, runs)
		time.Sleep(30 * time.Second) // the next begins
		ran, err := b.process().once("nightly").Do(context.Background(), Tick(time.Minute, 30*time.Second), succeed)
		require.NoError(t, err)
		assert.True(t, ran)
	})
}

// Machines that call on a schedule are of one key around its time, and never at the edge of two.
func TestEveryIsTheSameBeforeAndAfterTheTimeOfTheSchedule(t *testing.T) {
	at := time.Date(2026, 11, 21, 3, 0, 0, 0, time.UTC)
	for _, k := range []Key{Every(time.Second), Every(time.Minute), Every(7*time.Second, 5*time.Second), Every(24*time.Hour, 3*time.Hour)} {
		half := k.tick.Period/2 - time.Millisecond
		nominal := at.Add(-k.tick.Offset).Truncate(k.tick.Period).Add(k.tick.Offset)
		for _, off := range []time.Duration{-half, -time.Millisecond, 0, time.Millisecond, half} {
			assert.Equal(t, nominal.Format(time.RFC3339), k.at(nominal.Add(off)), "%v by a clock that is off by %v", k.tick.Period, off)
		}
		assert.Less(t, k.at(nominal), k.at(nominal.Add(k.tick.Period)))
	}
}

func TestTicks(t *testing.T) {
	now := time.Date(2026, 11, 21, 2, 30, 15, 999, time.UTC)
	for _, c := range []struct {
		key  Key
		want string
	}{
		{Tick(time.Second), "2026-11-21T02:30:15Z"},
		{Tick(24 * time.Hour), "2026-11-21T00:00:00Z"},
		{Tick(24*time.Hour, 3*time.Hour), "2026-11-20T03:00:00Z"},
		{Tick(24*time.Hour, -2*time.Hour), "2026-11-20T22:00:00Z"},
		{Tick(7 * 24 * time.Hour), "2026-11-16T00:00:00Z"}, // a Monday
		{Every(24 * time.Hour), "2026-11-21T00:00:00Z"},
		{Every(24*time.Hour, 3*time.Hour), "2026-11-21T03:00:00Z"},
		{Every(24*time.Hour, 23*time.Hour), "2026-11-20T23:00:00Z"},
		{Every(8*time.Hour, time.Hour), "2026-11-21T01:00:00Z"}, // 9:00 and 17:00 are the next
		{Every(time.Minute), "2026-11-21T02:30:00Z"},
		{Every(time.Second), "2026-11-21T02:30:15Z"},
		{KeyOf("v1"), "v1"},
	} {
		require.NoError(t, c.key.err)
		assert.Equal(t, c.want, c.key.at(now))
	}
}

func TestDoWaitsForWhoeverIsDoingIt(t *testing.T) {
	inVirtualTime(t, func(b *bed) {
		ctx := context.Background()
		a, z := b.process().once("nightly", spindle.WithID("a")), b.process().once("nightly")
		begun, finish := make(chan bool), make(chan error)
		work := func(context.Context, Run) error { close(begun); return <-finish }
		go func() { _, _ = a.Do(ctx, KeyOf("1"), work) }()
		<-begun

		_, err := z.TryDo(ctx, KeyOf("1"), succeed)
		assert.ErrorIs(t, err, ErrBusy)
		assert.ErrorContains(t, err, `by "a"`)
		_, err = a.TryDo(ctx, KeyOf("1"), succeed)
		assert.ErrorIs(t, err, ErrBusy, "of the same process")
		short, cancel := within1s(ctx)
		defer cancel()
		_, err = z.Do(short, KeyOf("1"), succeed)
		assert.ErrorIs(t, err, context.DeadlineExceeded)
		assert.ErrorContains(t, err, `by "a"`)

		time.AfterFunc(3*time.Second, func() { finish <- nil })
		ran, err := z.Do(ctx, KeyOf("1"), succeed)
		assert.NoError(t, err)
		assert.False(t, ran, "done by the other while it waited")
	})
}

func TestTheWorkOfAKilledProcessIsDoneByTheNextAfterTheLease(t *testing.T) {
	inVirtualTime(t, func(b *bed) {
		p, begun := b.process(), make(chan bool)
		go func() {
			_, _ = p.once("nightly").Do(context.Background(), KeyOf("1"), func(ctx context.Context, _ Run) error {
				p.Cut()
				close(begun)
				<-ctx.Done()
				return ctx.Err()
			})
		}()
		<-begun
		start := time.Now()
		ran, err := b.process().once("nightly").Do(context.Background(), KeyOf("1"), succeed)
		assert.NoError(t, err)
		assert.True(t, ran)
		assert.InDelta(t, onceLease, time.Since(start), float64(onceLease/4))
	})
}

func TestWorkWhoseLockWasLostIsNotRecorded(t *testing.T) {
	inVirtualTime(t, func(b *bed) {
		ran, err := b.process().once("nightly").Do(context.Background(), KeyOf("1"), func(_ context.Context, r Run) error {
			b.lose("nightly", r.Token())
			return nil
		})
		assert.True(t, ran)
		assert.ErrorIs(t, err, ErrNotHeld)
		assert.Empty(t, b.last("nightly"))
	})
}

// What Run.Done has recorded stays done, whatever comes later.
func TestWhatTheWorkHasRecordedItselfStaysDone(t *testing.T) {
	for name, later := range map[string]func(*bed, *process, Run) error{
		"failed":             func(*bed, *process, Run) error { return errors.New("broken") },
		"lost":               func(b *bed, _ *process, r Run) error { b.lose("nightly", r.Token()); return nil },
		"cut off for leases": func(_ *bed, p *process, _ Run) error { p.Cut(); time.Sleep(3 * onceLease); p.Mend(); return nil },
	} {
		t.Run(name, func(t *testing.T) {
			inVirtualTime(t, func(b *bed) {
				p := b.process()
				ran, err := p.once("nightly").Do(context.Background(), KeyOf("1"), func(ctx context.Context, r Run) error {
					require.NoError(t, b.store.Commit(ctx, "work", table.Record("nightly", r.token, r.Key(), "p")))
					return later(b, p, r)
				})
				assert.True(t, ran)
				assert.Equal(t, name == "failed", err != nil, "%v", err)
				assert.Equal(t, "1", b.last("nightly"))
				ran, err = b.process().once("nightly").Do(context.Background(), KeyOf("1"), succeed)
				assert.NoError(t, err)
				assert.False(t, ran)
			})
		})
	}
}

// The last holder's own commit may land after the next has looked: until its lease row is gone.
func TestARecordThatLandsWhileTheNextClaimsIsSeen(t *testing.T) {
	inVirtualTime(t, func(b *bed) {
		old, runs := b.process(), make(chan Run, 1)
		go func() {
			_, _ = old.once("nightly").Do(context.Background(), KeyOf("1"), func(ctx context.Context, r Run) error {
				old.Cut()
				runs <- r
				<-ctx.Done()
				return ctx.Err()
			})
		}()
		r := <-runs
		next := b.process()
		next.Refuse(func(step string) error {
			if step == "claim" {
				_ = b.store.Commit(context.Background(), "work", table.Record("nightly", r.token, r.Key(), "old"))
			}
			return nil
		})
		ran, err := next.once("nightly").Do(context.Background(), KeyOf("1"), succeed)
		assert.NoError(t, err)
		assert.False(t, ran, "done twice")
	})
}

func TestWhoCommitsUnderALostRunRecordsNothing(t *testing.T) {
	inVirtualTime(t, func(b *bed) {
		_, err := b.process().once("nightly").Do(context.Background(), KeyOf("1"), func(ctx context.Context, r Run) error {
			b.lose("nightly", r.Token())
			return b.store.Commit(ctx, "work", table.Record("nightly", r.token, r.Key(), "p"))
		})
		assert.ErrorIs(t, err, table.ErrMissing)
		assert.Empty(t, b.last("nightly"))
	})
}

// A reply that is lost tells nothing: the record does.
func TestARecordWhoseReplyWasLostIsDone(t *testing.T) {
	inVirtualTime(t, func(b *bed) {
		p := b.process()
		p.Lose(nil, memtable.Once("finish"))
		ran, err := p.once("nightly").Do(context.Background(), KeyOf("1"), succeed)
		assert.NoError(t, err)
		assert.True(t, ran)
	})
}

// The record is read three times: first, before the claim, and under the lock.
func TestAReadOfTheRecordThatIsLostHoldsUpNobodyForLong(t *testing.T) {
	for nth := 1; nth <= 3; nth++ {
		inVirtualTime(t, func(b *bed) {
			p, read := b.process(), 0
			lost := func(step string) bool {
				if step == "done" {
					read++
				}
				return step == "done" && read == nth
			}
			o, start := p.once("nightly"), time.Now()
			p.Lose(lost, nil)
			_, err := o.TryDo(context.Background(), KeyOf("1"), succeed)
			assert.Error(t, err)
			assert.Less(t, time.Since(start), onceLease/2)
			read, start = 0, time.Now()
			ran, err := o.Do(context.Background(), KeyOf("1"), succeed)
			assert.NoError(t, err)
			assert.True(t, ran)
			assert.Less(t, time.Since(start), onceLease/2)
		})
	}
}

// The next has done a later key by the time that it is tried again: that one took the lock from nobody.
func TestARecordWhoseReplyWasLostIsDoneEvenIfALaterOneIsThereByThen(t *testing.T) {
	inVirtualTime(t, func(b *bed) {
		p, begun, next := b.process(), make(chan bool), make(chan error)
		p.Lose(nil, memtable.Once("finish"))
		go func() {
			<-begun
			_, err := b.process().once("nightly").Do(context.Background(), KeyOf("2"), succeed)
			next <- err
		}()
		ran, err := p.once("nightly").Do(context.Background(), KeyOf("1"), func(context.Context, Run) error {
			close(begun)
			time.Sleep(time.Second)
			return nil
		})
		assert.NoError(t, err)
		assert.True(t, ran)
		assert.NoError(t, <-next)
		assert.Equal(t, "2", b.last("nightly"))
	})
}

// A lock that was taken away, whose work another has done, tells by the token of the record.
func TestWorkThatAnotherHasDoneMeanwhileIsAnError(t *testing.T) {
	for _, key := range []string{"1", "2"} {
		inVirtualTime(t, func(b *bed) {
			ran, err := b.process().once("nightly").Do(context.Background(), KeyOf("1"), func(_ context.Context, r Run) error {
				b.lose("nightly", r.Token())
				_, err := b.process().once("nightly").Do(context.Background(), KeyOf(key), succeed)
				return err
			})
			assert.True(t, ran)
			assert.ErrorIs(t, err, ErrNotHeld)
		})
	}
}

// What is recorded is done, even if nobody can say that the lock was given back.
func TestADoneKeyIsNoErrorIfOnlyTheLockIsLeftToExpire(t *testing.T) {
	for name, fault := range map[string]func(*memtable.Link){
		"replies lost": func(l *memtable.Link) { l.Lose(nil, func(step string) bool { return step == "finish" }) },
		"refused":      func(l *memtable.Link) { l.Refuse(failing(refused(codes.Unavailable), "finish")) },
	} {
		t.Run(name, func(t *testing.T) {
			inVirtualTime(t, func(b *bed) {
				p := b.process()
				ran, err := p.once("nightly").Do(context.Background(), KeyOf("1"), func(ctx context.Context, r Run) error {
					fault(&p.Link)
					if name == "refused" {
						return b.store.Commit(ctx, "work", table.Record("nightly", r.token, r.Key(), "p"))
					}
					return nil
				})
				assert.NoError(t, err)
				assert.True(t, ran)
				assert.Equal(t, "1", b.last("nightly"))
			})
		})
	}
}

// The answer that nothing is done yet comes when the lease is over, and another has done it.
func TestNoWorkBeginsOnALockThatIsKnownToBeLost(t *testing.T) {
	inVirtualTime(t, func(b *bed) {
		p, read := b.process(), 0
		p.After(func(step string) {
			if step == "done" {
				read++
			}
			if read == 3 {
				p.Cut()
				_, err := b.process().once("nightly").Do(context.Background(), KeyOf("1"), succeed)
				require.NoError(t, err)
			}
		})
		ran, err := p.once("nightly").Do(context.Background(), KeyOf("1"), succeed)
		assert.ErrorIs(t, err, ErrNotHeld)
		assert.False(t, ran, "done twice")
	})
}

func TestOnceRefusesBadInput(t *testing.T) {
	inVirtualTime(t, func(b *bed) {
		o := b.process().once("nightly")
		for what, key := range map[string]Key{
			"no key": {}, "empty": KeyOf(""), "too long": KeyOf(strings.Repeat("x", 1025)), "no UTF-8": KeyOf("\xff"), "a line": KeyOf("a\nb"),
			"no period": Tick(0), "negative": Tick(-time.Hour), "half a second": Tick(500 * time.Millisecond), "offset": Tick(time.Hour, time.Hour),
		} {
			ran, err := o.Do(context.Background(), key, succeed)
			assert.Error(t, err, what)
			assert.False(t, ran, what)
		}
		_, err := b.process().once("nightly!done").Do(context.Background(), KeyOf("1"), succeed)
		assert.ErrorContains(t, err, "must not end in !done")
		_, err = NewOnce(nil, "locktable", "nightly").Do(context.Background(), KeyOf("1"), succeed)
		assert.Error(t, err)
	})
}

// "again" would come after every tick there will ever be.
func TestTicksAndOtherKeysDoNotGoTogether(t *testing.T) {
	inVirtualTime(t, func(b *bed) {
		o := b.process().once("nightly")
		_, err := o.Do(context.Background(), Tick(time.Hour), succeed)
		require.NoError(t, err)
		_, err = o.Do(context.Background(), KeyOf("again"), succeed)
		assert.ErrorContains(t, err, "use another name")
		ran, err := o.Do(context.Background(), KeyOf(time.Now().Add(time.Hour).UTC().Format(time.RFC3339)), succeed)
		require.NoError(t, err)
		assert.True(t, ran, "a tick by hand")
	})
}

// A first key that another records meanwhile is compared as one that was there before.
func TestATickThatWaitsForAnotherKeyIsNotTakenForDone(t *testing.T) {
	inVirtualTime(t, func(b *bed) {
		ctx, begun := context.Background(), make(chan bool)
		go func() {
			_, err := b.process().once("nightly").Do(ctx, KeyOf("again"), func(context.Context, Run) error {
				close(begun)
				time.Sleep(time.Second)
				return nil
			})
			assert.NoError(t, err)
		}()
		<-begun
		ran, err := b.process().once("nightly").Do(ctx, Tick(time.Hour), succeed)
		assert.ErrorContains(t, err, "use another name")
		assert.False(t, ran)
		assert.Equal(t, "again", b.last("nightly"))
	})
}

func TestARecordThatCannotBeReadStopsTheWork(t *testing.T) {
	inVirtualTime(t, func(b *bed) {
		require.NoError(t, b.store.Commit(b.Context(), "operator", []table.Write{{Kind: table.Put, Name: "nightly!done"}}))
		_, err := b.process().once("nightly").Do(context.Background(), KeyOf("1"), succeed)
		assert.ErrorContains(t, err, `row "nightly!done"`)
		assert.True(t, elect.Lasting(err))
	})
}

func TestOnceWithinItselfIsRefused(t *testing.T) {
	inVirtualTime(t, func(b *bed) {
		p := b.process()
		_, err := p.once("nightly").Do(context.Background(), KeyOf("1"), func(ctx context.Context, _ Run) error {
			_, err := p.once("nightly").Do(ctx, KeyOf("2"), succeed)
			return err
		})
		assert.ErrorIs(t, err, ErrHeld)
	})
}

func TestManyWaitersRunAKeyOnce(t *testing.T) {
	inVirtualTime(t, func(b *bed) {
		var all sync.WaitGroup
		var mu sync.Mutex
		runs := 0
		for range 20 {
			p := b.process()
			for range 2 {
				all.Go(func() {
					_, err := p.once("nightly").Do(context.Background(), KeyOf("1"), func(context.Context, Run) error {
						mu.Lock()
						defer mu.Unlock()
						runs++
						time.Sleep(30 * time.Second)
						return nil
					})
					assert.NoError(t, err)
				})
			}
		}
		all.Wait()
		assert.Equal(t, 1, runs)
	})
}
