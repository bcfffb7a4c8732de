//go:build !unix

package child

import (
	"errors"
	"os"
	"os/exec"
)

// Supported returns why programs can't be run on this system, or nil.
func Supported() error {
	return errors.New("this needs the process groups of a Unix system, without which a program's children would outlive the lock")
}

func ownGroup(*exec.Cmd) error { return Supported() }

func ownSession(*exec.Cmd) error { return Supported() }

func inherited() *os.File { return os.Stderr }

func inheritedFile(int) *os.File { return nil }

func closeOnExec(...int) {}

func become(string, []string) error { return Supported() }

func writeNow(*os.File, []byte) error { return Supported() }

func signalGroup(int, os.Signal) {}

func goOn(*os.Process) {}

func killGroup(int) {}

func groupGone(int) bool { return false }
