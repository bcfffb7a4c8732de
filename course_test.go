package spindle

import (
	"context"
	"errors"
	"net"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/api/option"
	transport "google.golang.org/api/transport/grpc"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/keepalive"

	"github.com/spindle-lock/spindle/internal/elect"
	"github.com/spindle-lock/spindle/internal/options"
	"github.com/spindle-lock/spindle/internal/table"
	"github.com/spindle-lock/spindle/internal/testkit/memstore"
)

// surroundings are the events that can happen around a term, and the actions that it must not take in the current
// state.
type surroundings struct {
	course
	t    *testing.T
	path []happening

	ended, announcing, canceled, held bool
	working, stalls                   bool
	reminders                         int // calls of StepDown and requests that can still come
}

// next returns the events that can happen in the current state.
func (s *surroundings) next() (all []happening) {
	add := func(can bool, what happening) {
		if can {
			all = append(all, what)
		}
	}
	add(!s.ended, runEnded)
	add(s.reminders > 0, asked)
	add(s.reminders > 0 && s.handover && !s.canceled, requested)
	add(s.announcing, announced)
	add(s.working, returned)
	add(s.working && s.held && !s.stalls, stalled)
	add(s.held, termEnded)
	add(s.ended && (s.stage == draining || s.stage == hung || s.stage == lost), timeIsUp)
	return all
}

// happens lets an event happen, and checks the resulting actions.
func (s *surroundings) happens(what happening) {
	s.path = append(slices.Clone(s.path), what)
	switch what {
	case runEnded:
		s.ended = true
	case asked, requested:
		s.reminders--
	case announced:
		s.announcing = false
	case returned:
		s.working = false
	case stalled:
		s.stalls, s.canceled, s.announcing = true, true, false
	case termEnded:
		s.held = false
	}
	for _, a := range s.on(event{what: what}) {
		s.does(a, what)
	}
	s.holds(s.stage == over || s.held || s.stage == lost, "a lock that is lost is known to be")
	s.holds(!s.stalls || s.stage >= hung, "nobody acts once the work has stalled")
	s.holds(s.stage != over || !s.working || what == timeIsUp, "nothing ends before the work has returned, or has had its time")
	s.holds(what != timeIsUp || s.stage == over, "nothing is waited for after its time")
	s.holds(what != returned || s.stage == over || s.stage == leading && s.keepOnReturn, "nothing is waited for after the work has returned")
}

func (s *surroundings) does(a act, what happening) {
	s.holds(a == lose || s.held || a == abandon, "nothing is done with a lock that is lost")
	switch a {
	case announce:
		s.holds(s.working || what != returned, "nothing is announced because work has returned")
		s.holds(!s.announcing && !s.canceled && (what != runEnded || s.handover), "a term is announced once, before its work is canceled")
		s.announcing = true
	case cancelWork:
		s.holds(!s.canceled, "the work is canceled once")
		s.holds(what != returned || s.announcing || !s.keepOnReturn, "a term goes on without its work if it is to")
		s.holds(s.early == (what == returned && !s.announcing), "a term that ends otherwise is not a return")
		s.canceled, s.announcing = true, false
	case release:
		s.holds(s.canceled && !s.working, "the lock is released once the work has returned")
		s.held = false
	case stall:
		s.holds(s.stalls && s.working, "only work that runs can stall")
	case expire:
		s.holds(s.canceled && s.working && s.ended, "the lock is left to expire if work does not return in time")
		s.held = false
	case lose:
		s.holds(!s.held, "a lock that is held is not taken for lost")
		s.announcing = false
	case abandon:
		s.holds(s.working && s.ended, "work is abandoned once it has had its time")
	}
}

func (s *surroundings) holds(ok bool, what string) {
	if !ok {
		s.t.Fatalf("%s, but not after %v (handover %v, keep on return %v)", what, s.path, s.handover, s.keepOnReturn)
	}
}

// explore goes through all orders of events, and returns the number of orders.
func (s surroundings) explore() int {
	if s.stage == over {
		return 1
	}
	all, n := s.next(), 0
	s.holds(len(all) > 0, "something can happen until the term is over")
	for _, what := range all {
		next := s
		next.happens(what)
		n += next.explore()
	}
	return n
}

// Whatever events happen, and in whatever order, the work is canceled once, before the lock is released. The lock is
// released only after the work has returned, and each term comes to an end.
func TestNoOrderOfEventsReleasesALockBeforeItsWorkHasReturned(t *testing.T) {
	n := 0
	for _, l := range []course{{}, {handover: true}, {keepOnReturn: true}, {handover: true, keepOnReturn: true}} {
		for _, working := range []bool{true, false} {
			l.idle = !working
			s := surroundings{course: l, t: t, working: working, held: true, reminders: 3}
			n += s.explore()
		}
	}
	t.Logf("%d orders", n)
	assert.Greater(t, n, 1000)
}

