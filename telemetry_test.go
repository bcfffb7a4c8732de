package spindle_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel"
	otelcodes "go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/metric/noop"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/spindle-lock/spindle"
	"github.com/spindle-lock/spindle/internal/table"
	"github.com/spindle-lock/spindle/internal/testkit/fleet"
	"github.com/spindle-lock/spindle/internal/testkit/memstore"
)

const oneTick = float64(fleet.Lease/50+10*time.Millisecond) / 1e9 // in seconds, the time within which followers claim the lock

// A holder that hangs cannot report its loss, but it does not report that it holds the lock either.
func TestTheGaugeIsWhatHasLockSays(t *testing.T) {
	fleet.InVirtualTime(t, func(b *fleet.Fleet) {
		r := fleet.NewReports()
		a := b.Start("a", r.Options())
		hang := make(chan struct{})
		a.Link.After(func(string) { <-hang })
		agree := func() (held bool) {
			metrics := r.Metrics(t)
			held, token := a.HasLock()
			assert.Equal(t, held, metrics["held{lock=mylock}"] == 1)
			assert.Equal(t, float64(token), metrics["token{lock=mylock}"])
			return held
		}
		for range 200 {
			time.Sleep(fleet.Lease / 100)
			agree()
		}
		assert.False(t, a.Has())
		close(hang)
		b.Until(2*fleet.Lease, a.Has)
		assert.True(t, agree())
		a.Clock.Wall.Add(int64(time.Hour)) // the machine was suspended, and no timer has run yet
		assert.False(t, agree())
		b.End(a)
	})
}

// The gauges end with Run, and begin again with the next Run. Two candidates of one process have one gauge, which shows that
// the process holds the lock if either of them does.
func TestNothingIsReadOnceRunHasEnded(t *testing.T) {
	fleet.InVirtualTime(t, func(b *fleet.Fleet) {
		r := fleet.NewReports()
		a := b.Start("a", r.Options())
		for range 3 {
			assert.Contains(t, r.Metrics(t), "held{lock=mylock}")
			b.End(a)
			for name := range r.Metrics(t) {
				for _, gauge := range []string{"held", "token", "lease.margin"} {
					assert.False(t, strings.HasPrefix(name, gauge+"{"), name)
				}
			}
			b.Run(a)
		}
		c := b.Start("c", r.Options())
		assert.Equal(t, 1.0, r.Metrics(t)["held{lock=mylock}"])
		b.End(a)
		assert.Contains(t, r.Metrics(t), "held{lock=mylock}", "c competes still")
		b.End(c)
	})
}

func TestTermsAreCountedByWhyTheyEnded(t *testing.T) {
	var finish chan struct{}
	lead := spindle.WithLeader(func(ctx context.Context, _ spindle.Term) {
		select {
		case <-ctx.Done():
		case <-finish:
		}
	})
	for reason, end := range map[string]func(b *fleet.Fleet, a *fleet.Machine){
		"stopped":      func(b *fleet.Fleet, a *fleet.Machine) { b.End(a) },
		"stepped_down": func(b *fleet.Fleet, a *fleet.Machine) { _ = a.StepDown(context.Background()) },
		"returned":     func(b *fleet.Fleet, _ *fleet.Machine) { close(finish); synctest.Wait() },
		"superseded": func(b *fleet.Fleet, a *fleet.Machine) {
			b.Operator(table.Write{Kind: table.Delete, Name: fleet.Key(a.Token())})
			b.Until(fleet.Lease, func() bool { return !a.Has() })
		},
		"expired": func(b *fleet.Fleet, a *fleet.Machine) {
			a.Link.Cut()
			b.Until(fleet.Lease, func() bool { return !a.Has() })
			time.Sleep(fleet.Lease) // the term ends when its last heartbeat has failed
		},
	} {
		t.Run(reason, func(t *testing.T) {
			fleet.InVirtualTime(t, func(b *fleet.Fleet) {
				r := fleet.NewReports()
				finish = make(chan struct{})
				a := b.Start("a", r.Options(), lead)
				began := time.Now()
				time.Sleep(time.Minute)
				end(b, a)
				metrics := r.Metrics(t)
				for _, other := range []string{"stopped", "stepped_down", "returned", "superseded", "expired", "stalled"} {
					count, counted := metrics["terms{lock=mylock,reason="+other+"}"]
					if assert.Equal(t, other == reason || other == "superseded" || other == "expired", counted, other); other == reason {
						assert.Equal(t, 1.0, count)
					} else {
						assert.Zero(t, count, "%s: alerts need a value before the first loss", other)
					}
				}
				assert.Equal(t, 1.0, metrics["term.duration_count{lock=mylock}"])
				assert.InDelta(t, 60, metrics["term.duration_sum{lock=mylock}"], time.Since(began).Seconds()-59.999)
				if reason != "stopped" {
					b.End(a)
				}
			})
		})
	}
}

