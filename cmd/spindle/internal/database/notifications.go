package database

import (
	"errors"
	"net"
	"os"
	"syscall"

	"github.com/spf13/pflag"

	"github.com/spindle-lock/spindle/cmd/spindle/internal/terminal"
	"github.com/spindle-lock/spindle/internal/notify"
	"github.com/spindle-lock/spindle/internal/options"
)

// Notifications has the flags of commands whose locks can notify other processes.
type Notifications struct {
	listen, announce string
	announced        *pflag.Flag // sets announce
}

// Flags adds the flags.
func (n *Notifications) Flags(f *pflag.FlagSet) {
	f.StringVar(&n.listen, "notify", "", "notify other processes over UDP when a lock is free, and receive their notifications at this `address`, such as --notify=:7700; without an address, on any free port (default: no notifications)")
	f.Lookup("notify").NoOptDefVal = noAddress
	f.StringVar(&n.announce, "notify-address", "", "with --notify, the `IP` address at which other processes can reach this process, followed by :port if they need a different port (default: the IP address of --notify or, if it has none, the local address of the default route)")
	n.announced = f.Lookup("notify-address")
}

// Listen returns the option that makes locks exchange notifications. The caller must call end after the locks have been
// released. Because locks work without notifications, Listen returns an error only if the flags are wrong.
func (n *Notifications) Listen(o *Database) (option options.Option, end func(), err error) {
	option, end = func(*options.Config) {}, func() {}
	if n.listen == "" {
		if n.announce != os.Getenv(terminal.Variable(n.announced)) { // the variable may be set for all commands
			err = terminal.Misuse("--notify-address %s: give --notify, too", n.announce)
		}
		return option, end, err
	}
	s, err := n.open()
	switch {
	case errors.Is(err, notify.ErrAddress):
		return nil, nil, terminal.Misuse("--notify: %w", err)
	case err != nil:
		terminal.Complain("continuing without notifications: %v (see --notify and --notify-address)", err)
		return option, end, nil
	}
	return func(c *options.Config) { c.Notifier, c.Database = s, o.Path }, s.Close, nil
}

// Meant reports whether an argument is an address that should have been joined to --notify by an equals sign.
func (n *Notifications) Meant(arg string) bool { return n.listen == noAddress && notify.IsAddress(arg) }

const noAddress = ":0"

// open opens the socket. If the given port is in use, open chooses another one, unless --notify-address names a port.
func (n *Notifications) open() (*notify.Notifier, error) {
	s, err := notify.Listen(n.listen, n.announce)
	if _, _, noPort := net.SplitHostPort(n.announce); noPort != nil && errors.Is(err, syscall.EADDRINUSE) {
		host, _, _ := net.SplitHostPort(n.listen) // it was valid
		taken := err
		if s, err = notify.Listen(net.JoinHostPort(host, "0"), n.announce); err == nil {
			terminal.Complain("listening on another port for notifications: %v", taken)
		}
	}
	return s, err
}
