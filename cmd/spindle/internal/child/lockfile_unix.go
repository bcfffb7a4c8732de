//go:build unix && !solaris && !aix

package child

import (
	"errors"
	"os"
	"syscall"
)

// ErrBusy says that another process has a LockFile.
var ErrBusy = errors.New("another process on this machine has it")

// A LockFile is had by one process of a machine at a time: by the one that made it, and by a watchdog to which its
// file is handed, until both have ended.
type LockFile struct{ File *os.File }

// NewLockFile takes what path stands for. It does not wait: it fails with ErrBusy if another process has it.
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

// End lets others have it. No watchdog may have it any more.
func (l *LockFile) End() {
	_ = os.Remove(l.File.Name())
	_ = l.File.Close()
}
