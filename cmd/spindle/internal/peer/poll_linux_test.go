package peer

import (
	"net"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// connect returns one end of a connection within this process.
func connect(t *testing.T) *net.UnixConn {
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: filepath.Join(t.TempDir(), "s")})
	require.NoError(t, err)
	defer l.Close()
	theirs, err := net.DialUnix("unix", nil, l.Addr().(*net.UnixAddr))
	require.NoError(t, err)
	ours, err := l.AcceptUnix()
	require.NoError(t, err)
	t.Cleanup(func() { _, _ = ours.Close(), theirs.Close() })
	return ours
}

func watch(t *testing.T, c *net.UnixConn) *Peer {
	p, err := Of(c)
	require.NoError(t, err)
	t.Cleanup(p.Close)
	require.NoError(t, p.Watch())
	return p
}

func happened(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// The poller may handle an event after its descriptor was closed. The next connection then has the descriptor's number,
// and the event says nothing about it.
func TestAnEventOfAClosedConnectionSaysNothingAboutTheNext(t *testing.T) {
	first, next := connect(t), connect(t)
	gone := watch(t, first)
	var stale []unix.EpollEvent
	for i, events := range []uint32{unix.EPOLLRDHUP | unix.EPOLLHUP, unix.EPOLLIN | unix.EPOLLHUP} {
		stale = append(stale, unix.EpollEvent{Events: events, Fd: int32(gone.waits[i]), Pad: int32(gone.waits[i] >> 32)})
	}
	numbers := []int{gone.socket, gone.pidfd}
	gone.Close()
	p := watch(t, next)
	require.ElementsMatch(t, numbers, []int{p.socket, p.pidfd}, "the kernel gives out the lowest free numbers")
	for _, e := range stale {
		polling.happens(e)
	}
	assert.False(t, happened(p.Closed()), "another connection was closed")
	assert.False(t, happened(p.Exited()), "another process has ended")
}

// EPOLLHUP comes unasked. On its own it is not the end of a process.
func TestOnlyWhatWasAskedForHappens(t *testing.T) {
	p := watch(t, connect(t))
	polling.happens(unix.EpollEvent{Events: unix.EPOLLHUP, Fd: int32(p.waits[1]), Pad: int32(p.waits[1] >> 32)})
	assert.False(t, happened(p.Exited()))
}

// A peer that is closed is watched no longer.
func TestNothingIsLeftOfAClosedPeer(t *testing.T) {
	waits := func() int {
		polling.mu.Lock()
		defer polling.mu.Unlock()
		return len(polling.waits)
	}
	before := waits()
	p := watch(t, connect(t))
	assert.Greater(t, waits(), before)
	p.Close()
	assert.Equal(t, before, waits())
}

func TestAProcessIsNamedByItsOwnService(t *testing.T) {
	id := "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
	for group, want := range map[string]string{
		"/system.slice/billing.service":                                                    "billing.service",
		"/user.slice/user-1000.slice/user@1000.service/app.slice/x.scope":                  "",
		"/user.slice/user-1000.slice/user@1000.service/app.slice/job.service/worker.scope": "job.service",
		"/system.slice/docker-" + id + ".scope":                                            id[:12],
		"/":                                                                                "",
	} {
		assert.Equal(t, want, unitOf(group), group)
	}
}
