//go:build unix

package main

import (
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
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

// Type=notify: guard is ready once it has deactivated, and competes. A signal to end is told at once, so that systemd waits for what is
// being ended. Neither the commands of guard and exec nor their
// watchdogs speak for them.
func TestSystemdKnowsHowGuardAndExecAre(t *testing.T) {
	for name, r := range map[string]struct {
		args   []string
		before []string // files that exist when it is ready
		after  []string
		status string // an expression
		code   int
	}{
		"guard": {[]string{"--name", "svc", "--renew", "300ms", "--confirm", "8", "--activate", "env >on", "--deactivate", "sleep 0.2; env >off; [ ! -e on ] || until [ -e end ]; do sleep 0.01; done", "--on-acquire", "env >hook"},
			[]string{"off"}, []string{"on", "hook"}, `^STATUS=the service is active$`, 0},
		"exec": {[]string{"--name", "job", "--lease", "6s", "sh", "-c", `trap "until [ -e end ]; do sleep 0.01; done; exit 5" TERM; env >on; while :; do sleep 0.01; done`}, nil, []string{"on"}, `^STATUS=holding job, token \d+; running sh$`, 5},
	} {
		dir := t.TempDir()
		c, n := unit(t, dir, append([]string{name}, r.args...)...)
		is := regexp.MustCompile(r.status)
		assert.False(t, slices.ContainsFunc(n.until("READY=1"), is.MatchString), name)
		for _, f := range r.before {
			assert.FileExists(t, filepath.Join(dir, f), "%s has done this first", name)
		}
		for holding := false; !holding; {
			holding = slices.ContainsFunc(n.until("WATCHDOG=1"), is.MatchString)
		}
		for _, f := range append(r.before, r.after...) {
			var env []byte
			require.Eventually(t, func() bool { env, _ = os.ReadFile(filepath.Join(dir, f)); return len(env) > 0 }, patience, time.Millisecond)
			assert.NotRegexp(t, `(?m)^(NOTIFY_SOCKET|WATCHDOG_)`, string(env), "%s: %s", name, f)
		}
		require.NoError(t, c.Process.Signal(syscall.SIGTERM))
		n.until("STOPPING=1") // even if what it ends takes long
		require.NoError(t, os.WriteFile(filepath.Join(dir, "end"), nil, 0o600))
		_ = c.Wait()
		assert.Equal(t, r.code, c.ProcessState.ExitCode(), name)
	}
}
