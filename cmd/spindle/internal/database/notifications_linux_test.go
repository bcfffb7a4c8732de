package database

import (
	"net"
	"os"
	"os/exec"
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
