package commandtest

import (
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Systemd is systemd's end of the socket on which a service of Type=notify reports its state.
type Systemd struct {
	Socket string // for NOTIFY_SOCKET

	t        *testing.T
	patience time.Duration
	conn     *net.UnixConn
	heard    []string // and not returned yet
}

// NewSystemd listens on a new socket until the test ends. Until waits as long as patience.
func NewSystemd(t *testing.T, patience time.Duration) *Systemd {
	t.Helper()
	dir, err := os.MkdirTemp("", "notify") // t.TempDir may be too long for a socket
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	path := filepath.Join(dir, "s")
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	return &Systemd{Socket: path, t: t, patience: patience, conn: conn}
}

// Until waits for an assignment, and returns those that came before it since the previous call. If the assignment does
// not come, Until fails the test.
func (s *Systemd) Until(want string) (before []string) {
	s.t.Helper()
	require.NoError(s.t, s.conn.SetReadDeadline(time.Now().Add(s.patience)))
	for b := make([]byte, 1<<16); ; {
		if i := slices.Index(s.heard, want); i >= 0 {
			before, s.heard = s.heard[:i], s.heard[i+1:]
			return before
		}
		n, err := s.conn.Read(b)
		require.NoError(s.t, err, "systemd is not told %s, but %q", want, s.heard)
		s.heard = append(s.heard, strings.Split(string(b[:n]), "\n")...)
	}
}
