//go:build unix

package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spindle-lock/spindle/cmd/spindle/internal/commandtest"
)

// unit starts a command as systemd does.
func unit(t *testing.T, dir string, args ...string) (*exec.Cmd, *commandtest.Systemd) {
	t.Helper()
	e, path := newDatabase(t)
	n := commandtest.NewSystemd(t, patience)
	c := exec.Command("spindle", args...)
	c.Dir, c.Stderr = dir, os.Stderr
	c.Env = append(os.Environ(), "SPINDLE_DB="+path, "SPANNER_EMULATOR_HOST="+e.Addr(), "RUNTIME_DIRECTORY="+dir,
		"NOTIFY_SOCKET="+n.Socket, "WATCHDOG_USEC=600000")
	require.NoError(t, c.Start())
	t.Cleanup(func() { _ = c.Process.Kill(); _ = c.Wait() })
	return c, n
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
		assert.False(t, slices.ContainsFunc(n.Until("READY=1"), is.MatchString), name)
		for _, f := range r.before {
			assert.FileExists(t, filepath.Join(dir, f), "%s has done this first", name)
		}
		for holding := false; !holding; {
			holding = slices.ContainsFunc(n.Until("WATCHDOG=1"), is.MatchString)
		}
		for _, f := range append(r.before, r.after...) {
			var env []byte
			require.Eventually(t, func() bool { env, _ = os.ReadFile(filepath.Join(dir, f)); return len(env) > 0 }, patience, time.Millisecond)
			assert.NotRegexp(t, `(?m)^(NOTIFY_SOCKET|WATCHDOG_)`, string(env), "%s: %s", name, f)
		}
		require.NoError(t, c.Process.Signal(syscall.SIGTERM))
		n.Until("STOPPING=1") // even if what it ends takes long
		require.NoError(t, os.WriteFile(filepath.Join(dir, "end"), nil, 0o600))
		_ = c.Wait()
		assert.Equal(t, r.code, c.ProcessState.ExitCode(), name)
	}
}
