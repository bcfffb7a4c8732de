//go:build !unix || solaris || aix

package child

import (
	"errors"
	"os"
)

// ErrBusy is returned if another process holds a LockFile.
var ErrBusy = errors.New("another process on this machine holds the lock file")

// A LockFile is a file that only one process on a machine can hold at a time.
type LockFile struct{ File *os.File }

// NewLockFile returns an error.
func NewLockFile(string) (*LockFile, error) { return nil, errors.ErrUnsupported }

// End does nothing.
func (*LockFile) End() {}
