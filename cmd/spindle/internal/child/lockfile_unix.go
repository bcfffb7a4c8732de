//go:build unix && !solaris && !aix

package child

import (
	"errors"
	"os"
	"syscall"
)

// ErrBusy is returned if another process holds a LockFile.
var ErrBusy = errors.New("another process on this machine holds the lock file")

// A LockFile is a file that only one process on a machine can hold at a time. If File is passed to a watchdog, the two
// processes hold the lock file together until both have exited.
type LockFile struct{ File *os.File }

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

// End removes and releases the lock file. No watchdog may still hold the file.
func (l *LockFile) End() {
	_ = os.Remove(l.File.Name())
	_ = l.File.Close()
}