func TestHowLongTheLockWasWaitedForAndHadNoHolder(t *testing.T) {
	fleet.InVirtualTime(t, func(b *fleet.Fleet) {
		ra, rc := fleet.NewReports(), fleet.NewReports()
		a := b.Start("a", ra.Options())
		first := ra.Metrics(t)
		assert.Equal(t, 1.0, first["wait.duration_count{lock=mylock}"])
		assert.NotContains(t, first, "gap.duration_count{lock=mylock}", "nobody had it before")

		time.Sleep(time.Minute)
		c := b.Start("c", rc.Options())
		began := time.Now()
		time.Sleep(time.Minute)
		last := b.Store.Rows()[fleet.Name].Heartbeat
		a.Link.Cut() // as if the process was killed
		b.Until(2*fleet.Lease, c.Has)
		taken := rc.Metrics(t)
		assert.InDelta(t, time.Since(began).Seconds(), taken["wait.duration_sum{lock=mylock}"], 0.01)
		assert.Equal(t, c.Token().Time().Sub(last).Seconds(), taken["gap.duration_sum{lock=mylock}"])
		assert.InDelta(t, fleet.Lease.Seconds(), taken["gap.duration_sum{lock=mylock}"], oneTick)

		lost := b.Until(fleet.Lease, func() bool { return ra.Metrics(t)["terms{lock=mylock,reason=expired}"] == 1 })
		since := time.Now()
		assert.Less(t, lost, fleet.Lease)
		a.Link.Mend()
		time.Sleep(time.Minute)
		b.End(c)
		released := b.Store.Rows()[fleet.Name].Token
		b.Until(fleet.Lease, a.Has)
		again := ra.Metrics(t)
		assert.Equal(t, 1.0, again["gap.duration_count{lock=mylock}"])
		assert.Equal(t, a.Token().Time().Sub(released).Seconds(), again["gap.duration_sum{lock=mylock}"])
		assert.Equal(t, 2.0, again["wait.duration_count{lock=mylock}"])
		assert.InDelta(t, time.Since(since).Seconds(), again["wait.duration_sum{lock=mylock}"], 1, "since its own term")
		b.End(a)
	})
}

// A withdrawn claim is not a release, because the lock had no holder before the claim either.
func TestTheGapCountsFromTheLastHolder(t *testing.T) {
	fleet.InVirtualTime(t, func(b *fleet.Fleet) {
		r, late := fleet.NewReports(), fleet.NewReports()
		a := b.Start("a")
		time.Sleep(time.Minute)
		d := b.Start("d", r.Options())
		time.Sleep(fleet.Lease)
		d.Link.Cut()
		c := b.Machine("c")
		c.Link.Refuse(fleet.Refusing("confirm", errors.New("no space")))
		b.Run(c)
		last := b.Store.Rows()[fleet.Name].Heartbeat
		a.Link.Cut()
		b.Until(5*fleet.Lease, func() bool { return b.Store.Rows()[fleet.Name].Heartbeat.IsZero() })
		time.Sleep(time.Second)
		d.Link.Mend()
		b.Until(5*fleet.Lease, d.Has)
		assert.InDelta(t, d.Token().Time().Sub(last).Seconds(), r.Metrics(t)["gap.duration_sum{lock=mylock}"], 4, "but for heartbeats that it did not see")
		b.End(d)
		b.Until(5*fleet.Lease, func() bool { row := b.Store.Rows()[fleet.Name]; return row.Writer == "c" && row.Heartbeat.IsZero() })
		e := b.Start("e", late.Options())
		b.Until(5*fleet.Lease, e.Has)
		assert.NotContains(t, late.Metrics(t), "gap.duration_count{lock=mylock}", "it knows no holder: no figure rather than a wrong one")
		b.End(a, c, e)
	})
}

