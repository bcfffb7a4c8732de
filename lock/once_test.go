package lock

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"

	"github.com/spindle-lock/spindle"
	"github.com/spindle-lock/spindle/internal/elect"
	"github.com/spindle-lock/spindle/internal/table"
	"github.com/spindle-lock/spindle/internal/testkit/fleet"
	"github.com/spindle-lock/spindle/internal/testkit/memstore"
)

const onceLease = 10 * time.Second

func (p *process) once(name string, opts ...Option) *Once {
	return NewOnce(nil, "locktable", name, p.options(append(opts, spindle.WithLease(onceLease)))...)
}

func succeed(context.Context, Run) error { return nil }

// last returns the last key that was done according to the table.
func (b *bed) last(name string) string {
	b.Helper()
	d, _, err := table.Table{Store: b.store}.Done(b.Context(), table.Strong, name)
	require.NoError(b, err)
	return d.Key
}

func TestAKeyIsDoneOnceAndASmallerOneIsNotRunAnyMore(t *testing.T) {
	inVirtualTime(t, func(b *bed) {
		ctx := context.Background()
		ran := func(key string) (bool, error) {
			return b.process().once("nightly").Do(ctx, KeyOf(key), func(_ context.Context, r Run) error {
				assert.Equal(t, key, r.Key())
				assert.NotZero(t, r.Token())
				return nil
			})
		}
		for _, c := range []struct {
			key string
			ran bool
			err error
		}{{"b", true, nil}, {"b", false, nil}, {"a", false, ErrPassed}, {"b0", true, nil}, {"b", false, ErrPassed}} {
			ok, err := ran(c.key)
			assert.Equal(t, c.ran, ok, c.key)
			assert.ErrorIs(t, err, c.err, c.key)
		}
		_, err := b.process().once("nightly").TryDo(ctx, KeyOf("a"), succeed)
		assert.ErrorIs(t, err, ErrPassed)
		assert.ErrorContains(t, err, `the work for key "a" will not run, and may never have run, because a larger key is already done: "b0"`)
		assert.Equal(t, "b0", b.last("nightly"))
	})
}

// Among waiting callers, the one with the larger key may be first. The error of the other one then says so, and not
// that its key is done.
func TestAKeyThatNeverRanIsNotSaidToBeDone(t *testing.T) {
	inVirtualTime(t, func(b *bed) {
		ctx, first, slow := context.Background(), b.process(), b.process()
		var ran []string
		begun, passed := make(chan bool), make(chan error)
		work := func(_ context.Context, r Run) error { ran = append(ran, r.Key()); return nil }
		go func() {
			_, _ = first.once("nightly").Do(ctx, KeyOf("1"), func(ctx context.Context, r Run) error {
				close(begun)
				time.Sleep(time.Minute)
				return work(ctx, r)
			})
		}()
		<-begun
		slow.Refuse(failing(refused(codes.Unavailable), "claim"))
		go func() {
			_, err := slow.once("nightly").Do(ctx, KeyOf("2"), work)
			passed <- err
		}()
		_, err := b.process().once("nightly").Do(ctx, KeyOf("3"), work)
		require.NoError(t, err)
		slow.Refuse(nil)
		assert.ErrorIs(t, <-passed, ErrPassed, "it never ran")
		assert.Equal(t, []string{"1", "3"}, ran)
	})
}

