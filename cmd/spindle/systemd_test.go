//go:build unix

package main

import (
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// notified has what a unit of Type=notify has reported to systemd.
type notified struct {
	t    *testing.T
	conn *net.UnixConn
	all  []string
}

// unit starts a command as systemd does.
func unit(t *testing.T, dir string, args ...string) (*exec.Cmd, *notified) {
	t.Helper()
	e, path := newDatabase(t)
	short, err := os.MkdirTemp("", "notify") // t.TempDir may be too long for a socket
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(short) })
	socket := filepath.Join(short, "s")
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: socket, Net: "unixgram"})
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })

	c := exec.Command("spindle", args...)
	c.Dir, c.Stderr = dir, os.Stderr
	c.Env = append(os.Environ(), "SPINDLE_DB="+path, "SPANNER_EMULATOR_HOST="+e.Addr(), "RUNTIME_DIRECTORY="+dir,
		"NOTIFY_SOCKET="+socket, "WATCHDOG_USEC=600000")
	require.NoError(t, c.Start())
	t.Cleanup(func() { _ = c.Process.Kill(); _ = c.Wait() })
	return c, &notified{t: t, conn: conn}
}

// until waits for an assignment that was not there before, and returns those before it.
func (n *notified) until(want string) (before []string) {
	n.t.Helper()
	require.NoError(n.t, n.conn.SetReadDeadline(time.Now().Add(patience)))
	for b := make([]byte, 1<<16); ; {
		if i := slices.Index(n.all, want); i >= 0 {
			before, n.all = n.all[:i], n.all[i+1:]
			return before
		}
		size, err := n.conn.Read(b)
		require.NoError(n.t, err, "systemd was not told %s, but %q", want, n.all)
		n.all = append(n.all, strings.Split(string(b[:size]), "\n")...)
	}
}

// ownVariables are those of systemd that a program has.
func ownVariables(t *testing.T, path string) string {
	t.Helper()
	out, err := exec.Command("sh", "-c", `grep -E "^(NOTIFY_SOCKET|WATCHDOG_)" "$0" || true`, path).Output()
	require.NoError(t, err)
	return string(out)
}

// Type=notify: guard is ready once it has deactivated, and competes. Neither its commands nor its watchdog speak for it.
func TestSystemdKnowsHowGuardIs(t *testing.T) {
	dir := t.TempDir()
	c, n := unit(t, dir, "guard", "--name", "svc", "--renew", "300ms", "--confirm", "8",
		"--activate", "env >on", "--deactivate", "env >off; sleep 0.2", "--on-acquire", "env >hook")
	assert.NotContains(t, n.until("READY=1"), "STATUS=the service is active")
	assert.FileExists(t, filepath.Join(dir, "off"), "it has deactivated first")
	n.until("STATUS=the service is active")
	n.until("WATCHDOG=1")
	n.until("WATCHDOG=1")
	for _, f := range []string{"on", "off", "hook"} {
		require.Eventually(t, func() bool { _, err := os.Stat(filepath.Join(dir, f)); return err == nil }, patience, time.Millisecond)
		assert.Empty(t, ownVariables(t, filepath.Join(dir, f)), f)
	}
	require.NoError(t, c.Process.Signal(syscall.SIGTERM))
	n.until("STOPPING=1")
	require.NoError(t, c.Wait())
}

func TestSystemdKnowsHowExecIs(t *testing.T) {
	dir := t.TempDir()
	c, n := unit(t, dir, "exec", "--name", "job", "--lease", "6s", "sh", "-c", `env >on; exec sleep 1000`)
	n.until("READY=1")
	for holding := false; !holding; {
		before := n.until("WATCHDOG=1")
		holding = slices.ContainsFunc(before, func(s string) bool {
			return strings.HasPrefix(s, "STATUS=holding job, token ") && strings.HasSuffix(s, "; running sh")
		})
	}
	require.Eventually(t, func() bool { _, err := os.Stat(filepath.Join(dir, "on")); return err == nil }, patience, time.Millisecond)
	assert.Empty(t, ownVariables(t, filepath.Join(dir, "on")))
	require.NoError(t, c.Process.Signal(syscall.SIGTERM))
	n.until("STOPPING=1")
	_ = c.Wait()
	assert.Equal(t, 143, c.ProcessState.ExitCode())
}
