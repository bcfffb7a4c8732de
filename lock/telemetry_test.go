package lock

import (
	"context"
	"maps"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"

	"github.com/spindle-lock/spindle"
	"github.com/spindle-lock/spindle/internal/table"
	"github.com/spindle-lock/spindle/internal/testkit/fleet"
)

func TestAMutexIsHeldOrWaitedFor(t *testing.T) {
	inVirtualTime(t, func(b *bed) {
		here, there := fleet.NewReports(), fleet.NewReports()
		p, q := b.process(), b.process()
		m, same, other := p.mutex("m", here.Options()), p.mutex("m", here.Options()), q.mutex("m", there.Options())
		assert.Empty(t, here.Metrics(t), "nobody wants it")
		require.NoError(t, m.Lock(b.Context()))
		began := time.Now()
		time.Sleep(time.Minute)

		locked := make(chan *Mutex)
		waiting := time.Now()
		for _, w := range []*Mutex{same, other} {
			go func() {
				assert.NoError(t, w.Lock(b.Context()))
				locked <- w
			}()
		}
		time.Sleep(time.Second)
		metrics := here.Metrics(t)
		assert.Equal(t, 1.0, metrics["held{lock=m}"], "by one of two that want it")
		assert.Equal(t, float64(m.Token()), metrics["token{lock=m}"])
		assert.Equal(t, map[string]float64{"held{lock=m}": 0, "queue.length_count{lock=m}": 1, "queue.length_sum{lock=m}": 0}, there.Metrics(t), "and nothing else")

		term := time.Since(began)
		require.NoError(t, m.Unlock(b.Context()))
		for range 2 {
			w := <-locked
			r := map[*Mutex]*fleet.Reports{same: here, other: there}[w]
			metrics := r.Metrics(t)
			assert.Equal(t, 1.0, metrics["held{lock=m}"])
			assert.InDelta(t, time.Since(waiting).Seconds(), metrics["wait.duration_sum{lock=m}"], 0.01)
			assert.Less(t, metrics["gap.duration_sum{lock=m}"], 2.0, "a tenth of the lease, while it was waited for")
			if r == here {
				assert.Equal(t, 1.0, metrics["terms{lock=m,reason=released}"])
				assert.InDelta(t, term.Seconds(), metrics["term.duration_sum{lock=m}"], 0.01)
			}
			require.NoError(t, w.Unlock(b.Context()))
		}
		synctest.Wait()
		assert.NotContains(t, here.Metrics(t), "held{lock=m}", "nobody wants it")
		assert.NotContains(t, there.Metrics(t), "held{lock=m}")
	})
}

// Each process that waits reports, once, how many waiters were before it. A process that does not have to wait reports
// nothing.
func TestTheLengthOfTheQueueIsThatWhichAWaiterFinds(t *testing.T) {
	inVirtualTime(t, func(b *bed) {
		var waiting sync.WaitGroup
		var reports []*fleet.Reports
		for i := range 4 {
			r := fleet.NewReports()
			m := b.process().mutex("m", r.Options())
			reports = append(reports, r)
			waiting.Go(func() {
				assert.NoError(t, m.Lock(b.Context()))
				time.Sleep(time.Minute)
				assert.NoError(t, m.Unlock(b.Context()))
			})
			time.Sleep(5 * time.Second)
			if i > 0 {
				assert.Equal(t, 1.0, r.Metrics(t)["queue.length_count{lock=m}"])
				assert.Equal(t, float64(i-1), r.Metrics(t)["queue.length_sum{lock=m}"])
			}
		}
		waiting.Wait()
		assert.NotContains(t, reports[0].Metrics(t), "queue.length_count{lock=m}")
		assert.Equal(t, 1.0, reports[3].Metrics(t)["queue.length_count{lock=m}"])
	})
}

