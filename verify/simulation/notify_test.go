package simulation

import (
	"context"
	"encoding/binary"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/spindle-lock/spindle/internal/elect"
	"github.com/spindle-lock/spindle/internal/notify"
	"github.com/spindle-lock/spindle/internal/table"
	"github.com/spindle-lock/spindle/internal/testkit/network"
)

// notified is a fleet of candidates that notify each other, over a network with faults of its own. The other faults and all
// invariants are those of candidates without notifications.
type notified struct {
	*world
	net     network.Faults
	addrs   []netip.AddrPort // by slot: its processes have the same, one after the other
	silence []time.Time      // by slot: until when nobody receives what its processes send
}

// The driver's faults, beside those of the messages.
var notifyFaults = []string{"notifier closed", "one-way network"}

func TestNotifications(t *testing.T) {
	t.Parallel()
	suite{test: "TestNotifications", seeds: 24, traced: true, of: func(w *world) fleet { return &notified{world: w} }}.run(t)
}

func (n *notified) draw(d *dice) plan {
	p := n.world.draw(d)
	own := seeded(uint64(*d), 1)
	n.net = network.Drawn(own.rand(), 2*p.longest)
	for _, kind := range notifyFaults {
		p.driver[kind] = own.below(3)
	}
	for slot := range p.leases {
		n.addrs = append(n.addrs, netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, 0, byte(slot + 1)}), 7700))
	}
	n.silence = make([]time.Time, len(p.leases))
	return p
}

// rand returns more than a few random numbers.
func (d *dice) rand() *rand.Rand { return rand.New(rand.NewPCG(d.next(), d.next())) }

// launch gives most processes a Notifier.
func (n *notified) launch(p *process, id string, d *dice) func(context.Context, ...chan<- error) error {
	if own := seeded(uint64(*d), 2); own.chance(0.9) {
		p.notifier = notify.New(n.addrs[p.slot], steady{p}, func(b []byte, to netip.AddrPort) { n.carry(p, b, to) })
	}
	return n.world.launch(p, id, d)
}

// contact is what the lease row of a term says about how to notify the process.
func (p *process) contact(t table.Token) string {
	if p.notifier == nil {
		return ""
	}
	return p.notifier.Contact(notify.PlaceOf("", table.Canonical("locktable")), table.LeaseKey(lockName, t))
}

// steady is the clock of a process's Notifier, which reads it with its mutex held. The process is not stopped there.
type steady struct{ *process }

func (s steady) Now() elect.Instant { return s.reading() }

// carry is the network.
func (n *notified) carry(p *process, b []byte, to netip.AddrPort) {
	n.mu.Lock()
	defer n.mu.Unlock()
	d := n.dice(p, "message", uint64(b[1]), binary.BigEndian.Uint64(b[28:]), hashOf(to.String()))
	sent := network.Datagram{Bytes: b, From: n.addrs[p.slot], To: to, After: d.spread(100*time.Microsecond, n.plan.latency)}
	all := []network.Datagram{sent}
	n.faults["message"]++ // no fault, but counted with them
	if n.faulty() {
		if p.dead || time.Now().Before(n.silence[p.slot]) {
			return
		}
		all = n.net.Arriving(sent, n.addrs, d.rand())
	}
	for _, a := range all {
		if n.faulty() {
			n.quiet(a.After)
		}
		time.AfterFunc(a.After, func() { n.deliver(a) })
	}
}

// deliver is the arrival of a message. A process that is stopped finds it later in its socket.
func (n *notified) deliver(a network.Datagram) {
	n.mu.Lock()
	slot := slices.Index(n.addrs, a.To)
	p := n.slots[slot]
	n.mu.Unlock()
	if p == nil || p.notifier == nil {
		return
	}
	p.gate("message")
	p.asking.Add(1) // what is asked with the Notifier's mutex held is no place to stop at
	defer p.asking.Add(-1)
	p.notifier.Receive(a.Bytes, a.From)
}

func (n *notified) breakOne(kind string, d *dice) {
	p := n.victim(d)
	switch {
	case !slices.Contains(notifyFaults, kind):
		n.world.breakOne(kind, d)
	case p == nil || p.notifier == nil:
	case kind == "notifier closed":
		n.fault(kind, time.Second)
		time.AfterFunc(1, p.notifier.Close)
	default:
		length := d.spread(n.plan.longest/20, 3*n.plan.longest)
		n.fault(kind, length)
		n.silence[p.slot] = time.Now().Add(length)
	}
}
