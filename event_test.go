package spindle_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spindle-lock/spindle"
	"github.com/spindle-lock/spindle/internal/table"
	"github.com/spindle-lock/spindle/internal/testkit/fleet"
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
					if e.Kind == spindle.Jeopardy {
						assert.ErrorContains(t, e.Err, `hold: lock "mylock"`, "an observer can serve several locks")
					}
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

// The reply that says that a lock was taken away may be late, but the term ended before the request was sent. If the event said a later
// time, a person who compares the events of two processes would see two leaders.
func TestALossThatIsKnownLateIsNotReportedAsLate(t *testing.T) {
	fleet.InVirtualTime(t, func(b *fleet.Fleet) {
		a := b.Start("a")
		var sent atomic.Pointer[time.Time]
		a.Link.Refuse(func(step string) error {
			if now := time.Now(); step == "heartbeat" {
				sent.CompareAndSwap(nil, &now)
			}
			return nil
		})
		a.Link.After(func(step string) {
			if step == "heartbeat" {
				time.Sleep(fleet.Lease / 6)
			}
		})
		time.Sleep(3 * fleet.Lease)
		b.Operator(table.Write{Kind: table.Delete, Name: fleet.Key(a.Token())})
		sent.Store(nil)
		b.Until(fleet.Lease, func() bool { return !a.Has() })
		synctest.Wait()
		lost := a.Seen.Last()
		assert.Equal(t, spindle.Lost, lost.Kind)
		assert.ErrorIs(t, lost.Err, spindle.ErrSuperseded)
		assert.WithinDuration(t, *sent.Load(), lost.At, 0)
		b.End(a)
	})
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