func TestAOnceIsHeldWhileItsWorkRuns(t *testing.T) {
	inVirtualTime(t, func(b *bed) {
		r, p := fleet.NewReports(), b.process()
		ran, err := p.once("nightly", r.Options()).Do(b.Context(), KeyOf("1"), func(context.Context, Run) error {
			assert.Equal(t, 1.0, r.Metrics(t)["held{lock=nightly}"])
			return nil
		})
		require.NoError(t, err)
		require.True(t, ran)
		p.Refuse(failing(refused(codes.PermissionDenied), "done"))
		_, err = p.once("nightly", r.Options()).Do(b.Context(), KeyOf("2"), succeed)
		assert.Error(t, err)
		metrics := r.Metrics(t)
		assert.Equal(t, 1.0, metrics["terms{lock=nightly,reason=released}"])
		assert.Equal(t, 1.0, metrics["rpc.failures{code=PermissionDenied,lock=nightly,step=done}"], "%v", metrics)
		assert.NotContains(t, metrics, "held{lock=nightly}", "nobody wants it")
	})
}

// No process waits for a mutex that lies idle.
func TestAnIdleMutexHasNoGap(t *testing.T) {
	inVirtualTime(t, func(b *bed) {
		r := fleet.NewReports()
		m := b.process().mutex("m", r.Options())
		for range 3 {
			require.NoError(t, m.Lock(b.Context()))
			require.NoError(t, m.Unlock(b.Context()))
			time.Sleep(time.Hour)
		}
		metrics := r.Metrics(t)
		assert.Equal(t, 3.0, metrics["wait.duration_count{lock=m}"])
		assert.NotContains(t, metrics, "gap.duration_count{lock=m}")
	})
}

func TestALockThatIsLostSaysWhy(t *testing.T) {
	for reason, lose := range map[string]func(b *bed, p *process, m *Mutex){
		"superseded": func(b *bed, _ *process, m *Mutex) { b.lose("m", m.Token()) },
		"expired":    func(_ *bed, p *process, _ *Mutex) { p.Cut() },
	} {
		inVirtualTime(t, func(b *bed) {
			r := fleet.NewReports()
			p := b.process()
			m := p.mutex("m", r.Options())
			require.NoError(t, m.Lock(b.Context()))
			lose(b, p, m)
			<-m.Lost()
			time.Sleep(time.Minute)
			p.Mend()
			assert.ErrorIs(t, m.Unlock(b.Context()), ErrNotHeld)
			metrics := r.Metrics(t)
			assert.Equal(t, 1.0, metrics["terms{lock=m,reason="+reason+"}"])
			assert.Equal(t, 1.0, metrics["term.duration_count{lock=m}"], "once")
		})
	}
	inVirtualTime(t, func(b *bed) { // between the last heartbeat and Unlock
		r := fleet.NewReports()
		m := b.process().mutex("m", r.Options())
		require.NoError(t, m.Lock(b.Context()))
		b.lose("m", m.Token())
		assert.ErrorIs(t, m.Unlock(b.Context()), ErrNotHeld)
		assert.Equal(t, 1.0, r.Metrics(t)["terms{lock=m,reason=superseded}"])
	})
}

