package spindle_test

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"cloud.google.com/go/spanner"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spindle-lock/spindle"
	"github.com/spindle-lock/spindle/internal/table"
	"github.com/spindle-lock/spindle/internal/testkit/fleet"
	"github.com/spindle-lock/spindle/internal/testkit/memstore"
)

// Each event has the time at which it happened, and the deadline that follows from the last acknowledged heartbeat. A program that
// stops its work in time for the deadline relies on it.
func TestEachEventSaysWhenItHappenedAndWhenTheTermWillEnd(t *testing.T) {
	for name, fail := range map[string]func(*fleet.Machine){
		"heartbeats are refused": func(a *fleet.Machine) { a.Link.Refuse(fleet.Refusing("heartbeat", errors.New("unavailable"))) },
		"requests are lost":      func(a *fleet.Machine) { a.Link.Cut() },
		"replies are lost":       func(a *fleet.Machine) { a.Link.Lose(nil, func(string) bool { return true }) },
	} {
		t.Run(name, func(t *testing.T) {
			fleet.InVirtualTime(t, func(b *fleet.Fleet) {
				var mu sync.Mutex
				acknowledged, deadline := time.Time{}, time.Time{}
				var kinds []spindle.EventKind
				var token spindle.Token
				observe := spindle.WithObserver(func(e spindle.Event) {
					mu.Lock()
					defer mu.Unlock()
					kinds = append(kinds, e.Kind)
					assert.WithinDuration(t, time.Now(), e.At, 0, "%v", e.Kind)
					switch e.Kind {
					case spindle.Elected, spindle.Jeopardy, spindle.Safe:
						deadline = acknowledged.Add(fleet.Lease - fleet.Lease/100)
						assert.WithinDuration(t, deadline, e.Deadline, 0, "%v", e.Kind)
						if e.Kind == spindle.Elected {
							token = e.Token
						}
					case spindle.Lost:
						if errors.Is(e.Err, spindle.ErrExpired) {
							assert.WithinDuration(t, deadline, e.At, 0)
						}
						fallthrough
					default:
						assert.Zero(t, e.Deadline, "%v", e.Kind)
					}
					assert.Equal(t, token, e.Token, "%v", e.Kind)
				})
				a := b.Machine("a", observe)
				a.Link.After(func(step string) {
					if step == "confirm" || step == "heartbeat" {
						mu.Lock()
						defer mu.Unlock()
						acknowledged = time.Now()
					}
				})
				b.Run(a)
				time.Sleep(3*fleet.Lease + fleet.Lease/7)
				for range 2 {
					fail(a)
					time.Sleep(fleet.Lease * 6 / 10)
					a.Link.Refuse(nil)
					a.Link.Mend()
					time.Sleep(2 * fleet.Lease)
				}
				fail(a)
				b.Until(2*fleet.Lease, func() bool { return !a.Has() })
				a.Link.Refuse(nil)
				a.Link.Mend()
				b.Until(2*fleet.Lease, a.Has)
				b.Operator(table.Write{Kind: table.Delete, Name: fleet.Key(a.Token())})
				b.Until(fleet.Lease, func() bool { return !a.Has() })
				b.End(a)
				mu.Lock()
				defer mu.Unlock()
				j, s := spindle.Jeopardy, spindle.Safe
				assert.Equal(t, []spindle.EventKind{spindle.Elected, j, s, j, s, j, spindle.Lost, spindle.Elected, spindle.Lost}, kinds)
			})
		})
	}
}

// A program that gives up gets nothing written, by whichever way it writes, and is told that nothing was.
func TestNothingIsWrittenForACallerThatHasGivenUp(t *testing.T) {
	fleet.InVirtualTime(t, func(b *fleet.Fleet) {
		terms := make(chan spindle.Term, 1)
		a := b.Start("a", spindle.WithLeader(func(ctx context.Context, term spindle.Term) { terms <- term; <-ctx.Done() }))
		term := <-terms
		why := errors.New("the request was withdrawn")
		over, cancel := context.WithCancelCause(context.Background())
		cancel(why)
		unreached := func(context.Context, *spanner.ReadWriteTransaction) error { t.Error("called"); return nil }
		for name, way := range map[string]func(context.Context) (time.Time, error){
			"Term.Apply":                func(ctx context.Context) (time.Time, error) { return term.Apply(ctx, nil) },
			"Term.ReadWriteTransaction": func(ctx context.Context) (time.Time, error) { return term.ReadWriteTransaction(ctx, unreached) },
			"Lock.Apply":                func(ctx context.Context) (time.Time, error) { return a.Apply(ctx, a.Token(), nil) },
			"Lock.ReadWriteTransaction": func(ctx context.Context) (time.Time, error) { return a.ReadWriteTransaction(ctx, a.Token(), unreached) },
			"Apply":                     func(ctx context.Context) (time.Time, error) { return spindle.Apply(ctx, []spindle.Holding{term}, nil) },
		} {
			at, err := way(over)
			assert.Zero(t, at, name)
			assert.ErrorContains(t, err, "nothing was written", name)
			assert.ErrorIs(t, err, context.Canceled, name)
		}
		b.End(a)
	})
}

