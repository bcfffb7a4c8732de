//go:build !unix || solaris || aix

package child

import (
	"errors"
	"os"
)

// ErrBusy says that another process has a Single.
var ErrBusy = errors.New("another process on this machine has it")

// A Single is had by one process of a machine at a time.
type Single struct{ File *os.File }

// NewSingle fails.
func NewSingle(string) (*Single, error) { return nil, errors.ErrUnsupported }

// End does nothing.
func (*Single) End() {}
