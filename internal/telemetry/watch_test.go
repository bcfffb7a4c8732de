package telemetry_test

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

	"cloud.google.com/go/spanner"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"
	grpc "google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/spindle-lock/spindle/internal/elect"
	"github.com/spindle-lock/spindle/internal/table"
	"github.com/spindle-lock/spindle/internal/telemetry"
	"github.com/spindle-lock/spindle/internal/testkit/fleet"
	"github.com/spindle-lock/spindle/internal/testkit/memstore"
)

// answered returns a table whose calls w reports. Each call gets the answer.
func answered(w *telemetry.Watch, answer *error) table.Table {
	return w.Table(table.Table{Store: table.Via(func(context.Context, string, func(context.Context, table.Store) error) error { return *answer })})
}

// wins returns a new term of the locks.
func wins(t *testing.T, names ...string) *elect.Term {
	term := candidate(table.Table{Store: &memstore.Store{}}, names...).Try(t.Context(), elect.All, time.Second).Term
	require.NotNil(t, term)
	return term
}

// A span lasts from the beginning of its call to the answer, even if the Watch creates the span later. The span of an election
// begins with the first poll of its own attempt. If an earlier attempt's poll, or the time between two calls, counted, a trace
// would show a slow election where there was none.
func TestASpanLastsAsLongAsItsCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, began := fleet.NewReports(), time.Now()
		w, store := scope(r, true, "a").Watch(), &memstore.Store{}
		var want []string
		note := func(name string, from time.Time) {
			want = append(want, fmt.Sprintf("%s %v-%v", name, from.Sub(began), time.Since(began)))
		}
		tab := w.Table(table.Table{Store: table.Via(func(ctx context.Context, step string, call func(context.Context, table.Store) error) error {
			from := time.Now()
			time.Sleep(time.Duration(1+len(want)) * time.Second)
			note("spindle."+step, from)
			return call(ctx, store)
		})})
		for range 2 {
			for range 3 { // attempts without a claim
				_, err := tab.Observe(t.Context(), "a")
				require.NoError(t, err)
				w.Tried(elect.Step{})
				time.Sleep(time.Hour)
			}
			want = nil
			r.Forget()
			from := time.Now()
			seen, err := tab.Observe(t.Context(), "a")
			require.NoError(t, err)
			time.Sleep(time.Minute)
			seen, err = tab.Inspect(t.Context(), seen...)
			require.NoError(t, err)
			time.Sleep(time.Minute)
			token, err := tab.Claim(t.Context(), "me", seen...)
			require.NoError(t, err)
			time.Sleep(time.Minute)
			require.NoError(t, tab.Confirm(t.Context(), token, table.LeaseRecord{Lease: lease}, "a"))
			time.Sleep(time.Minute)
			note("spindle.election", from)
			w.Tried(elect.Step{})
			require.NoError(t, tab.Release(t.Context(), token, "a"))
			var got []string
			for _, s := range r.Ended() {
				got = append(got, fmt.Sprintf("%s %v-%v", s.Name(), s.StartTime().Sub(began), s.EndTime().Sub(began)))
			}
			assert.ElementsMatch(t, want, got)
			want = nil
		}
		w.Close()
	})
}

