package notify

import (
	"context"
	"math"
	"net/netip"
	"os/exec"
	"reflect"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	sdk "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/spindle-lock/spindle/internal/elect"
	"github.com/spindle-lock/spindle/internal/table"
)

// Who can read the table can sign messages. None of them may stop a process.
func TestTimesThatNobodySendsAreRefused(t *testing.T) {
	n := New(netip.MustParseAddrPort("10.0.0.1:7700"), elect.SystemClock{}, func([]byte, netip.AddrPort) {})
	holder := New(netip.MustParseAddrPort("10.0.0.2:7700"), elect.SystemClock{}, func([]byte, netip.AddrPort) {})
	own := table.Ticket{Queue: "m", Time: 10, Nonce: "a10"}
	e := n.Listen(site, lease)
	c := holder.Contact(site, table.LeaseKey("m", 1))
	e.Learn(Seen{Ticket: own, Locks: []Lock{{Name: "m", Token: 1, Held: true, Contact: c, Lease: lease}}}, elect.SystemClock{}.Now())
	k := contactOf(c, 0)
	m := message{kind: free, lock: idOf(site, "m"), token: 1, waiter: e.self, after: math.MaxInt64 / 3 * 2, from: holder.own}
	assert.NotPanics(t, func() { n.Receive(m.signed(k.key), holder.own) })
}

func TestNothingIsNotedAfterClose(t *testing.T) {
	inWorld(t, func(w *world) {
		p := w.process()
		p.Close()
		for i := range 1000 {
			p.holds(table.Token(i + 1)).Free(false)
		}
		time.Sleep(time.Hour)
		assert.Empty(t, p.talkers)
	})
}

// The next goroutine of a process takes over the ticket. Its questions are not older than those of the one before.
func TestTheNextWaiterWithATicketIsHeard(t *testing.T) {
	inWorld(t, func(w *world) {
		holder, book, l, seen := pair(w)
		time.Sleep(20 * lease)
		// gone is lost
		w.loses(func(_, _ int, m message) bool { return m.kind == gone })
		l.stop()
		time.Sleep(time.Millisecond * 200)
		w.loses(nil)
		_ = holder
		other := w.processes[1]
		second := other.waits(other.ticket(10), func() Seen { return *seen.Load() })
		time.Sleep(lease)
		assert.LessOrEqual(t, second.during(5*lease), 10)
		book.Free(false)
	})
}

func TestWhoHasGoneDoesNotTakeTheNextOneWithIt(t *testing.T) {
	inWorld(t, func(w *world) {
		_, book, l, seen := pair(w)
		time.Sleep(2 * lease)
		l.stop()
		time.Sleep(time.Millisecond)
		other := w.processes[1]
		second := other.waits(other.ticket(10), func() Seen { return *seen.Load() })
		time.Sleep(50 * time.Millisecond)
		_ = second
		var known int
		w.processes[0].do(func() { known = len(book[0].entries) })
		assert.Equal(t, 1, known, "the waiter is registered")
		book.Free(false)
	})
}

func TestTermsThatAreOverAreSoonForgotten(t *testing.T) {
	inWorld(t, func(w *world) {
		p := w.process()
		for i := range 3600 {
			term := termOf("m")
			term.Token, term.Lease = table.Token(i+1), 24*time.Hour
			p.Hold(term).Free(false)
			time.Sleep(time.Second)
		}
		p.do(func() { assert.Less(t, len(p.talkers[idOf(site, "m")]), 100) })
		time.Sleep(72 * time.Hour)
	})
}

// A question about a term that is over may be sent again by somebody else, who names a victim as its sender.
func TestARepeatedQuestionIsNoWeapon(t *testing.T) {
	inWorld(t, func(w *world) {
		holder := w.process()
		own := table.Ticket{Queue: "m", Time: 10, Nonce: "a10"}
		b := holder.holds(1)
		self, _ := waiterOf(own)
		k := holder.keyOf(site, table.LeaseKey("m", 1))
		q := message{kind: waiting, flags: toHolder, lock: idOf(site, "m"), token: 1, seq: 1, waiter: self, from: netip.MustParseAddrPort("10.0.0.9:7700")}.signed(k)
		holder.Receive(q, netip.MustParseAddrPort("10.0.0.9:7700"))
		b.Free(false)
		time.Sleep(time.Second)
		w.sent(func(message) bool { return true })
		for range 5000 {
			holder.Receive(q, netip.MustParseAddrPort("198.51.100.7:53000")) // the victim
		}
		assert.Less(t, len(w.sent(only(free))), 250)
	})
}

