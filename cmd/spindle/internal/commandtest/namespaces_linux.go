package commandtest

import (
	"errors"
	"os"
	"os/exec"
	"syscall"
	"testing"
)

// InNamespaces runs a command in new namespaces of the given kinds, and returns what it prints. It skips the test if this
// user may not create namespaces.
func InNamespaces(t *testing.T, c *exec.Cmd, kinds uintptr) string {
	t.Helper()
	c.SysProcAttr = &syscall.SysProcAttr{Cloneflags: kinds}
	if os.Getuid() != 0 {
		c.SysProcAttr.Cloneflags |= syscall.CLONE_NEWUSER
	}
	out, err := c.Output()
	if errors.Is(err, syscall.EPERM) {
		t.Skip("no namespaces for this user")
	}
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return string(out)
}