// Until its lease row is deleted, the last holder can still record its key, even after the next holder has looked. This is
// noticed under the lock.
func TestARecordThatLandsWhileTheNextClaimsIsSeen(t *testing.T) {
	for key, says := range map[string]error{"1": nil, "2": ErrPassed} {
		inVirtualTime(t, func(b *bed) {
			next := b.afterRecord("nightly", key)
			ran, err := next.once("nightly").Do(context.Background(), KeyOf("1"), succeed)
			assert.ErrorIs(t, err, says)
			assert.False(t, ran, "done twice")
			ran, err = b.process().once("nightly").TryDo(context.Background(), KeyOf("3"), succeed)
			assert.NoError(t, err)
			assert.True(t, ran, "the lock was given back")
		})
	}
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

// Each waiter runs the work that has failed, but not back to back.
func TestFailingWorkIsNotRunBackToBackByThoseWhoWait(t *testing.T) {
	for name, apart := range map[string]bool{"of many processes": true, "of one": false} {
		t.Run(name, func(t *testing.T) {
			inVirtualTime(t, func(b *bed) {
				type run struct{ began, ended time.Time }
				var runs []run // under the lock
				fail := func(took time.Duration) func(context.Context, Run) error {
					return func(context.Context, Run) error {
						began := time.Now()
						time.Sleep(took)
						runs = append(runs, run{began, time.Now()})
						return errors.New("broken")
					}
				}
				var all sync.WaitGroup
				one := b.process()
				do := func(p *process, work func(context.Context, Run) error) {
					all.Go(func() {
						_, err := p.once("nightly").Do(context.Background(), KeyOf("1"), work)
						assert.ErrorContains(t, err, "broken")
					})
				}
				do(one, fail(10*time.Second))
				time.Sleep(time.Second)
				for range 10 {
					p := one
					if apart {
						p = b.process()
					}
					do(p, fail(time.Millisecond))
				}
				all.Wait()
				require.Len(t, runs, 11, "everybody runs it")
				for i := range runs[1:] {
					assert.GreaterOrEqual(t, runs[i+1].began.Sub(runs[i].ended), onceLease/160, "run %d", i+1)
				}
				start := time.Now()
				ran, err := b.process().once("nightly").Do(context.Background(), KeyOf("1"), succeed)
				require.NoError(t, err)
				assert.True(t, ran)
				assert.Zero(t, time.Since(start), "one that comes after the failure does not wait")
			})
		})
	}
}

func keyAt(k Key, now time.Time) string {
	due, _ := k.schedule.Due(now)
	return due.Key
}

// Machines that call on a schedule have the same key around its time, and are never near the change between two keys.
func TestEveryIsTheSameBeforeAndAfterTheTimeOfTheSchedule(t *testing.T) {
	at := time.Date(2026, 11, 21, 3, 0, 0, 0, time.UTC)
	for _, k := range []Key{Every(time.Second), Every(time.Minute), Every(7*time.Second, 5*time.Second), Every(24*time.Hour, 3*time.Hour)} {
		tick := k.schedule.(table.Tick)
		half := tick.Period/2 - time.Millisecond
		nominal := at.Add(-tick.Offset).Truncate(tick.Period).Add(tick.Offset)
		for _, off := range []time.Duration{-half, -time.Millisecond, 0, time.Millisecond, half} {
			assert.Equal(t, nominal.Format(time.RFC3339), keyAt(k, nominal.Add(off)), "%v by a clock that is off by %v", tick.Period, off)
		}
		assert.Less(t, keyAt(k, nominal), keyAt(k, nominal.Add(tick.Period)))
	}
}

// Machines whose clocks are a second off start a job by a cron line. It runs once each day, at its local time, through
// both changes of clocks.
func TestACronLineRunsOnceADay(t *testing.T) {
	berlin, err := time.LoadLocation("Europe/Berlin")
	require.NoError(t, err)
	year := func(b *bed) {
		for _, day := range []time.Time{time.Date(2000, 3, 24, 2, 30, 0, 0, berlin), time.Date(2000, 10, 27, 2, 30, 0, 0, berlin)} {
			early, late := b.process().once("nightly"), b.process().once("nightly")
			for n := range 5 {
				due, ran := day.AddDate(0, 0, n), 0
				time.Sleep(time.Until(due) - time.Second)
				for _, o := range []*Once{early, late} {
					_, err := o.Do(context.Background(), Cron("30 2 * * *", berlin), func(_ context.Context, r Run) error {
						ran++
						assert.Equal(t, due.Format(time.DateOnly), r.Key()[:len(time.DateOnly)])
						return nil
					})
					require.NoError(t, err)
					time.Sleep(2 * time.Second)
				}
				assert.Equal(t, 1, ran, due)
			}
		}
	}
	fleet.Within(365*24*time.Hour, t, func(t *testing.T) { onBed(t, year) })
}

func TestACronLineThatIsWrongIsRefusedAtOnce(t *testing.T) {
	inVirtualTime(t, func(b *bed) {
		p := b.process()
		p.Cut()
		for says, key := range map[string]Key{"never comes due": Cron("0 0 30 2 *", time.UTC), "five fields": Cron("3:00", time.UTC), "the time zone is nil": Cron("0 3 * * *", nil)} {
			_, err := p.once("nightly").Do(context.Background(), key, succeed)
			assert.ErrorContains(t, err, says)
		}
	})
}

// In a time zone that is half an hour off, the full hours are halfway between two keys of Every(time.Hour).
func TestACallCloseToTheEndOfAPeriodIsWarnedOfOnce(t *testing.T) {
	inVirtualTime(t, func(b *bed) {
		p := b.process()
		hourly, given := p.once("hourly"), p.once("given")
		for h := range 3 {
			time.Sleep(time.Until(time.Now().Truncate(time.Hour).Add(90*time.Minute + time.Duration(h)*time.Millisecond)))
			_, err := hourly.Do(context.Background(), Every(time.Hour), succeed)
			require.NoError(t, err)
			_, err = given.Do(context.Background(), Every(time.Hour, 30*time.Minute), succeed)
			require.NoError(t, err)
			_, err = p.once("polled").Do(context.Background(), Tick(time.Hour, 30*time.Minute), succeed)
			require.NoError(t, err)
		}
		warned := p.log.lines("level=WARN")
		require.Len(t, warned, 1)
		assert.Contains(t, warned[0], "lock=hourly")
		assert.Contains(t, warned[0], "halfway between two scheduled times")
	})
}

// The same for timers that follow another line or zone than Cron.
func TestACallHalfwayBetweenTheTimesOfALineIsWarnedOf(t *testing.T) {
	inVirtualTime(t, func(b *bed) {
		p, once := b.process(), time.Date(2026, 1, 5, 13, 30, 0, 0, time.UTC)
		p.once("hourly").due(Cron("30 * * * *", time.UTC).schedule, once)
		assert.Empty(t, p.log.lines("level=WARN"))
		p.once("hourly").due(Cron("0 * * * *", time.UTC).schedule, once)
		require.Len(t, p.log.lines("level=WARN"), 1)
		assert.Contains(t, p.log.lines("level=WARN")[0], "key=2026-01-05T14:00:00Z")
	})
}

// The same for calls that follow local time, which moves across the end of a period in spring.
func TestAScheduleByLocalTimeIsWarnedOfTheSpringThatItMisses(t *testing.T) {
	berlin, err := time.LoadLocation("Europe/Berlin")
	require.NoError(t, err)
	inVirtualTime(t, func(b *bed) {
		p := b.process()
		winter := time.Date(2026, 1, 5, 13, 30, 0, 0, berlin)
		warn := func(key Key, at time.Time) { p.once("daily").due(key.schedule, at) }
		warn(Every(24*time.Hour), winter)
		warn(Every(24*time.Hour, 12*time.Hour), winter)
		warn(Every(24*time.Hour, 12*time.Hour), winter.AddDate(0, 6, 0))
		warn(Every(24*time.Hour), winter.UTC())
		warn(Every(24*time.Hour), winter.Add(-time.Hour))
		warn(Tick(24*time.Hour, 12*time.Hour+15*time.Minute), winter)
		warned := p.log.lines("level=WARN")
		require.Len(t, warned, 1, "13:30 in Berlin is 12:30 UTC in winter and 11:30 UTC in summer, and the key changes at 12:00 UTC")
		assert.Contains(t, warned[0], "clocks are set forward on 2026-03-29, so the work misses a run; pass the line and the time zone of your timers to lock.Cron")
	})
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
		assert.Equal(t, c.want, keyAt(c.key, now))
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
		assert.ErrorContains(t, err, "wait until its Do has returned", "a Once has no Unlock")
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

// A key that Run.Done has recorded stays done, whatever happens later.
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
					require.NoError(t, b.store.Commit(ctx, "work", table.Record("nightly", table.Token(r.Token()), table.Due{Key: r.Key()}, "p")))
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

func TestWhoCommitsUnderALostRunRecordsNothing(t *testing.T) {
	inVirtualTime(t, func(b *bed) {
		_, err := b.process().once("nightly").Do(context.Background(), KeyOf("1"), func(ctx context.Context, r Run) error {
			b.lose("nightly", r.Token())
			return b.store.Commit(ctx, "work", table.Record("nightly", table.Token(r.Token()), table.Due{Key: r.Key()}, "p"))
		})
		assert.ErrorIs(t, err, table.ErrMissing)
		assert.Empty(t, b.last("nightly"))
	})
}

// The record is read separately twice: at first, and under the lock. The looks read it too.
func TestAReadOfTheRecordThatIsLostHoldsUpNobodyForLong(t *testing.T) {
	for nth := 1; nth <= 2; nth++ {
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

// By the time that the commit is tried again, the next holder has done a later key. It did not take the lock away from
// this one.
func TestARecordWhoseReplyWasLostIsDoneEvenIfALaterOneIsThereByThen(t *testing.T) {
	inVirtualTime(t, func(b *bed) {
		p, begun, next := b.process(), make(chan bool), make(chan error)
		p.Lose(nil, memstore.Once("finish"))
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

// If the lock was taken away and another process has done the work, the token in the record shows this.
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

// A recorded key is done, even if it is unknown whether the lock was given back, and even if the caller has stopped since.
func TestADoneKeyIsNoErrorIfOnlyTheLockIsLeftToExpire(t *testing.T) {
	for name, fault := range map[string]func(*memstore.Link){
		"replies lost": func(l *memstore.Link) { l.Lose(nil, func(step string) bool { return step == "finish" }) },
		"refused":      func(l *memstore.Link) { l.Refuse(failing(refused(codes.Unavailable), "finish")) },
	} {
		t.Run(name, func(t *testing.T) {
			inVirtualTime(t, func(b *bed) {
				p := b.process()
				caller, stop := context.WithCancel(context.Background())
				defer stop()
				ran, err := p.once("nightly").Do(caller, KeyOf("1"), func(ctx context.Context, r Run) error {
					fault(&p.Link)
					defer stop()
					if name == "refused" {
						return b.store.Commit(ctx, "work", table.Record("nightly", table.Token(r.Token()), table.Due{Key: r.Key()}, "p"))
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

// The reply that the key is not done comes when the lease has expired and another process has done the key.
func TestNoWorkBeginsOnALockThatIsKnownToBeLost(t *testing.T) {
	inVirtualTime(t, func(b *bed) {
		p, read := b.process(), 0
		p.After(func(step string) {
			if step == "done" {
				read++
			}
			if read == 2 {
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

// A call in the afternoon does the work that is due in the next night. If the schedule is then changed to hourly, it
// does not wait for that time.
func TestAShorterPeriodTakesEffectAtOnce(t *testing.T) {
	inVirtualTime(t, func(b *bed) {
		ctx, p := context.Background(), b.process()
		day := time.Now().UTC().Truncate(24 * time.Hour).Add(48 * time.Hour)
		at := func(h int) { time.Sleep(time.Until(day.Add(time.Duration(h) * time.Hour))) }
		at(16)
		nightly := Every(24*time.Hour, 3*time.Hour)
		_, err := p.once("report").Do(ctx, nightly, succeed)
		require.NoError(t, err)
		_, err = p.once("report").Do(ctx, Every(time.Hour), succeed)
		assert.ErrorIs(t, err, ErrPassed, "it was run for this hour")
		hourly := p.once("report")
		for h := 17; h < 36; h++ {
			at(h)
			ran, err := hourly.Do(ctx, Every(time.Hour), succeed)
			require.NoError(t, err)
			assert.True(t, ran, "at %d:00", h%24)
		}
		late := p.once("report")
		for range 2 {
			_, err = late.TryDo(ctx, nightly, succeed)
			assert.ErrorIs(t, err, ErrPassed, "the schedule that is no more")
		}
		said := p.log.lines("the period of the schedule has changed")
		require.Len(t, said, 3, "once by each that has found it")
		assert.Contains(t, said[1], "level=INFO")
		assert.Contains(t, said[1], "was=24h0m0s period=1h0m0s")
	})
}

// The record of the last period may have a larger key. That does not prove that this run's key was recorded, followed
// by a later one.
func TestALargerKeyFromBeforeTheRunDoesNotSayThatItWasRecorded(t *testing.T) {
	inVirtualTime(t, func(b *bed) {
		ctx, p := context.Background(), b.process()
		time.Sleep(time.Until(time.Now().Truncate(24 * time.Hour).Add(40 * time.Hour)))
		_, err := p.once("report").Do(ctx, Every(24*time.Hour, 3*time.Hour), succeed)
		require.NoError(t, err)
		time.Sleep(time.Hour)
		ran, err := p.once("report").Do(ctx, Every(time.Hour), func(_ context.Context, r Run) error {
			attempt := 0
			p.Lose(memstore.Once("finish"), nil)
			p.Refuse(func(step string) error {
				if step == "finish" {
					if attempt++; attempt == 2 {
						b.lose("report", r.Token())
					}
				}
				return nil
			})
			return nil
		})
		assert.True(t, ran)
		assert.ErrorIs(t, err, ErrNotHeld)
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

// "again" would come after every possible tick.
func TestTicksAndOtherKeysDoNotGoTogether(t *testing.T) {
	inVirtualTime(t, func(b *bed) {
		o := b.process().once("nightly")
		_, err := o.Do(context.Background(), Tick(time.Hour), succeed)
		require.NoError(t, err)
		_, err = o.Do(context.Background(), KeyOf("again"), succeed)
		assert.ErrorContains(t, err, "use a different lock name")
		ran, err := o.Do(context.Background(), KeyOf(time.Now().Add(time.Hour).UTC().Format(time.RFC3339)), succeed)
		require.NoError(t, err)
		assert.True(t, ran, "a tick by hand")
	})
}

func TestARecordThatCannotBeReadStopsTheWork(t *testing.T) {
	inVirtualTime(t, func(b *bed) {
		require.NoError(t, b.store.Commit(b.Context(), "operator", []table.Write{{Kind: table.Put, Name: "nightly!done"}}))
		_, err := b.process().once("nightly").Do(context.Background(), KeyOf("1"), succeed)
		assert.ErrorContains(t, err, `row "nightly!done"`)
		assert.Equal(t, table.Wrong, table.FaultOf(err))
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

// afterRecord returns a process with a special store: just before the process's claim, the holder of the lock, which is
// cut off, records its key as done.
func (b *bed) afterRecord(name, key string) *process {
	old, runs := b.process(), make(chan Run, 1)
	go func() {
		_, _ = old.once(name).Do(context.Background(), KeyOf(key), func(ctx context.Context, r Run) error {
			old.Cut()
			runs <- r
			<-ctx.Done()
			return ctx.Err()
		})
	}()
	r, next := <-runs, b.process()
	next.Refuse(func(step string) error {
		if step == "claim" {
			_ = b.store.Commit(context.Background(), "work", table.Record(name, table.Token(r.Token()), table.Due{Key: key}, "old"))
		}
		return nil
	})
	return next
}

// In a quiet table, a strong read may have the timestamp of the last commit. The time that a call is for is the present
// nevertheless, however long nothing was written.
func TestTheTickOfAQuietTableIsThePresentOne(t *testing.T) {
	inVirtualTime(t, func(b *bed) {
		b.store.Idle = true
		for _, quiet := range []time.Duration{0, time.Hour, 5 * time.Hour, 24 * time.Hour} {
			time.Sleep(quiet)
			for _, try := range []bool{false, true} {
				o := b.process().once(fmt.Sprint("hourly ", quiet, try))
				do := o.Do
				if try {
					do = o.TryDo
				}
				for range 3 {
					ran, err := do(b.Context(), Every(time.Hour), func(_ context.Context, r Run) error {
						at, err := time.Parse(time.RFC3339, r.Key())
						assert.NoError(t, err)
						assert.LessOrEqual(t, time.Since(at).Abs(), time.Hour, "%s at %s", r.Key(), time.Now())
						return nil
					})
					assert.NoError(t, err)
					assert.True(t, ran, "after %v", quiet)
					time.Sleep(time.Hour)
				}
			}
		}
	})
}

// A caller that waits returns as soon as it can't read any more what is done, and never holds the lock. The same applies to a key that
// can't be compared with the one that was done meanwhile.
func TestARowThatBecomesUnreadableEndsTheWait(t *testing.T) {
	rubbish := []table.Write{{Kind: table.Put, Name: table.DoneRow("nightly"), Set: []table.Cell{{Column: table.ColWriter, Value: "rubbish"}}}}
	tick := time.Now().UTC().Format(time.RFC3339)
	for _, c := range []struct {
		key  Key
		row  []table.Write
		want error
	}{
		{KeyOf("a"), rubbish, table.ErrGarbled},
		{Every(time.Hour), rubbish, table.ErrGarbled},
		{KeyOf("a"), table.Record("nightly", 1, table.Due{Key: tick}, "b")[1:], table.ErrUnordered},
		{Every(time.Hour), table.Record("nightly", 1, table.Due{Key: "a"}, "b")[1:], table.ErrUnordered},
	} {
		endsTheWait(t, c.key, c.row, c.want)
	}
}

func endsTheWait(t *testing.T, key Key, row []table.Write, want error) {
	inVirtualTime(t, func(b *bed) {
		other, waits := b.process().once("nightly"), b.process()
		go func() {
			_, _ = other.Do(b.Context(), key, func(ctx context.Context, _ Run) error { time.Sleep(time.Minute); return nil })
		}()
		time.Sleep(time.Second)
		held := b.store.Rows()["nightly"].Token
		failed := make(chan error)
		go func() {
			_, err := waits.once("nightly").Do(b.Context(), key, succeed)
			failed <- err
		}()
		time.Sleep(10 * time.Second)
		require.NoError(t, b.store.Commit(b.Context(), "by hand", row))
		select {
		case err := <-failed:
			assert.ErrorIs(t, err, want)
		case <-time.After(3 * time.Second):
			t.Error("it waits on")
			<-failed
		}
		assert.Equal(t, held, b.store.Rows()["nightly"].Token)
	})
}

// The last look at what is done, once the lock is held, ends with the caller's ctx. A program that stops during an outage could not stop
// otherwise. The work has not run, and the lock is given back or left to expire.
func TestOnceEndsWithItsCtxWhileItLooksForTheLastTime(t *testing.T) {
	inVirtualTime(t, func(b *bed) {
		p := b.process()
		p.After(func(step string) {
			if step == "confirm" {
				p.Lose(func(step string) bool { return step == "done" }, nil)
			}
		})
		ctx, cancel := within1s(b.Context())
		defer cancel()
		o, start := p.once("nightly", spindle.WithLease(time.Hour)), time.Now()
		time.AfterFunc(30*time.Second, func() { p.After(nil); p.Mend() })
		ran, err := o.Do(ctx, KeyOf("1"), succeedNot)
		assert.False(t, ran)
		assert.ErrorIs(t, err, context.DeadlineExceeded)
		assert.Equal(t, time.Second, time.Since(start))
		time.Sleep(30 * time.Second)
		ran, err = o.Do(b.Context(), KeyOf("1"), succeed)
		assert.NoError(t, err)
		assert.True(t, ran)
		assert.Less(t, time.Since(start), time.Minute, "it was given back")
	})
}

// jumping is a machine's clock. For one reading, its wall clock is set forward by a day, and then set back.
type jumping struct {
	elect.SystemClock
	jumps atomic.Bool
}

func (c *jumping) Now() elect.Instant {
	i := c.SystemClock.Now()
	if c.jumps.CompareAndSwap(true, false) {
		i.Wall += int64(24 * time.Hour)
	}
	return i
}

// Do says that a key is done only if it is. A caller that finds the lock lost before the work begins gets an error, even if the
// release then shows that the lock was held. Otherwise, the caller would skip work that was never done.
func TestOnceSaysThatAKeyIsDoneOnlyIfItIs(t *testing.T) {
	inVirtualTime(t, func(b *bed) {
		p, clock, confirmed := b.process(), &jumping{}, false
		p.clock, p.takes = clock, 10*time.Millisecond
		p.After(func(step string) {
			clock.jumps.Store(confirmed && step == "done") // the next reading decides whether the work begins
			confirmed = confirmed || step == "confirm"
		})
		ran, err := p.once("nightly").Do(b.Context(), KeyOf("1"), succeedNot)
		assert.False(t, ran)
		assert.ErrorIs(t, err, ErrLost)
		assert.Empty(t, b.last("nightly"))
		ran, err = b.process().once("nightly").TryDo(b.Context(), KeyOf("1"), succeed)
		assert.NoError(t, err)
		assert.True(t, ran, "the lock was given back")
	})
}
