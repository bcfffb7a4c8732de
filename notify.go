package spindle

import (
	"fmt"

	"github.com/spindle-lock/spindle/internal/notify"
	"github.com/spindle-lock/spindle/internal/options"
)

// A Notifier exchanges small UDP messages with other processes that compete for the same locks. Most messages say that
// a lock is free, or that its holder is alive. Waiters and followers then usually poll only about once per lease, and
// the first in line claims a released lock immediately. No guarantee depends on messages: a lost, late, forged or
// repeated message costs a few requests or a short delay. Processes that have no Notifier or receive no messages poll
// at their normal pace.
//
// One Notifier can serve all locks of a process. The other processes must be able to reach its port. docs/locks.md
// describes the messages. All methods may be called from any goroutine.
type Notifier struct{ own *notify.Notifier }

// ListenNotifications opens a UDP socket for notifications. The address is an IP address of this machine with a port of
// at least 1024, such as 10.0.0.7:7700. Port 0 means any free port, and an empty address means ":0". Without an IP
// address, the socket listens on all addresses, and other processes send to the local address of the default route.
//
// The error says what is wrong with the address, or that there is no default route. After an error, a program can
// continue without a Notifier. A second Notifier in the same process is allowed, and has an address of its own.
func ListenNotifications(addr string) (*Notifier, error) {
	own, err := notify.Listen(addr, "")
	if err != nil {
		return nil, fmt.Errorf("spindle: %w", err)
	}
	return &Notifier{own}, nil
}

// Close closes the socket. It blocks for a few milliseconds. Call it after you have released the locks that use the
// Notifier. With a closed Notifier, locks send no messages, and waiters immediately return to their normal pace. A
// second call has no effect.
func (n *Notifier) Close() { n.own.Close() }

// WithNotifier makes an elector, or a lock of package lock, use a Notifier. While the holder answers messages, a
// follower or waiter usually polls about once per lease instead of three times or more. When the lock is released, the
// first in line polls immediately. If you also use WithPoll, the pause between two polls is never longer than the
// interval that you set. Otherwise, the age that Seen returns can grow to about nine tenths of the lease. Giving one
// lock two different Notifiers is an error.
func WithNotifier(n *Notifier) LockOption {
	return options.Option(func(c *options.Config) {
		if c.Require(n != nil, "WithNotifier(nil): pass the Notifier that ListenNotifications returns, or omit the option") &&
			c.Require(c.Notifier == nil || c.Notifier == n.own, "WithNotifier is given twice, with different Notifiers: use one Notifier for all locks of the process") {
			c.Notifier = n.own
		}
	})
}