// A call fails if Spanner could not carry it out, or if the table is gone. It then has a code and a span. A call does not fail if
// another candidate was first, if its token is superseded, or if its caller has given up. Otherwise, an alert on failures would
// fire whenever a leader changes, or would stay silent when the table is dropped.
func TestWhichCallsFail(t *testing.T) {
	slow := status.Error(grpc.DeadlineExceeded, "too slow")
	said := func(code grpc.Code, text string) error { return spanner.ToSpannerError(status.Error(code, text)) }
	row := said(grpc.NotFound, "Row [a_1763645616123456] in table locktable is missing")
	for _, c := range []struct {
		err     error
		cause   error // with which the caller has given up
		code    grpc.Code
		outcome string
	}{
		{nil, nil, grpc.OK, "acknowledged"},
		{nil, context.Canceled, grpc.OK, "acknowledged"},
		{said(grpc.PermissionDenied, "no"), nil, grpc.PermissionDenied, "failed"},
		{said(grpc.PermissionDenied, "no"), slow, grpc.PermissionDenied, "failed"},
		{said(grpc.Unavailable, "no"), nil, grpc.Unavailable, "failed"},
		{said(grpc.Unavailable, "no"), context.Canceled, grpc.OK, "canceled"},
		{context.Canceled, context.Canceled, grpc.OK, "canceled"},
		{context.Canceled, context.DeadlineExceeded, grpc.DeadlineExceeded, "failed"},
		{said(grpc.Canceled, "gone"), context.DeadlineExceeded, grpc.DeadlineExceeded, "failed"},
		{said(grpc.Unavailable, "no"), errors.New("the program ends"), grpc.OK, "canceled"},
		{context.Canceled, errors.New("the program ends"), grpc.OK, "canceled"},
		{said(grpc.Canceled, "gone"), elect.ErrStalled, grpc.OK, "canceled"},
		{context.Canceled, fmt.Errorf("no answer yet: %w", context.DeadlineExceeded), grpc.DeadlineExceeded, "failed"},
		{fmt.Errorf("%w: %w", table.ErrMissing, row), nil, grpc.OK, "superseded"},
		{fmt.Errorf("%w: %w", table.ErrMissing, said(grpc.NotFound, "Table not found: locktable")), nil, grpc.NotFound, "failed"},
		{fmt.Errorf("%w: %w", table.ErrMissing, said(grpc.NotFound, "Database not found: d")), nil, grpc.NotFound, "failed"},
		{fmt.Errorf("%w: %w", table.ErrNotFound, said(grpc.NotFound, "Session not found: s")), nil, grpc.NotFound, "failed"},
		{fmt.Errorf("%w: %w", table.ErrAborted, said(grpc.Aborted, "conflict")), nil, grpc.OK, "overtaken"},
		{table.ErrChanged, nil, grpc.OK, "overtaken"},
		{table.ErrSuperseded, nil, grpc.OK, "superseded"},
		{errors.New("no reply"), nil, grpc.Unknown, "failed"},
	} {
		r := fleet.NewReports()
		w := scope(r, true, "a", "b").Watch()
		ctx, cancel := context.WithCancelCause(t.Context())
		if c.cause != nil {
			cancel(c.cause)
		}
		tab := answered(w, &c.err)
		what := fmt.Sprintf("%v, and the caller: %v", c.err, c.cause)
		err := tab.Store.Commit(ctx, "heartbeat", nil)
		assert.Equal(t, c.err, err, what)
		failed := 0
		for name := range r.Metrics(t) {
			if strings.HasPrefix(name, "rpc.failures") {
				failed++
				assert.Contains(t, []string{fmt.Sprintf("rpc.failures{code=%v,lock=a,step=heartbeat}", c.code), fmt.Sprintf("rpc.failures{code=%v,lock=b,step=heartbeat}", c.code)}, name, what)
			} else if strings.HasPrefix(name, "heartbeat.duration_count") {
				assert.Contains(t, name, "outcome="+c.outcome, what)
			}
		}
		assert.Equal(t, c.code != grpc.OK, failed == 2, what)
		assert.Equal(t, c.code != grpc.OK, len(r.Spans()) == 1, what)
		cancel(nil)
		w.Close()
	}
}