// The reports and the log have the end of each term once, with its reason, whatever the lock is and however the term ends: with a release, with a release
// that is not answered, while a heartbeat hangs, or with a loss, whatever finds it first. Otherwise, a dashboard would show a holder that does
// not exist.
func TestEachTermEndsInTheReportsOnce(t *testing.T) {
	type hold struct {
		*bed
		*process
		giveBack func(context.Context) error
		lose     func() // an operator takes the lock away
	}
	briefly := func(h hold) {
		ctx, cancel := within1s(h.Context())
		defer cancel()
		assert.ErrorContains(h, h.giveBack(ctx), "left to expire")
	}
	hangs := func(d time.Duration) func(hold) {
		return func(h hold) {
			h.After(func(step string) {
				if step == "heartbeat" {
					time.Sleep(d)
				}
			})
			time.Sleep(4 * time.Second)
			briefly(h)
		}
	}
	ends := map[string]struct {
		reason string
		end    func(hold)
	}{
		"released":                      {"released", func(h hold) { assert.NoError(h, h.giveBack(h.Context())) }},
		"not answered":                  {"released", func(h hold) { h.Cut(); briefly(h) }},
		"a heartbeat hangs for a while": {"released", hangs(3 * time.Second)},
		"a heartbeat hangs for longer than the lease": {"expired", hangs(time.Minute)},
		"superseded, as the release finds": {"superseded", func(h hold) {
			h.lose()
			assert.ErrorIs(h, h.giveBack(h.Context()), ErrNotHeld)
		}},
		"superseded, as a heartbeat finds": {"superseded", func(h hold) {
			h.lose()
			time.Sleep(5 * time.Second)
			assert.ErrorIs(h, h.giveBack(h.Context()), ErrNotHeld)
		}},
		"expired": {"expired", func(h hold) {
			h.Cut()
			time.Sleep(time.Minute)
			assert.ErrorIs(h, h.giveBack(h.Context()), ErrNotHeld)
		}},
	}
	for name, c := range ends {
		for kind, names := range map[string][]string{"one lock": {"a"}, "a set": {"a", "b"}, "a semaphore": {"a"}} {
			inVirtualTime(t, func(b *bed) {
				r, h := fleet.NewReports(), hold{bed: b, process: b.process()}
				if kind == "a semaphore" {
					permit, err := h.semaphore("a", 1, r.Options()).Acquire(b.Context())
					require.NoError(t, err)
					h.giveBack, h.lose = permit.Release, func() { b.lose("a/slot/0000", permit.Token()) }
				} else {
					l := All(nil, "locktable", names, h.options([]Option{r.Options()})...)
					require.NoError(t, l.Lock(b.Context()))
					h.giveBack, h.lose = l.Unlock, func() { b.lose("a", l.Token()) }
				}
				c.end(h)
				time.Sleep(time.Hour)
				once := map[bool]int{true: 1}
				assert.Len(t, h.log.lines(`msg="left to expire"`), once[strings.Contains(name, "not answered") || strings.Contains(name, "hangs")], "%s, %s", kind, name)
				assert.Len(t, h.log.lines("msg=lost"), once[c.reason != "released"], "%s, %s", kind, name)
				metrics := r.Metrics(t)
				for _, lock := range names {
					assert.Equal(t, 1.0, metrics["terms{lock="+lock+",reason="+c.reason+"}"], "%s, %s: %v", kind, name, metrics)
					assert.Equal(t, 1.0, metrics["term.duration_count{lock="+lock+"}"], "%s, %s", kind, name)
					assert.NotContains(t, metrics, "held{lock="+lock+"}", "%s, %s", kind, name)
				}
			})
		}
	}
}

// A report about a set counts for each of its locks. A report about a slot counts for its semaphore.
func TestASetIsItsLocksAndASemaphoreIsOne(t *testing.T) {
	inVirtualTime(t, func(b *bed) {
		r := fleet.NewReports()
		p := b.process()
		set := All(nil, "locktable", []string{"a", "b"}, p.options([]Option{r.Options()})...)
		require.NoError(t, set.Lock(b.Context()))
		s := p.semaphore("s", 3, r.Options())
		first, err := s.Acquire(b.Context())
		require.NoError(t, err)
		second, err := s.Acquire(b.Context())
		require.NoError(t, err)
		metrics := r.Metrics(t)
		for name, want := range map[string]float64{"held{lock=a}": 1, "held{lock=b}": 1, "held{lock=s}": 2,
			"token{lock=a}": float64(set.Token()), "token{lock=b}": float64(set.Token()), "token{lock=s}": float64(max(first.Token(), second.Token()))} {
			assert.Equal(t, want, metrics[name], name)
		}
		require.NoError(t, first.Release(b.Context()))
		require.NoError(t, set.Unlock(b.Context()))
		metrics = r.Metrics(t)
		assert.Equal(t, 1.0, metrics["held{lock=s}"])
		for _, lock := range []string{"a", "b", "s"} {
			assert.Equal(t, 1.0, metrics["terms{lock="+lock+",reason=released}"], lock)
		}
		require.NoError(t, second.Release(b.Context()))
		for name := range r.Metrics(t) {
			assert.False(t, strings.HasPrefix(name, "held"), name)
			assert.NotContains(t, name, "slot")
		}
	})
}