// Two providers with one pipeline: the counts are doubled.
func TestMessagesAreCountedOnce(t *testing.T) {
	n := New(netip.MustParseAddrPort("10.0.0.1:7700"), elect.SystemClock{}, func([]byte, netip.AddrPort) {})
	r := sdk.NewManualReader()
	p := sdk.NewMeterProvider(sdk.WithReader(r))
	n.Report(p.Meter("spindle"))
	n.Report(p.Meter("spindle again"))
	n.Receive([]byte("x"), netip.MustParseAddrPort("10.0.0.2:7700"))
	var rm metricdata.ResourceMetrics
	_ = r.Collect(context.Background(), &rm)
	for _, m := range rm.ScopeMetrics[0].Metrics {
		if m.Name == "spindle.notifications.received" {
			for _, d := range m.Data.(metricdata.Sum[int64]).DataPoints {
				if d.Value > 0 {
					assert.EqualValues(t, 1, d.Value, d.Attributes)
				}
			}
		}
	}
}

func TestTheNextInLineOfAShortLeaseSleepsToo(t *testing.T) {
	inWorld(t, func(w *world) {
		const short = 100 * time.Millisecond
		h, o := w.process(), w.process()
		term := termOf("m")
		term.Lease = short
		b := h.Hold(term)
		own := o.ticket(10)
		e := o.Listen(site, short)
		polls := 0
		for began := time.Now(); time.Since(began) < 100*short; polls++ {
			s := h.held(1)
			s.Locks[0].Lease, s.Ticket = short, own
			e.Learn(s, elect.SystemClock{}.Now())
			e.Sleep(context.Background(), elect.SystemClock{}, 5*time.Millisecond, short)
		}
		e.Close()
		b.Free(false)
		assert.Less(t, polls, 300, "in a hundred leases")
	})
}

// Whatever messages arrive, all that the loop of a lock gets from here are times. So no message can become a token, a claim or a
// write.
func TestAMessageChangesNothingButTimes(t *testing.T) {
	for _, of := range []any{(*Ear)(nil), Book(nil)} {
		for i := range reflect.TypeOf(of).NumMethod() {
			m := reflect.TypeOf(of).Method(i)
			for out := range m.Type.NumOut() {
				assert.Equal(t, reflect.TypeFor[time.Duration](), m.Type.Out(out), m.Name)
			}
		}
	}
	deps, err := exec.Command("go", "list", "-deps", "../elect", "../fair", "../table", "../fence").Output()
	require.NoError(t, err)
	assert.NotContains(t, string(deps), "spindle/internal/notify")
}

// A process reads 20,000 messages a second at most. What it drops costs it next to nothing: no answer, no goroutine, no memory.
func TestAFloodIsReadInPart(t *testing.T) {
	inWorld(t, func(w *world) {
		p := w.process()
		book := p.holds(1)
		flood := message{kind: waiting, flags: toHolder, lock: idOf(site, "m"), token: 1, from: netip.MustParseAddrPort("10.0.0.9:7700")}.signed(key{1})
		goroutines := runtime.NumGoroutine()
		for range 10 {
			for range 10_000 {
				p.Receive(flood, netip.MustParseAddrPort("198.51.100.7:53000"))
			}
			time.Sleep(time.Second / 10)
		}
		assert.Equal(t, mostRead, p.fates["unsigned"])
		assert.Equal(t, 100_000-mostRead, p.fates["flooded"])
		assert.Empty(t, w.sent(func(message) bool { return true }))
		assert.Less(t, runtime.NumGoroutine(), goroutines+100) // others come and go
		book.Free(false)
	})
	n := New(netip.MustParseAddrPort("10.0.0.1:7700"), elect.SystemClock{}, func([]byte, netip.AddrPort) {})
	n.read = window{began: elect.SystemClock{}.Now(), count: math.MaxInt32}
	assert.LessOrEqual(t, testing.AllocsPerRun(1000, func() { n.Receive(make([]byte, Size), n.own) }), 2.0)
}

// A process sends each address 200 messages a second that the address has not asked for, and no more, however many addresses it sends to.
// Otherwise, an attacker that names many addresses could turn the limit off for its victim.
func TestTheLimitForOneAddressHoldsBesideMany(t *testing.T) {
	inWorld(t, func(w *world) {
		p := w.process()
		sends := func(i, n int) {
			to := contact{at: netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 1, byte(i >> 8), byte(i)}), 7700), key: key{1}}
			p.do(func() {
				for range n {
					p.post(message{kind: free}, to, false)
				}
			})
		}
		for i := range mostNoted + 2 {
			sends(i, 1)
		}
		for _, victim := range []int{mostNoted + 2, mostNoted + 1} {
			w.sent(only(free))
			sends(victim, mostUnasked)
			sends(victim, mostUnasked)
			assert.InDelta(t, mostUnasked, len(w.sent(only(free))), 1)
		}
		assert.LessOrEqual(t, len(p.unasked), mostNoted+1)
	})
}