// A lock that could not be released is reported once: by a warning if Run continues, and by the value of done if it has ended.
func TestAFailedReleaseIsReportedOnce(t *testing.T) {
	for _, stops := range []bool{false, true} {
		fleet.InVirtualTime(t, func(b *fleet.Fleet) {
			var log fleet.Log
			a := b.Start("a", spindle.WithLogger(slog.New(slog.NewTextHandler(&log, nil))))
			a.Link.Refuse(fleet.Refusing("release", errors.New("away")))
			if stops {
				a.Stop()
				require.ErrorContains(t, <-a.Done, "away")
			} else {
				require.ErrorContains(t, a.StepDown(context.Background()), "away")
				defer b.End(a)
			}
			synctest.Wait()
			says := assert.NotContains
			if !stops {
				says = assert.Contains
			}
			says(t, log.String(), "level=WARN msg=\"stepped down, but the lock could not be released\"")
			assert.NotContains(t, log.String(), "msg=released")
			a.Link.Refuse(nil)
		})
	}
}

// What is said of another leader is all that is known of it, and it is said of the one that it is about.
func TestAnEventAboutAnotherLeaderDescribesIt(t *testing.T) {
	fleet.InVirtualTime(t, func(b *fleet.Fleet) {
		a := b.Start("a", spindle.WithValue("http://a"), spindle.WithLease(2*fleet.Lease))
		c := b.Start("c", spindle.WithPoll(fleet.Lease/10), spindle.WithPriority(0))
		d := b.Start("d", spindle.WithValue("http://d"))
		first := a.Token()
		require.NoError(t, a.StepDown(context.Background()))
		b.Until(fleet.Lease, d.Has)
		time.Sleep(fleet.Lease)
		second := d.Token()
		all := c.Seen.All()
		require.Equal(t, "leader seen, leaving, leader gone, leader seen", c.Seen.Kinds())
		one := spindle.Leader{ID: "a", Value: "http://a", Token: first, Lease: 2 * fleet.Lease}
		leaving := one
		leaving.Leaving = true
		for i, want := range []spindle.Leader{one, leaving, leaving, {ID: "d", Value: "http://d", Token: second, Lease: fleet.Lease}} {
			assert.WithinDuration(t, all[i].At, all[i].Leader.Heartbeat, want.Lease)
			all[i].Leader.Heartbeat = time.Time{}
			assert.Equal(t, want, all[i].Leader, i)
			assert.Equal(t, want.Token, all[i].Token, i)
		}
		b.End(a, c, d)
	})
}

// A request for a handover ends with its ctx, wherever it is, and however long Spanner does not answer.
func TestARequestForAHandoverEndsWithItsCtx(t *testing.T) {
	for name, c := range map[string]struct {
		fail func(*fleet.Machine)
		says string
	}{
		"the first read is lost":    {func(m *fleet.Machine) { m.Link.Cut() }, "the leader is not known"},
		"the first read is refused": {func(m *fleet.Machine) { m.Link.Refuse(func(string) error { return errors.New("away") }) }, "the leader is not known"},
		"the request is lost":       {func(m *fleet.Machine) { m.Link.Lose(func(step string) bool { return step == "ask" }, nil) }, "it is not known whether the request arrived"},
		"the request is refused":    {func(m *fleet.Machine) { m.Link.Refuse(fleet.Refusing("ask", errors.New("away"))) }, "it is not known whether the request arrived"},
		"the leader does not react": {func(*fleet.Machine) {}, "the leader has announced that it is leaving"},
		"later reads are lost": {func(m *fleet.Machine) {
			m.Link.After(func(step string) {
				if step == "ask" {
					m.Link.Cut()
				}
			})
		}, "the leader was asked to hand over, but still leads"},
	} {
		t.Run(name, func(t *testing.T) {
			fleet.Within(time.Hour, t, func(t *testing.T) {
				b := &fleet.Fleet{T: t, Store: &memstore.Store{}}
				hang := make(chan struct{})
				a := b.Start("a", spindle.WithHandover(), spindle.WithLeader(func(context.Context, spindle.Term) { <-hang }))
				operator := b.Machine("operator")
				c.fail(operator)
				why := errors.New("it takes too long")
				ctx, cancel := context.WithTimeoutCause(context.Background(), 3*fleet.Lease+time.Second/7, why)
				defer cancel()
				began := time.Now()
				_, err := operator.RequestHandover(ctx, a.Token())
				assert.Equal(t, 3*fleet.Lease+time.Second/7, time.Since(began))
				assert.ErrorIs(t, err, why)
				assert.ErrorContains(t, err, c.says)
				close(hang)
				b.End(a)
			})
		})
	}
}
