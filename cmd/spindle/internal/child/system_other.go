//go:build !unix

package child

import (
	"errors"
	"os"
	"os/exec"
)

// Supported returns an error if this system can't run programs under a lock.
func Supported() error {
	return errors.New("this command requires Unix process groups; without them, a program's children could outlive the lock")
}

func ownGroup(*exec.Cmd) error { return Supported() }

func ownSession(*exec.Cmd) error { return Supported() }

func inherited() (*os.File, []*os.File) { return os.Stderr, nil }

func inheritedFile(int) *os.File { return nil }

func closeOnExec(...int) {}

func become(string, []string) error { return Supported() }

func writeNow(*os.File, []byte) error { return Supported() }

func signalGroup(int, os.Signal) {}

func goOn(*os.Process) {}

func groupGone(int) bool { return false }

// await waits until the program exits.
func (c *Child) await() {
	_ = c.cmd.Wait() // ProcessState has the result
	c.code = c.cmd.ProcessState.ExitCode()
}

// Continue does nothing, because groups can't be stopped on this system.
func (c *Child) Continue() {}

const programsGetTTOU = false

func unignoreTTOU() {}
