package child

import (
	"os"
	"os/exec"
	"runtime"
)

// Detach runs this program again, with this environment and these arguments. It has its own session, so that a signal to
// this process's group does not reach it. Detach does not wait for it.
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
	go func() { _ = c.Wait() }() // it logs its own errors
	return nil
}

// itself returns the path of this program.
func itself() (string, error) {
	if runtime.GOOS == "linux" {
		return "/proc/self/exe", nil // the same program even if the file is replaced
	}
	return os.Executable()
}