func TestNobodyLeadsOnceTheLeaseHasEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &memstore.Store{}
		holder := elect.Candidate{Table: table.Table{Store: store}, Clock: elect.SystemClock{}, Names: []string{"m"}, ID: "holder", LeaseRecord: table.LeaseRecord{Lease: 10 * time.Second}}
		term := holder.Try(t.Context(), elect.All, time.Second).Term
		require.NotNil(t, term)
		defer term.End(nil)
		l := New(nil, "locktable", "m", options.Option(func(c *options.Config) { c.Store = store }))
		for range 2 { // the first look reads the leader's lease record, and the second one knows it
			leader, err := l.Leader(t.Context())
			require.NoError(t, err)
			assert.Equal(t, "holder", leader.ID)
			time.Sleep(9 * time.Second / 2)
		}
		time.Sleep(time.Second + time.Millisecond)
		_, err := l.Leader(t.Context())
		assert.ErrorIs(t, err, ErrNoLeader, "it has crashed: its row is still there")
	})
}

// The answer to StepDown is preferred to the end of its ctx, if both have come: a caller that is told that the lock is still held
// would wait for it in vain.
func TestAnAnswerThatHasComeIsPreferredToTheEndOfCtx(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	for _, want := range []error{nil, ErrSuperseded} {
		for range 100 {
			answer := make(chan error, 1)
			answer <- want
			assert.Equal(t, want, awaitAnswer(ctx, answer))
		}
	}
	assert.ErrorIs(t, awaitAnswer(ctx, make(chan error, 1)), context.Canceled)
	full := make(chan error, 1)
	full <- errors.New("it failed")
	assert.EqualError(t, awaitAnswer(context.Background(), full), "it failed")
}

// The timing of a connection depends on the lease. A short lease does not cause a ping or an attempt to which a slow
// network cannot respond. With a long lease, a connection waits no longer than without these options, or 20 s.
func TestAConnectionGoesByTheLeaseWithinBounds(t *testing.T) {
	const ms = time.Millisecond
	for _, c := range []struct{ third, ping, answer, first, longest, connect time.Duration }{
		{third: 33 * ms, ping: 10 * time.Second, answer: time.Second, first: 50 * ms, longest: 100 * ms, connect: 5 * time.Second},
		{third: 8 * time.Second, ping: 10 * time.Second, answer: 8 * time.Second, first: 800 * ms, longest: 8 * time.Second, connect: 8 * time.Second},
		{third: time.Minute, ping: time.Minute, answer: 20 * time.Second, first: time.Second, longest: 20 * time.Second, connect: 20 * time.Second},
		{third: 8 * time.Hour, ping: 2 * time.Minute, answer: 20 * time.Second, first: time.Second, longest: 20 * time.Second, connect: 20 * time.Second},
	} {
		assert.Equal(t, keepalive.ClientParameters{Time: c.ping, Timeout: c.answer}, keepaliveWithin(c.third), c.third)
		pauses := backoff.Config{BaseDelay: c.first, Multiplier: 1.6, Jitter: 0.2, MaxDelay: c.longest}
		assert.Equal(t, grpc.ConnectParams{Backoff: pauses, MinConnectTimeout: c.connect}, reconnectWithin(c.third), c.third)
	}
}

// A client that is given no lease goes by the default one. With every lease, the pauses between its attempts to connect grow up to a third
// of that lease, within the documented limits. Shorter pauses would load a server that is starting again, and longer ones cost a term.
func TestAClientWaitsForAThirdOfItsLeaseBetweenAttemptsToConnect(t *testing.T) {
	for lease, longest := range map[time.Duration]time.Duration{0: options.DefaultLease / 3, -time.Second: options.DefaultLease / 3, time.Millisecond: 100 * time.Millisecond, 6 * time.Second: 2 * time.Second, 24 * time.Hour: 20 * time.Second} {
		synctest.Test(t, func(t *testing.T) {
			var attempts []time.Time
			fails := grpc.WithContextDialer(func(context.Context, string) (net.Conn, error) {
				attempts = append(attempts, time.Now())
				return nil, errors.New("connection refused")
			})
			conn, err := transport.DialInsecure(t.Context(), append(ClientOptions(lease), option.WithEndpoint("passthrough:///server"), option.WithGRPCDialOption(fails))...)
			require.NoError(t, err)
			conn.Connect()
			time.Sleep(10 * time.Minute)
			require.NoError(t, conn.Close())
			synctest.Wait()
			require.Greater(t, len(attempts), 20, "%v", lease)
			for i, at := range attempts[len(attempts)-10:] {
				assert.InDelta(t, longest.Seconds(), at.Sub(attempts[len(attempts)-11+i]).Seconds(), longest.Seconds()/4, "%v: with jitter", lease)
			}
		})
	}
}

// A view that is published just after a waiter has looked at the one before it wakes the waiter.
func TestAViewThatComesAfterALookIsNotMissed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := New(nil, "locktable", "m", options.Option(func(c *options.Config) { c.Store = &memstore.Store{} }))
		looks := 0
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		assert.NoError(t, l.wait(ctx, "it was missed", func(*view) bool {
			if looks++; looks < 4 {
				l.show(view{})
			}
			return looks == 4
		}))
	})
}