// The span of a handover ends with the result of the release, whatever the first calls of the release return. If the term is lost
// before, the span ends at once as failed, and says why. If nothing releases the lock, the span ends as failed when the candidate leads
// again or stops. A span that was left open would take the place of the next handover's span.
func TestEachHandoverEnds(t *testing.T) {
	for _, why := range []telemetry.Reason{telemetry.Stopped, telemetry.SteppedDown, telemetry.Returned, telemetry.Stalled, telemetry.Superseded, telemetry.Expired} {
		for _, then := range []string{"released", "released at last", "released by others", "leads again", "stops"} {
			r := fleet.NewReports()
			w := scope(r, true, "a").Watch()
			var answer error
			tab := answered(w, &answer)
			term := w.Elected(wins(t, "a"))
			term.Leaving(t.Context())
			assert.True(t, term.Over(why))
			lost := why == telemetry.Superseded || why == telemetry.Expired
			ended := func() (is string) {
				for _, s := range r.Ended() {
					if s.Name() == "spindle.handover" {
						is += fmt.Sprintf("%v %s;", s.Status().Code == codes.Error, s.Status().Description)
					}
				}
				return is
			}
			assert.Equal(t, lost, ended() != "", "%s, %s", why, then)
			want := "not released"
			switch then {
			case "released at last":
				for _, answer = range []error{status.Error(grpc.Unavailable, "not now"), table.ErrAborted, table.ErrSuperseded} {
					require.ErrorIs(t, tab.Release(t.Context(), 1, "a"), answer)
					assert.Equal(t, lost, ended() != "", "%s, and the release has failed: %v", why, answer)
				}
				answer = nil
				fallthrough
			case "released":
				require.NoError(t, tab.Release(t.Context(), 1, "a"))
				term.Released(nil)
				want = ""
			case "released by others":
				term.Released(fmt.Errorf("release: %w", table.ErrSuperseded))
				want = string(telemetry.Superseded)
			case "leads again":
				w.Elected(wins(t, "a")).Over(telemetry.Stopped)
				require.NoError(t, tab.Release(t.Context(), 1, "a"))
			case "stops":
			}
			w.Close()
			for _, s := range r.Ended() {
				if s.Name() == "spindle.release" {
					assert.Equal(t, !lost && then != "leads again", s.Parent().IsValid(), "%s, %s: a release is no part of a handover that has ended", why, then)
				}
			}
			if lost {
				want = string(why)
			}
			assert.Equal(t, fmt.Sprintf("%v %s;", want != "", want), ended(), "%s, %s", why, then)
		}
	}
}

// A gap lasts from when the lock was last held until the claim, or until the claimant's poll if the claimant has chosen a token
// older than the poll. A call that finds its locks free reports no gap, because nobody waited. A loop reports every gap. Each lock
// of a set has its own gap.
func TestTheGapIsTheTimeWithoutAHolder(t *testing.T) {
	views := func(at time.Time, last, freeIn [2]time.Duration) []elect.LockView {
		all := make([]elect.LockView, 2)
		for i, name := range []string{"a", "b"} {
			all[i] = elect.LockView{Observation: table.Observation{Name: name, At: at}, FreeIn: freeIn[i]}
			if last[i] != 0 {
				all[i].Last = at.Add(-last[i])
			}
		}
		return all
	}
	busy := [][2]time.Duration{{}, {time.Second, 0}, {0, time.Second}, {-time.Second, -time.Second}}
	for _, loop := range []bool{false, true} {
		for _, before := range busy { // at an attempt before
			for _, last := range [][2]time.Duration{{}, {time.Minute, 0}, {0, time.Hour}, {time.Minute, time.Hour}} {
				for _, polled := range []time.Duration{-time.Second, 0, time.Second} { // after the token
					r := fleet.NewReports()
					w, term := scope(r, loop, "a", "b").Watch(), wins(t, "a", "b")
					at := term.Token().Time().Add(polled)
					w.Tried(elect.Step{Seen: views(at, last, before)})
					w.Tried(elect.Step{})
					w.Tried(elect.Step{Seen: views(at, last, [2]time.Duration{}), Term: term})
					w.Elected(term).Over(telemetry.Stopped)
					metrics := r.Metrics(t)
					for i, name := range []string{"a", "b"} {
						sum, counted := metrics["gap.duration_sum{lock="+name+"}"]
						assert.Equal(t, last[i] != 0 && (loop || before[0] > 0 || before[1] > 0), counted, "loop %v, %v, %v", loop, before, last)
						if counted {
							assert.Equal(t, (last[i] + max(-polled, 0)).Seconds(), sum, "polled %v after the token", polled)
						}
					}
					w.Close()
				}
			}
		}
	}
}

