//go:build linux

package main

import (
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// In a container exec is PID 1, and nobody else waits for what its program leaves behind.
func TestAsPID1ExecLeavesNoZombies(t *testing.T) {
	atATerminal(t)
	s := newShell(t)
	program := s.script("program", `for i in 1 2 3 4 5; do (sleep 0.1 & setsid sleep 0.1 &) ; done; sleep 1; ps -e -o stat= -o comm=; echo end.`)
	out := namespaced(t, s, "spindle", "exec", "--name", "job", "-q", "--", program)
	assert.Contains(t, out, "end.")
	assert.NotRegexp(t, `(?m)^Z`, out, "exec has left a zombie, because it has not waited for a process")
	assert.Contains(t, out, "spindle")
}

// namespaced runs a command as PID 1 of a namespace, and returns what it prints.
func namespaced(t *testing.T, s *shell, args ...string) string {
	var said []string
	for _, way := range []string{"unshare -pf --mount-proc", "unshare -Urpf --mount-proc", "sudo -n -E unshare -pf --mount-proc"} {
		run := func(args ...string) (string, error) {
			all := append(strings.Fields(way), args...)
			c := exec.Command(all[0], all[1:]...)
			c.Dir, c.Env = s.dir, s.bash.Env
			out, err := c.CombinedOutput()
			return string(out), err
		}
		if out, err := run("true"); err != nil {
			said = append(said, way+": "+out+err.Error())
			continue
		}
		out, err := run(args...)
		require.NoError(t, err, out)
		return out
	}
	require.Fail(t, "no namespace of processes can be made: run this as root, or allow user namespaces", "%q", said)
	return ""
}
