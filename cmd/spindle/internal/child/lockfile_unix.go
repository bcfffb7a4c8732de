//go:build unix && !solaris && !aix

package child

import (
	"errors"
	"os"
	"syscall"
)

// ErrBusy says that another process holds a LockFile.
var ErrBusy = errors.New("another process on this machine has it")

// A LockFile is a file that one process of a machine can hold at a time. A watchdog that gets its file holds it too, until
// both processes have ended.
type LockFile struct{ File *os.File }

// NewLockFile takes the lock file at path. It does not wait: it fails with ErrBusy if another process holds it.
func NewLockFile(path string) (*LockFile, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|syscall.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, err
	}
	err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if err == nil && !stillAt(path, f) {
		err = syscall.EWOULDBLOCK // its last owner has just removed it
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

// End releases the lock file. By then no watchdog may hold it.
func (l *LockFile) End() {
	_ = os.Remove(l.File.Name())
	_ = l.File.Close()
}