// The margin is the lowest value since the last collection, whatever the current value is.
func TestTheMarginIsHowCloseItWas(t *testing.T) {
	fleet.InVirtualTime(t, func(b *fleet.Fleet) {
		r := fleet.NewReports()
		a := b.Start("a", r.Options(), spindle.WithHeartbeat(2*time.Second))
		margin := func() float64 { return r.Metrics(t)["lease.margin{lock=mylock}"] }
		time.Sleep(time.Minute)
		assert.InDelta(t, 7.9, margin(), 0.11, "a heartbeat each 2 s, a twentieth more or less, of 9.9 s")

		a.Link.Refuse(fleet.Refusing("heartbeat", errors.New("not now")))
		time.Sleep(6 * time.Second)
		a.Link.Refuse(nil)
		time.Sleep(10 * time.Second)
		require.True(t, a.Has())
		low := margin()
		assert.Less(t, low, 4.0)
		assert.Greater(t, low, 0.0)
		time.Sleep(10 * time.Second)
		assert.InDelta(t, 7.9, margin(), 0.11, "since the last collection")

		a.Link.Cut()
		time.Sleep(2 * fleet.Lease)
		require.False(t, a.Has())
		lost := r.Metrics(t)
		require.Contains(t, lost, "lease.margin{lock=mylock}")
		assert.Equal(t, 0.0, lost["lease.margin{lock=mylock}"], "it was lost")
		assert.NotContains(t, r.Metrics(t), "lease.margin{lock=mylock}", "and is not held")
		b.End(a)
	})
}

func TestHeartbeatsAreTimedByOutcome(t *testing.T) {
	fleet.InVirtualTime(t, func(b *fleet.Fleet) {
		r := fleet.NewReports()
		a := b.Start("a", r.Options())
		time.Sleep(time.Minute)
		n := r.Metrics(t)["heartbeat.duration_count{lock=mylock,outcome=acknowledged}"]
		assert.InDelta(t, 18, n, 1)

		a.Link.Lose(memstore.Once("heartbeat"), nil)
		time.Sleep(fleet.Lease)
		metrics := r.Metrics(t)
		assert.Equal(t, 1.0, metrics["heartbeat.duration_count{lock=mylock,outcome=failed}"])
		assert.InDelta(t, 2.5, metrics["heartbeat.duration_sum{lock=mylock,outcome=failed}"], 0.2, "a quarter of the lease")

		b.Operator(table.Write{Kind: table.Delete, Name: fleet.Key(a.Token())})
		b.Until(fleet.Lease, func() bool { return !a.Has() })
		assert.Equal(t, 1.0, r.Metrics(t)["heartbeat.duration_count{lock=mylock,outcome=superseded}"])
		b.End(a)
	})
}

