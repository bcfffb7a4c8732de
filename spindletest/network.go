package spindletest

import (
	"math/rand/v2"
	"net/netip"
	"sync"
	"time"

	"github.com/spindle-lock/spindle"
	"github.com/spindle-lock/spindle/internal/elect"
	"github.com/spindle-lock/spindle/internal/notify"
	"github.com/spindle-lock/spindle/internal/options"
)

// A Network carries notifications between processes of a test, without sockets. It delivers each message after half a
// millisecond, unless the test changes the delay. All methods may be called from any goroutine.
type Network struct {
	mu        sync.Mutex
	receivers map[netip.AddrPort]*notify.Notifier
	silent    map[netip.AddrPort]bool
	loss      float64
	delay     time.Duration
	sent      int
}

// NewNetwork returns a network without faults.
func NewNetwork() *Network {
	return &Network{receivers: map[netip.AddrPort]*notify.Notifier{}, silent: map[netip.AddrPort]bool{}, delay: time.Millisecond / 2}
}

// Process connects another process to the network. Pass the returned option to the process's locks instead of
// WithNotifier. To cut the process off, call silence. From then on, messages that it sends, or that are sent to it, are
// lost.
func (n *Network) Process() (option spindle.LockOption, silence func()) {
	n.mu.Lock()
	defer n.mu.Unlock()
	at := netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, byte(len(n.receivers) >> 8), byte(len(n.receivers))}), 7700)
	own := notify.New(at, elect.SystemClock{}, func(b []byte, to netip.AddrPort) { n.carry(b, at, to) })
	n.receivers[at] = own
	return options.Option(func(c *options.Config) { c.Notifier = own }), func() {
		n.mu.Lock()
		defer n.mu.Unlock()
		n.silent[at] = true
	}
}

// Lose makes the network lose the given share (0 to 1) of all messages.
func (n *Network) Lose(share float64) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.loss = share
}

// Delay makes the network deliver each message after d.
func (n *Network) Delay(d time.Duration) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.delay = d
}

// Sent returns how many messages were sent, including lost ones.
func (n *Network) Sent() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.sent
}

func (n *Network) carry(b []byte, from, to netip.AddrPort) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.sent++
	receiver := n.receivers[to]
	if receiver == nil || n.silent[from] || n.silent[to] || rand.Float64() < n.loss {
		return
	}
	time.AfterFunc(n.delay, func() { receiver.Receive(b, from) })
}
