package notify

import (
	"errors"
	"net"
	"net/netip"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spindle-lock/spindle/internal/elect"
	"github.com/spindle-lock/spindle/internal/table"
)

// socket returns a Notifier with a socket, or skips the test if this machine has no such address.
func socket(t *testing.T, addr, announce string) *Notifier {
	n, err := Listen(addr, announce)
	if errors.Is(err, syscall.EADDRNOTAVAIL) || errors.Is(err, syscall.EAFNOSUPPORT) {
		t.Skip(err)
	}
	require.NoError(t, err)
	t.Cleanup(n.Close)
	return n
}

// nowhere returns an address that nobody listens on.
func nowhere(t *testing.T) string {
	c, err := net.ListenPacket("udp", "127.0.0.1:0")
	require.NoError(t, err)
	defer c.Close()
	return c.LocalAddr().String()
}

// oneWay returns an address that passes messages on, as a translation of addresses does, and loses the answers.
func oneWay(t *testing.T, to string) string {
	c, err := net.ListenPacket("udp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.Close() })
	at, err := net.ResolveUDPAddr("udp", to)
	require.NoError(t, err)
	go func() {
		b := make([]byte, Size)
		for {
			_, from, err := c.ReadFrom(b)
			if err != nil {
				return
			}
			if from.String() != to {
				_, _ = c.WriteTo(b, at)
			}
		}
	}()
	return c.LocalAddr().String()
}

// A waiter sleeps while the network lets it hear of its holder, and is told if either of its addresses can be reached. Otherwise, it
// polls as without messages. The holder's message arrives at once. Without the message, the waiter would learn of the release only from the
// answer to its next question, many seconds later.
func TestWhatLiesBetweenTwoSockets(t *testing.T) {
	for name, c := range map[string]struct {
		host          string
		translated    bool // what comes back to the address that the holder sees is lost
		unreachable   bool // the address that the waiter announces
		another       bool // process has the holder's port now
		hears, isTold bool
	}{
		"IPv4":      {host: "127.0.0.1", hears: true, isTold: true},
		"only IPv6": {host: "[::1]", hears: true, isTold: true},
		"an announced address that leads nowhere":   {host: "127.0.0.1", unreachable: true, hears: true, isTold: true},
		"a translation that loses the answers":      {host: "127.0.0.1", translated: true, isTold: true},
		"nothing comes in":                          {host: "127.0.0.1", translated: true, unreachable: true},
		"another process on the port of the holder": {host: "127.0.0.1", another: true},
	} {
		t.Run(name, func(t *testing.T) {
			at, seen, announced := c.host+":0", "", ""
			if c.translated {
				at = nowhere(t) // for now
				seen = oneWay(t, at)
			}
			if c.unreachable {
				announced = nowhere(t)
			}
			holder, waiter := socket(t, at, seen), socket(t, c.host+":0", announced)
			row := holder.Contact(site, table.LeaseKey("m", 1))
			if c.another {
				port := holder.own.String()
				holder.Close()
				other, err := Listen(port, "")
				require.NoError(t, err)
				defer other.Close()
				holder = other
			}
			book := holder.Hold(Term{Place: site, Name: "m", Token: 1, Lease: time.Hour, Alive: func() bool { return true },
				After: func([]table.Ticket) time.Duration { return 0 }})
			e := waiter.Listen(site, time.Hour)
			defer e.Close()
			e.Learn(Seen{Locks: []Lock{{Name: "m", Token: 1, Held: true, Contact: row, Lease: time.Hour}}, Ticket: table.Ticket{Queue: "m", Time: 10, Nonce: "a10"}}, elect.SystemClock{}.Now())
			is := func(f func(l *line) bool) (yes bool) {
				waiter.do(func() { yes = f(e.lines["m"]) })
				return yes
			}
			sleeps := func() bool { return is(func(*line) bool { return e.slow() }) }
			if c.hears {
				require.Eventually(t, sleeps, 3*time.Minute, time.Millisecond)
			} else {
				require.Eventually(t, func() bool { return is(func(l *line) bool { return l.sent == 0 }) }, 3*time.Minute, time.Millisecond, "it has given up")
				assert.False(t, sleeps())
			}
			var asked, then elect.Instant
			is(func(l *line) bool { asked = l.asked; return true })
			book.Free(false)
			told := func() bool { return is(func(l *line) bool { then = l.asked; return l.told }) }
			if c.isTold {
				require.Eventually(t, told, 3*time.Minute, time.Millisecond)
				assert.Equal(t, asked, then, "it had to ask again")
			} else {
				time.Sleep(5 * again)
				assert.False(t, told())
			}
		})
	}
}

// Neither this process nor another is made to use a port of the system, and all others may be used.
func TestAddresses(t *testing.T) {
	for addr, good := range map[string]bool{
		"": true, ":0": true, ":1024": true, ":65535": true, "127.0.0.1:1024": true, "[fd00::7]:7700": true,
		":1": false, ":1023": false, "10.0.0.7:1023": false, ":65536": false, "10.0.0.7": false, "host:7700": false, "[fe80::1%eth0]:7700": false, "224.0.0.1:7700": false,
	} {
		assert.Equal(t, good, IsAddress(addr), addr)
	}
	own := netip.MustParseAddrPort("10.0.0.7:7700")
	assert.True(t, usable(own, netip.MustParseAddrPort("10.0.0.8:1024")))
	assert.False(t, usable(own, netip.MustParseAddrPort("10.0.0.8:1023")))
}

// A process can try to listen again after it was refused, on the same port: a default route, for example, may exist by then.
func TestARefusalToListenLeavesThePortFree(t *testing.T) {
	at := nowhere(t)
	for _, announced := range []string{"0.0.0.0", "224.0.0.1", "host", "10.0.0.7:53"} {
		_, err := Listen(at, announced)
		require.ErrorIs(t, err, ErrAddress, announced)
	}
	socket(t, at, "")
}
