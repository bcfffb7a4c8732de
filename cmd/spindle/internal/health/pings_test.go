//go:build unix

package health

import (
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A program pings as it would ping systemd, with whatever else it says, even if systemd also watches this process. Nothing is left of
// the socket.
func TestPingsAreThoseOfSystemd(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	pings := make(chan struct{}, 10)
	var n atomic.Int64
	env, stop, err := Pings(1500*time.Millisecond, func() { n.Add(1); pings <- struct{}{} })
	require.NoError(t, err)
	for name, value := range map[string]string{"NOTIFY_SOCKET": "/run/systemd/notify", "WATCHDOG_USEC": "1000", "WATCHDOG_PID": "1"} {
		t.Setenv(name, value) // by systemd, for this process
	}
	for _, name := range Variables {
		require.NoError(t, os.Unsetenv(name))
	}
	for _, entry := range env {
		name, value, _ := strings.Cut(entry, "=")
		t.Setenv(name, value)
	}
	limit, err := daemon.SdWatchdogEnabled(false)
	require.NoError(t, err)
	assert.Equal(t, 1500*time.Millisecond, limit)
	for _, said := range []string{"READY=1", "STATUS=WATCHDOG=1", "WATCHDOG=1", "READY=1\nWATCHDOG=1\n", "STATUS=" + strings.Repeat("x", 4000) + "\nWATCHDOG=1"} {
		sent, err := daemon.SdNotify(false, said)
		require.NoError(t, err)
		require.True(t, sent)
	}
	for range 3 {
		<-pings
	}
	stop()
	assert.EqualValues(t, 3, n.Load(), "READY and STATUS are no pings")
	left, err := filepath.Glob(filepath.Join(os.Getenv("TMPDIR"), "*"))
	require.NoError(t, err)
	assert.Empty(t, left)
}

// A temporary directory whose path is too long for a socket is left as it was, and the error says what to do.
func TestASocketThatCanNotBeMadeLeavesNothing(t *testing.T) {
	dir := filepath.Join(t.TempDir(), strings.Repeat("long", 30))
	require.NoError(t, os.Mkdir(dir, 0o700))
	t.Setenv("TMPDIR", dir)
	_, _, err := Pings(time.Second, nil)
	require.Error(t, err)
	assert.ErrorContains(t, err, "set TMPDIR to a directory with a shorter one")
	left, err := os.ReadDir(dir)
	require.NoError(t, err)
	assert.Empty(t, left)
}