// A call for a slot of a semaphore has waited only if it has seen all slots taken. If another process was first with a free slot,
// the other free slots may have been free for hours, and no call has waited for them.
func TestACallThatSawAFreeSlotHasNotWaited(t *testing.T) {
	for taken := range 4 {
		r := fleet.NewReports()
		w, term := scope(r, false, "s").Watch(), wins(t, "s/slot/0002")
		at, seen := term.Token().Time(), make([]elect.LockView, 3)
		for i := range seen {
			seen[i] = elect.LockView{Observation: table.Observation{Name: fmt.Sprintf("s/slot/%04d", i), At: at}, Last: at.Add(-time.Hour)}
			if i < taken {
				seen[i].FreeIn = time.Second
			}
		}
		w.Tried(elect.Step{Seen: seen, Lost: true})
		w.Tried(elect.Step{Seen: seen, Term: term})
		w.Elected(term).Over(telemetry.Stopped)
		_, counted := r.Metrics(t)["gap.duration_sum{lock=s}"]
		assert.Equal(t, taken == len(seen), counted, "%d slots are taken", taken)
		w.Close()
	}
}

// The counters that alerts use have the value 0 from the beginning of a term. Prometheus would not count the first loss of a process as
// an increase, because the counter would appear with 1.
func TestTheCountersOfAlertsBeginWithTheTerm(t *testing.T) {
	r := fleet.NewReports()
	w := scope(r, true, "a", "b").Watch()
	term := w.Elected(wins(t, "a", "b"))
	counts := func() map[string]float64 {
		counts := r.Metrics(t)
		maps.DeleteFunc(counts, func(name string, _ float64) bool {
			return !strings.HasPrefix(name, "terms{") && !strings.HasPrefix(name, "fenced{")
		})
		return counts
	}
	want := map[string]float64{}
	for _, lock := range []string{"a", "b"} {
		want["fenced{lock="+lock+"}"] = 0
		want["terms{lock="+lock+",reason=expired}"], want["terms{lock="+lock+",reason=superseded}"] = 0, 0
	}
	assert.Equal(t, want, counts())
	term.Over(telemetry.Superseded)
	w.Elected(wins(t, "a", "b"))
	want["terms{lock=a,reason=superseded}"], want["terms{lock=b,reason=superseded}"] = 1, 1
	assert.Equal(t, want, counts())
}

// A trace shows the steps of an election or a handover inside its span. It also shows every call that fails, but no polls or
// heartbeats that succeed. The spans of a single call belong to its caller's trace, and the spans of a loop do not.
func TestWhichStepsHaveSpansAndWhere(t *testing.T) {
	electing, leaving := []string{"confirm", "withdraw", "heartbeat", "valid"}, []string{"announce", "release", "finish"}
	for _, loop := range []bool{false, true} {
		for _, during := range []string{"", "spindle.election", "spindle.handover"} {
			for _, step := range append([]string{"observe", "lease-record", "claim", "outcome", "retract", "asked", "queue"}, append(electing, leaving...)...) {
				for _, answer := range []error{nil, status.Error(grpc.PermissionDenied, "no")} {
					if step == "claim" && during == "spindle.election" {
						continue // an attempt claims once
					}
					r := fleet.NewReports()
					w := scope(r, loop, "a").Watch()
					var said error
					tab := answered(w, &said)
					ctx, outer := r.Tracers.Tracer("caller").Start(t.Context(), "caller")
					switch during {
					case "spindle.election":
						require.NoError(t, tab.Store.Commit(ctx, "claim", nil))
					case "spindle.handover":
						term := w.Elected(wins(t, "a"))
						term.Leaving(ctx)
						t.Cleanup(func() { term.Over(telemetry.Stopped) })
					}
					said = answer
					require.Equal(t, answer, tab.Store.Commit(ctx, step, nil))
					w.Tried(elect.Step{})
					w.Close()
					outer.End()
					names, parent := map[trace.SpanID]string{}, "none"
					for _, s := range r.Ended() {
						names[s.SpanContext().SpanID()] = s.Name()
					}
					for _, s := range r.Ended() {
						if s.Name() == "spindle."+step {
							parent = names[s.Parent().SpanID()]
						}
					}
					want := "none"
					switch {
					case step == "claim", during == "spindle.election" && slices.Contains(electing, step):
						want = "spindle.election"
					case during == "spindle.handover" && slices.Contains(leaving, step):
						want = during
					case answer == nil && !slices.Contains(leaving, step):
					case loop:
						want = ""
					default:
						want = "caller"
					}
					assert.Equal(t, want, parent, "%s during %q, loop %v: %v", step, during, loop, answer)
				}
			}
		}
	}
}