// A step fails if Spanner does not answer or refuses it. That another candidate was first is an answer, and not a
// failure.
func TestFailuresAreCountedByStepAndCode(t *testing.T) {
	fleet.InVirtualTime(t, func(b *fleet.Fleet) {
		ra, rc := fleet.NewReports(), fleet.NewReports()
		failures := func(r *fleet.Reports) []string {
			return slices.Sorted(func(yield func(string) bool) {
				for name := range maps.Keys(r.Metrics(t)) {
					if strings.HasPrefix(name, "rpc.failures") && !yield(strings.TrimPrefix(name, "rpc.failures")) {
						return
					}
				}
			})
		}
		a := b.Start("a", ra.Options())
		c := b.Machine("c", rc.Options())
		c.Link.After(func(step string) { // a is first each time
			if step == "observe" && !a.Has() {
				b.Until(fleet.Lease, a.Has)
			}
		})
		b.Run(c)
		a.Link.Lose(memstore.Once("heartbeat"), nil)
		time.Sleep(fleet.Lease)
		assert.Equal(t, []string{"{code=DeadlineExceeded,lock=mylock,step=heartbeat}"}, failures(ra))
		assert.Empty(t, failures(rc))

		c.Link.Refuse(fleet.Refusing("observe", status.Error(codes.PermissionDenied, "no")))
		time.Sleep(fleet.Lease)
		assert.Equal(t, []string{"{code=PermissionDenied,lock=mylock,step=observe}"}, failures(rc))
		c.Link.Refuse(nil)
		c.Link.Cut() // steps that the end of Run interrupts have not failed
		time.Sleep(fleet.Lease / 3)
		before := rc.Metrics(t)["rpc.failures{code=DeadlineExceeded,lock=mylock,step=observe}"]
		c.Stop()
		<-c.Done
		after := rc.Metrics(t)
		assert.Equal(t, before, after["rpc.failures{code=DeadlineExceeded,lock=mylock,step=observe}"])
		assert.NotContains(t, after, "rpc.failures{code=Canceled,lock=mylock,step=observe}")
		b.End(a)
	})
}

// One process reports that it holds the lock, and the others report that they are candidates, and nothing else.
func TestAnElectionHasASpanAndWhatRepeatsHasNone(t *testing.T) {
	fleet.InVirtualTime(t, func(b *fleet.Fleet) {
		ra, rc := fleet.NewReports(), fleet.NewReports()
		a := b.Start("a", ra.Options())
		c := b.Start("c", rc.Options())
		time.Sleep(time.Minute)
		require.Equal(t, []string{"election elected [observe done claim done confirm done]"}, ra.Spans(), "and no heartbeats")
		assert.Empty(t, rc.Spans(), "looks")
		leader := ra.Metrics(t)
		assert.Equal(t, 1.0, leader["held{lock=mylock}"])
		assert.Equal(t, float64(a.Token()), leader["token{lock=mylock}"])
		assert.Equal(t, map[string]float64{"held{lock=mylock}": 0}, rc.Metrics(t))
		election := ra.Ended()[len(ra.Ended())-1]
		for _, s := range ra.Ended() {
			if s.Name() == "spindle.election" {
				election = s
			}
		}
		said := fmt.Sprint(election.Attributes())
		for _, s := range []string{"{spindle.table locktable}", "{spindle.lock mylock}", fmt.Sprint(int64(a.Token()))} {
			assert.Contains(t, said, s)
		}

		ra.Forget()
		b.End(a)
		assert.Equal(t, []string{"release done"}, ra.Spans())
		b.Until(fleet.Lease, c.Has)
		assert.Equal(t, []string{"election elected [observe done claim done confirm done]"}, rc.Spans())
		assert.Equal(t, float64(c.Token()), rc.Metrics(t)["token{lock=mylock}"])
		b.End(c)
	})
}

func TestAHandoverIsASpan(t *testing.T) {
	fleet.InVirtualTime(t, func(b *fleet.Fleet) {
		r := fleet.NewReports()
		a := b.Start("a", r.Options(), spindle.WithHandover(), spindle.WithHeartbeat(time.Second))
		c := b.Start("c")
		time.Sleep(time.Minute)
		r.Forget()
		require.NoError(t, a.StepDown(context.Background()))
		require.Equal(t, []string{"handover [announce done release done]"}, r.Spans())
		for _, s := range r.Ended() {
			if s.Name() == "spindle.handover" {
				assert.InDelta(t, fleet.Lease.Seconds()/3, s.EndTime().Sub(s.StartTime()).Seconds(), 0.1)
				assert.Contains(t, fmt.Sprint(s.Attributes()), "{spindle.lock mylock}")
			}
		}
		b.End(a, c)
	})
}

