package child

import (
	"os"
	"os/exec"
	"runtime"
)

// Detach starts a new process that runs this program with the given environment and arguments. It does not wait until
// the new process exits. The process has its own session, so that a signal to this process's group does not reach it.
func Detach(env []string, args ...string) error {
	self, err := itself()
	if err != nil {
		return err
	}
	c := exec.Command(self, args...)
	c.Args[0], c.Env = os.Args[0], env
	c.Stdout, c.Stderr = os.Stderr, os.Stderr
	if err := ownSession(c); err != nil {
		return err
	}
	if err := c.Start(); err != nil {
		return err
	}
	go func() { _ = c.Wait() }() // the process logs its own errors
	return nil
}

// itself returns the path of this program's executable.
func itself() (string, error) {
	if runtime.GOOS == "linux" {
		return "/proc/self/exe", nil // the same program, even if the file has been replaced
	}
	return os.Executable()
}
