//go:build unix

package health

import (
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// manager is systemd's end of the socket.
type manager struct {
	t    *testing.T
	conn *net.UnixConn
}

func listen(t *testing.T) *manager {
	t.Helper()
	dir, err := os.MkdirTemp("", "notify") // t.TempDir may be too long for a socket
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	path := filepath.Join(dir, "s")
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	t.Setenv("NOTIFY_SOCKET", path)
	t.Setenv("WATCHDOG_USEC", "")
	t.Setenv("WATCHDOG_PID", "")
	return &manager{t, conn}
}

// hears waits for an assignment, and returns all that came until then.
func (m *manager) hears(line string) (all []string) {
	m.t.Helper()
	require.NoError(m.t, m.conn.SetReadDeadline(time.Now().Add(30*time.Second)))
	for b := make([]byte, 1<<16); ; {
		n, err := m.conn.Read(b)
		require.NoError(m.t, err, "it never says %s, but %q", line, all)
		lines := strings.Split(string(b[:n]), "\n")
		for _, l := range lines {
			all = append(all, l)
			if l == line {
				return all
			}
		}
	}
}

func TestSystemdHearsOfEachState(t *testing.T) {
	m := listen(t)
	u := Notify(nil)
	u.Status("deactivating")
	m.hears("STATUS=deactivating")
	u.Status("deactivating")
	u.Ready()
	all := m.hears("READY=1")
	assert.NotContains(t, all, "STATUS=deactivating", "it has not changed")
	u.Status("on standby")
	m.hears("STATUS=on standby")
	u.Stopping()
	u.End()
	m.hears("STOPPING=1")
	for range 50 {
		last := Notify(nil)
		last.Stopping()
		last.End()
		m.hears("STOPPING=1") // although the end follows at once
	}
}

// The name of a holder, which any program can write, must not be an assignment of its own.
func TestAStatusIsOneLine(t *testing.T) {
	m := listen(t)
	u := Notify(nil)
	u.Status("held by a\nMAINPID=1\x1b[31m \xff")
	m.hears(`STATUS=held by a\nMAINPID=1\x1b[31m \xff`)
	u.End()
}

// systemd's watchdog is for a loop that hangs: pings come only from answers of the loop. A loop that answers is asked three times within
// the watchdog's limit, and not all the time, which would keep a processor busy.
func TestBetweenTwoPingsTheLoopIsLeftAlone(t *testing.T) {
	m := listen(t)
	t.Setenv("WATCHDOG_USEC", "30000")
	t.Setenv("WATCHDOG_PID", strconv.Itoa(os.Getpid()))
	asks := make(chan struct{})
	u := Notify(asks)
	assert.Equal(t, 10*time.Millisecond, u.ping, "two pings may be late")
	u.Status("hangs")
	assert.NotContains(t, m.hears("STATUS=hangs"), "WATCHDOG=1")
	begun := time.Now()
	for range 5 {
		<-asks
		m.hears("WATCHDOG=1")
	}
	assert.GreaterOrEqual(t, time.Since(begun), 4*u.ping)
	u.Status("hangs again")
	assert.NotContains(t, m.hears("STATUS=hangs again"), "WATCHDOG=1")
	u.End()
}

// A systemd that does not read fills its socket. That must not hold up what decides about the lock, nor the end.
func TestASystemdThatDoesNotReadDelaysNobody(t *testing.T) {
	listen(t)
	u := Notify(nil)
	begun := time.Now()
	for i := range 10_000 {
		u.Status(strconv.Itoa(i))
	}
	u.End()
	assert.Less(t, time.Since(begun), 20*time.Second)
}