// The span of a handover ends with its lock, even if the work has stalled in the meantime and does not return. Otherwise, nothing would show
// of a handover that failed.
func TestTheSpanOfAHandoverThatFailsEnds(t *testing.T) {
	for _, stops := range []bool{false, true} {
		fleet.InVirtualTime(t, func(b *fleet.Fleet) {
			r := fleet.NewReports()
			l, end := startLingering(b, r.Options(), spindle.WithHandover(), spindle.WithStall(fleet.Lease/3))
			time.Sleep(fleet.Lease)
			l.stalls.Store(true)
			time.Sleep(fleet.Lease / 6)
			_ = stepDown(context.Background(), l.Machine)
			if stops {
				time.Sleep(fleet.Lease / 2)
				l.Stop()
				l.ended = time.Now()
			}
			time.Sleep(4 * fleet.Lease)
			ended := 0
			for _, s := range r.Ended() {
				if s.Name() == "spindle.handover" {
					ended++
					assert.Equal(t, otelcodes.Error, s.Status().Code)
				}
			}
			assert.Equal(t, 1, ended, "stops: %v", stops)
			end()
		})
	}
}

// A trace that waits for the end of Run does not include years of elections.
func TestTheLoopsSpansAreNotPartOfTheTraceThatStartedIt(t *testing.T) {
	fleet.InVirtualTime(t, func(b *fleet.Fleet) {
		r := fleet.NewReports()
		a := b.Machine("a", r.Options())
		ctx, span := r.Tracers.Tracer("main").Start(context.Background(), "main")
		ctx, a.Stop = context.WithCancel(ctx)
		require.NoError(t, a.Lock.Run(ctx, a.Done))
		b.Until(fleet.Lease, a.Has)
		for _, s := range r.Ended() {
			assert.NotEqual(t, span.SpanContext().TraceID(), s.SpanContext().TraceID(), s.Name())
		}
		b.End(a)
	})
}

// Without names, the sum over all locks is the number of locks held.
func TestAViewThatDropsTheNamesOfLocks(t *testing.T) {
	fleet.InVirtualTime(t, func(b *fleet.Fleet) {
		r := fleet.NewReports(withoutNames)
		var held []*fleet.Machine
		for i := range 5 {
			m := b.Named(fmt.Sprint("lock", i), fmt.Sprint(i), r.Options())
			b.Run(m)
			held = append(held, m)
		}
		waiting := b.Named("lock0", "waiting", r.Options())
		b.Run(waiting)
		time.Sleep(time.Minute)
		metrics := r.Metrics(t)
		assert.Equal(t, 5.0, metrics["held{}"])
		assert.Equal(t, 5.0, metrics["wait.duration_count{}"])
		for name := range metrics {
			assert.NotContains(t, name, "lock")
			assert.False(t, strings.HasPrefix(name, "token") || strings.HasPrefix(name, "lease.margin"), name)
		}
		b.End(append(held, waiting)...)
		assert.Equal(t, 5.0, r.Metrics(t)["terms{reason=stopped}"]+r.Metrics(t)["terms{reason=stepped_down}"])
	})
}

func TestTheGlobalProvidersAreTheDefault(t *testing.T) {
	r := fleet.NewReports()
	otel.SetMeterProvider(r.Meters)
	defer otel.SetMeterProvider(noop.NewMeterProvider())
	fleet.InVirtualTime(t, func(b *fleet.Fleet) {
		a := b.Named("global", "a")
		b.Run(a)
		assert.Equal(t, 1.0, r.Metrics(t)["held{lock=global}"])
		b.End(a)
		synctest.Wait()
	})
}
