//go:build unix && !solaris && !aix

package child

import (
	"errors"
	"os"
	"syscall"
)

// NewLockFile takes the lock file at path. If another process holds it, NewLockFile immediately returns ErrBusy.
func NewLockFile(path string) (*LockFile, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|syscall.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, err
	}
	err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if err == nil && !stillAt(path, f) {
		err = syscall.EWOULDBLOCK // the last holder has just removed the file
	}
	switch {
	case err == nil:
		return &LockFile{f}, nil
	case errors.Is(err, syscall.EWOULDBLOCK):
		err = ErrBusy
	}
	_ = f.Close()
	return nil, err
}

func stillAt(path string, f *os.File) bool {
	there, err := os.Stat(path)
	if err != nil {
		return false
	}
	mine, err := f.Stat()
	return err == nil && os.SameFile(there, mine)
}
