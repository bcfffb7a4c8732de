package spindle

import (
	"fmt"

	"github.com/spindle-lock/spindle/internal/notify"
	"github.com/spindle-lock/spindle/internal/options"
)

// A Notifier exchanges small UDP messages with other processes that compete for the same locks. The messages say that a
// lock is free, or that its holder is alive. Waiters and followers then poll only about once per lease, and claim a
// released lock immediately. No guarantee depends on messages: a lost, late, forged or repeated message costs a few
// requests or a short delay. Processes that have no Notifier or receive no messages poll at their normal pace.
//
// One Notifier serves all locks of a process. The other processes must be able to reach its port. docs/locks.md
// describes the messages. All methods may be called from any goroutine.
type Notifier struct{ own *notify.Notifier }

// ListenNotifications opens a UDP socket for notifications. The address is an IP address of this machine with a port,
// such as 10.0.0.7:7700. Port 0 means any free port, and an empty address means ":0". Without an IP address, the socket
// listens on all addresses, and other processes send to the local address of the default route.
//
// The error says what is wrong with the address, or that there is no default route. A program can continue without a
// Notifier. A second Notifier in the same process is allowed, and has an address of its own.
func ListenNotifications(addr string) (*Notifier, error) {
	own, err := notify.Listen(addr, "")
	if err != nil {
		return nil, fmt.Errorf("spindle: %w", err)
	}
	return &Notifier{own}, nil
}

// Close closes the socket. It blocks for a few milliseconds. Call it after you have released the locks that use the
// Notifier. With a closed Notifier, locks send no messages, and waiters immediately return to their normal pace. A
// second call does nothing.
func (n *Notifier) Close() { n.own.Close() }

// WithNotifier makes an elector, or a lock of package lock, use a Notifier. While the holder answers messages, a follower or
// waiter polls about once per lease instead of three times or more. It polls immediately when the lock is released. If you
// also use WithPoll, the pause between two polls is never longer than the interval that you set. The age that Seen returns can
// grow to nine tenths of the leader's lease. Giving one lock two different Notifiers is an error.
func WithNotifier(n *Notifier) LockOption {
	return options.Option(func(c *options.Config) {
		if c.Require(n != nil, "WithNotifier(nil): pass the Notifier that ListenNotifications returns, or leave the option out") &&
			c.Require(c.Notifier == nil || c.Notifier == n.own, "WithNotifier is given twice, with different Notifiers: a process needs only one") {
			c.Notifier = n.own
		}
	})
}
