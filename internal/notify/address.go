package notify

import (
	"encoding/base64"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
)

// ErrAddress means that notifications can't use an address.
var ErrAddress = errors.New("is not an IP address with a port of at least 1024, such as 10.0.0.7:7700 or [fd00::7]:7700")

// ErrNoAddress means that no address is known to which other processes could send.
var ErrNoAddress = errors.New("this machine has no default route, so it is not known which of its addresses other processes can reach: name one, such as 10.0.0.7:7700")

// IsAddress reports whether Listen accepts an address.
func IsAddress(addr string) bool { _, err := parse(addr); return err == nil }

// parse reads an address to listen on. Without an IP address, it returns the wildcard address.
func parse(addr string) (netip.AddrPort, error) {
	if addr == "" {
		addr = ":0"
	}
	host, port, err := net.SplitHostPort(addr)
	if host == "" {
		host = "::"
	}
	at, bad := netip.ParseAddrPort(net.JoinHostPort(host, port))
	if err != nil || bad != nil || at.Addr().Zone() != "" || at.Addr().IsMulticast() || 0 < at.Port() && at.Port() < leastPort {
		return netip.AddrPort{}, fmt.Errorf("notification address %q %w; to listen on all addresses of this machine, give only a port, such as :7700", addr, ErrAddress)
	}
	return at, nil
}

// announced returns the address to which other processes should send. If name is given, announced parses it, and adds
// the socket's port if name has no port. If name is empty, the result is the address to which the socket is bound or,
// if the socket listens on all addresses, the local address of the default route.
func announced(bound netip.AddrPort, name string) (netip.AddrPort, error) {
	switch {
	case name == "" && bound.Addr().IsUnspecified():
		return routed(bound.Port())
	case name == "":
		return bound, nil
	}
	at, err := netip.ParseAddrPort(name)
	if ip, bad := netip.ParseAddr(name); bad == nil {
		at, err = netip.AddrPortFrom(ip, bound.Port()), nil
	}
	if err != nil || !usable(at, at) {
		return netip.AddrPort{}, fmt.Errorf("other processes can't send to the announced notification address %q, because it is unspecified, link-local or multicast, or %w", name, ErrAddress)
	}
	return at, nil
}

// routed returns the local address of the default route.
func routed(port uint16) (netip.AddrPort, error) {
	for _, elsewhere := range []string{"192.0.2.1:9", "[2001:db8::1]:9"} { // addresses for documentation; nothing is sent
		c, err := net.Dial("udp", elsewhere)
		if err != nil {
			continue
		}
		local := c.LocalAddr().(*net.UDPAddr).AddrPort().Addr().Unmap()
		_ = c.Close()
		if found := netip.AddrPortFrom(local, port); usable(found, found) {
			return found, nil
		}
	}
	return netip.AddrPort{}, ErrNoAddress
}

// leastPort keeps notifications away from system services.
const leastPort = 1024

// usable reports whether a process at own may send to an address that a row of the table or a message contains. Without
// this check, anybody who can write rows could make this process send to a broadcast address or to a system service.
func usable(own, to netip.AddrPort) bool {
	a := to.Addr()
	return a.IsValid() && a.Zone() == "" && !a.IsUnspecified() && !a.IsMulticast() && !a.IsLinkLocalUnicast() &&
		a != netip.AddrFrom4([4]byte{255, 255, 255, 255}) && to.Port() >= leastPort && (!a.IsLoopback() || own.Addr().IsLoopback())
}

// contact is the address and the key for messages to another process. A row contains its writer's contact as text.
// Messages to the zero contact are not sent.
type contact struct {
	at    netip.AddrPort
	key   key
	under flags // byTicket if the key is a ticket's
}

func (c contact) String() string {
	return c.at.String() + " " + base64.RawStdEncoding.EncodeToString(c.key[:])
}

// contactOf parses the contact in a row. It returns the zero contact if the text is not valid.
func contactOf(text string, under flags) contact {
	addr, secret, _ := strings.Cut(text, " ")
	at, err := netip.ParseAddrPort(addr)
	k, bad := base64.RawStdEncoding.DecodeString(secret)
	if err != nil || bad != nil || len(k) != len(key{}) {
		return contact{}
	}
	return contact{netip.AddrPortFrom(at.Addr().Unmap(), at.Port()), key(k), under}
}
