package database

import (
	"cmp"
	"net"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/spf13/pflag"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spindle-lock/spindle/internal/options"
)

// listen does what a command with these flags does. It returns the settings of its locks.
func listen(t *testing.T, args ...string) (c options.Config, err error) {
	var n Notifications
	f := pflag.NewFlagSet("", pflag.ContinueOnError)
	n.Flags(f)
	require.NoError(t, f.Parse(args))
	option, end, err := n.Listen(&Database{Path: "projects/p/instances/i/databases/d"})
	if err == nil {
		t.Cleanup(end)
		option(&c)
	}
	return c, err
}

// Only an address that could never work is an error. Locks work without notifications, so whatever depends on the machine is not.
func TestNotificationsNeverKeepACommandFromStarting(t *testing.T) {
	taken, err := net.ListenPacket("udp", "127.0.0.1:0")
	require.NoError(t, err)
	defer taken.Close()
	for _, args := range [][]string{{}, {"--notify=" + taken.LocalAddr().String(), "--notify-address=10.0.0.7:7700"}, {"--notify=203.0.113.7:7700"}, {"--notify=203.0.113.7:0"}} {
		c, err := listen(t, args...)
		require.NoError(t, err, args)
		assert.Nil(t, c.Notifier, args)
	}
	for _, args := range [][]string{{"--notify=127.0.0.1:0"}, {"--notify", "--notify-address=10.0.0.7"}, {"--notify=:0", "--notify-address=[fd00::7]:7700"}, {"--notify=" + taken.LocalAddr().String()}, {"--notify=" + taken.LocalAddr().String(), "--notify-address=10.0.0.7"}} {
		c, err := listen(t, args...)
		require.NoError(t, err, args)
		assert.NotNil(t, c.Notifier, args)
		assert.NotEmpty(t, c.Database, "programs with the library know the lock by it")
	}
	for _, args := range [][]string{{"--notify=true"}, {"--notify=7700"}, {"--notify=host:7700"}, {"--notify=:53"}, {"--notify=224.0.0.1:7700"}, {"--notify=:0", "--notify-address=host"},
		{"--notify=:0", "--notify-address=169.254.0.7"}, {"--notify=:0", "--notify-address=10.0.0.7:53"}} {
		_, err := listen(t, args...)
		assert.ErrorContains(t, err, "is not an IP address", args)
	}
	_, err = listen(t, "--notify-address=10.0.0.7")
	assert.ErrorContains(t, err, "give --notify, too")
	t.Setenv("SPINDLE_NOTIFY_ADDRESS", "10.0.0.7")
	_, err = listen(t, "--notify-address=10.0.0.7") // as a manifest sets it
	assert.NoError(t, err)
}

// A socket is where the flags say, or at another port of that address if the port is taken: other addresses of the machine may be
// open to strangers. The command tells other processes that port, and the address at which they can reach it. When the command has ended,
// the next command can use the port.
func TestACommandHearsNotificationsAtTheAddressThatItWasGiven(t *testing.T) {
	taken, err := net.ListenPacket("udp", "127.0.0.1:0")
	require.NoError(t, err)
	defer taken.Close()
	for _, args := range [][]string{{"--notify=127.0.0.1:0"}, {"--notify=" + taken.LocalAddr().String()}, {"--notify=127.0.0.1:0", "--notify-address=127.0.0.1"},
		{"--notify=127.0.0.1:0", "--notify-address=10.0.0.7"}, {"--notify=" + taken.LocalAddr().String(), "--notify-address=10.0.0.7"}} {
		var n Notifications
		f := pflag.NewFlagSet("", pflag.ContinueOnError)
		n.Flags(f)
		require.NoError(t, f.Parse(args))
		option, end, err := n.Listen(&Database{Path: "projects/p/instances/i/databases/d"})
		require.NoError(t, err)
		var c options.Config
		option(&c)
		assert.Equal(t, "projects/p/instances/i/databases/d", c.Database)
		at, _, _ := strings.Cut(c.Notifier.Contact("", ""), " ")
		host, port, _ := net.SplitHostPort(at)
		assert.Equal(t, cmp.Or(n.announce, "127.0.0.1"), host, args)
		at = net.JoinHostPort("127.0.0.1", port)
		_, err = net.ListenPacket("udp", at)
		assert.ErrorIs(t, err, syscall.EADDRINUSE, args)
		end()
		next, err := net.ListenPacket("udp", at)
		require.NoError(t, err, args)
		_ = next.Close()
	}
}

// Only an address after a --notify that has none of its own was probably meant for it. Any other may be a program's name.
func TestOnlyTheArgumentOfABareFlagMayBeItsAddress(t *testing.T) {
	for _, r := range []struct {
		flags []string
		arg   string
		meant bool
	}{
		{[]string{"--notify"}, ":7700", true},
		{[]string{"--notify"}, "127.0.0.1:7700", true},
		{[]string{"--notify"}, "true", false},
		{[]string{"--notify=:7701"}, ":7700", false},
		{nil, ":7700", false},
	} {
		var n Notifications
		f := pflag.NewFlagSet("", pflag.ContinueOnError)
		n.Flags(f)
		require.NoError(t, f.Parse(r.flags))
		assert.Equal(t, r.meant, n.Meant(r.arg), "%+v", r)
	}
}

// A machine without a default route has no address to announce, unless one is given.
func TestAMachineWithoutADefaultRouteGoesOnWithoutNotifications(t *testing.T) {
	if os.Getenv("WITHOUT_ROUTE") == "" {
		again := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$")
		again.Env = append(os.Environ(), "WITHOUT_ROUTE=1")
		again.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWUSER | syscall.CLONE_NEWNET}
		out, err := again.CombinedOutput()
		if pe, ok := err.(*os.PathError); ok {
			t.Skipf("no network of its own: %v", pe)
		}
		require.NoError(t, err, string(out))
		assert.Contains(t, string(out), "--notify-address")
		return
	}
	c, err := listen(t, "--notify")
	require.NoError(t, err)
	assert.Nil(t, c.Notifier)
	c, err = listen(t, "--notify", "--notify-address=10.0.0.7")
	require.NoError(t, err)
	assert.NotNil(t, c.Notifier)
}
