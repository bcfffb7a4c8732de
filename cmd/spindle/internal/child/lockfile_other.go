//go:build !unix || solaris || aix

package child

import (
	"errors"
	"os"
)

// ErrBusy says that another process holds a LockFile.
var ErrBusy = errors.New("another process on this machine has it")

// A LockFile is a file that one process of a machine can hold at a time.
type LockFile struct{ File *os.File }

// NewLockFile fails.
func NewLockFile(string) (*LockFile, error) { return nil, errors.ErrUnsupported }

// End does nothing.
func (*LockFile) End() {}
