package child

import (
	"os"
	"os/exec"
	"runtime"
)

// Detach starts this program again in a new process, with the given environment and arguments, and returns without
// waiting for it to exit. The new process has its own session, so signals to this process's group don't reach it.
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
