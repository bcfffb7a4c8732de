package peer

import (
	"os"
	"os/exec"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// Whatever the kernel answers about a process that has ended and been reaped, which depends on its version, the process counts as
// ended. One that runs does not, and an error that says nothing about the process is an error.
func TestAReapedProcessHasEndedInEveryKernel(t *testing.T) {
	reaped := exec.Command("true")
	require.NoError(t, reaped.Run())
	for _, c := range []struct {
		answer    error
		pid       int
		ended, ok bool
	}{
		{unix.ESRCH, reaped.Process.Pid, true, true}, {unix.EINVAL, reaped.Process.Pid, true, true}, {unix.ENOPROTOOPT, reaped.Process.Pid, true, true},
		{nil, os.Getpid(), false, true}, {unix.ENOPROTOOPT, os.Getpid(), false, true}, {unix.EMFILE, os.Getpid(), false, false},
	} {
		p := &Peer{Identity: Identity{PID: c.pid}, socket: -1, pidfd: -1, exited: make(chan struct{})}
		err := p.found(c.answer)
		ended := false
		select {
		case <-p.exited:
			ended = true
		default:
		}
		p.Close()
		assert.Equal(t, c.ok, err == nil, "%v", c.answer)
		assert.Equal(t, c.ended, ended, "%v", c.answer)
		assert.Equal(t, c.ok, p.CanExit(), "%v", c.answer)
	}
}