// A write that the fence refuses counts in the reports of its lock, and its error names the lock, whether the write found the loss or the loss
// was known before. Otherwise, nobody would see which work goes on after its lock is lost.
func TestARefusedWriteIsReportedUnderItsLock(t *testing.T) {
	inVirtualTime(t, func(b *bed) {
		p, r, ctx := b.process(), fleet.NewReports(), b.Context()
		m, set := p.mutex("m", r.Options()), All(nil, "locktable", []string{"x", "y"}, p.options([]Option{r.Options()})...)
		require.NoError(t, m.Lock(ctx))
		require.NoError(t, set.Lock(ctx))
		permit, err := p.semaphore("s", 2, r.Options()).Acquire(ctx)
		require.NoError(t, err)
		for what, h := range map[string]*holding{`mutex "m"`: &m.holding, `set ["x" "y"]`: &set.holding, `semaphore "s"`: &permit.holding} {
			b.lose(h.names[len(h.names)-1], h.Token())
			for range 2 {
				_, err := h.Apply(ctx, nil)
				require.ErrorIs(t, err, spindle.ErrFenced)
				assert.Regexp(t, "^lock: fence: "+regexp.QuoteMeta(what)+": ", err.Error())
			}
		}
		metrics := r.Metrics(t)
		for _, lock := range []string{"m", "x", "y", "s"} {
			assert.Equal(t, 2.0, metrics["fenced{lock="+lock+"}"], lock)
		}
	})
}

// The row of a holder says what it is: operators see it, and other processes count on it. It says the same whether the lock was claimed with a
// free row or without.
func TestTheRowOfAHolderSaysWhatItIs(t *testing.T) {
	inVirtualTime(t, func(b *bed) {
		p, ctx := b.process(), b.Context()
		opts := []Option{spindle.WithID("own"), spindle.WithValue("value"), spindle.WithLease(onceLease)}
		says := func(kind table.LockKind, slots int, names ...string) func(context.Context) error {
			return func(context.Context) error {
				rows, err := table.Table{Store: b.store}.LookAtLeases(ctx, time.Now(), names...)
				for _, row := range rows {
					row.LeaseRecord.Nonce = ""
					assert.Equal(t, table.LeaseRecord{Lease: onceLease, ID: "own", Value: "value", Kind: kind, Slots: slots}, *row.LeaseRecord)
				}
				return err
			}
		}
		for _, key := range []string{"1", "2"} {
			require.NoError(t, Do(ctx, p.mutex("m", opts...), says(table.Mutex, 0, "m")))
			require.NoError(t, Do(ctx, All(nil, "locktable", []string{"a", "b"}, p.options(opts)...), says(table.Mutex, 0, "a", "b")))
			require.NoError(t, Do(ctx, p.semaphore("s", 1, opts...), says(table.Semaphore, 1, "s/slot/0000")))
			_, err := p.once("o", opts...).Do(ctx, KeyOf(key), func(ctx context.Context, _ Run) error { return says(table.Mutex, 0, "o")(ctx) })
			require.NoError(t, err)
		}
	})
}

func TestALockIsPartOfTheTraceThatWantsIt(t *testing.T) {
	for last, use := range map[string]func(context.Context, *process, Option) error{
		"release": func(ctx context.Context, p *process, o Option) error {
			return Do(ctx, p.mutex("m", o), func(context.Context) error { return nil })
		},
		"finish": func(ctx context.Context, p *process, o Option) error {
			_, err := p.once("nightly", o).Do(ctx, KeyOf("1"), succeed)
			return err
		},
	} {
		inVirtualTime(t, func(b *bed) {
			r := fleet.NewReports()
			ctx, request := r.Tracers.Tracer("server").Start(context.Background(), "request")
			require.NoError(t, use(ctx, b.process(), r.Options()))
			request.End()
			assert.Equal(t, []string{"request [election elected [observe done claim done confirm done] " + last + " done]"}, r.Spans())
		})
	}
}

// An attempt that was abandoned when ctx ended is given back, and does not count as a term.
func TestAClaimThatIsGivenBackIsNoTerm(t *testing.T) {
	inVirtualTime(t, func(b *bed) {
		r := fleet.NewReports()
		p := b.process()
		p.takes = time.Second
		ctx, cancel := context.WithTimeout(b.Context(), 1500*time.Millisecond)
		defer cancel()
		require.ErrorIs(t, p.mutex("m", r.Options()).Lock(ctx), context.DeadlineExceeded)
		time.Sleep(time.Minute)
		require.True(t, b.store.Rows()["m"].Heartbeat.IsZero(), "it was given back")
		assert.Empty(t, slices.Collect(maps.Keys(r.Metrics(t))))
		assert.Contains(t, r.Spans(), "release done")
	})
}