// Each report counts for each of its locks, and says what it is about: the token and the beginning of a refused write, the
// partition whose work has stalled, or the lock in whose queue the candidate waits.
func TestEachReportSaysWhatItIsAbout(t *testing.T) {
	r := fleet.NewReports()
	s := scope(r, false, "a", "b")
	began := time.Now().Add(-time.Minute)
	s.Fenced(t.Context(), 7, began, table.ErrSuperseded)
	require.Len(t, r.Ended(), 1)
	span := r.Ended()[0]
	assert.True(t, began.Equal(span.StartTime()))
	assert.Equal(t, codes.Error, span.Status().Code)
	assert.ElementsMatch(t, []attribute.KeyValue{attribute.String("spindle.table", "locktable"), attribute.StringSlice("spindle.locks", s.Locks), attribute.Int64("spindle.token", 7)}, span.Attributes())
	s.Stalled(telemetry.Partition.String("p"))
	s.Stalled()
	w := s.Watch()
	w.Queued(0, 5)
	w.Queued(1, 7)
	w.Queued(2, 30) // a slot of a semaphore, whose name is the last
	got := r.Metrics(t)
	for name, want := range map[string]float64{"fenced{lock=a}": 1, "fenced{lock=b}": 1, "stalls{lock=a,partition=p}": 1, "stalls{lock=b,partition=p}": 1, "stalls{lock=a}": 1, "stalls{lock=b}": 1,
		"queue.length_sum{lock=a}": 5, "queue.length_sum{lock=b}": 37} {
		assert.Equal(t, want, got[name], name)
	}
	w.Close()
}

// In a loop, a candidate's wait begins anew when its term ends. In a single call, the wait lasts until the call has all its locks.
// The margin of an expired term is zero, whenever the metrics are read.
func TestTheWaitOfALoopBeginsAnewAfterEachTerm(t *testing.T) {
	for _, loop := range []bool{false, true} {
		for _, why := range []telemetry.Reason{telemetry.Stopped, telemetry.SteppedDown, telemetry.Returned, telemetry.Superseded, telemetry.Expired, telemetry.Released, telemetry.Stalled} {
			synctest.Test(t, func(t *testing.T) {
				r := fleet.NewReports()
				w := scope(r, loop, "a", "b").Watch()
				time.Sleep(time.Second)
				term := w.Elected(wins(t, "a", "b"))
				time.Sleep(5 * time.Second)
				assert.Equal(t, 2.0, r.Metrics(t)["held{lock=a}"]+r.Metrics(t)["held{lock=b}"])
				time.Sleep(5 * time.Second)
				term.Over(why)
				time.Sleep(100 * time.Second)
				w.Elected(wins(t, "a", "b")).Over(telemetry.Stopped)
				got := r.Metrics(t)
				for _, lock := range []string{"a", "b"} {
					of := "{lock=" + lock + "}"
					assert.Equal(t, map[bool]float64{false: 1 + 111, true: 1 + 100}[loop], got["wait.duration_sum"+of], "loop %v, %s", loop, why)
					assert.Equal(t, 10.0, got["term.duration_sum"+of])
					margin, noted := got["lease.margin"+of]
					assert.Equal(t, why == telemetry.Expired, noted, "%s", why)
					assert.Zero(t, margin)
				}
				w.Close()
			})
		}
	}
}
