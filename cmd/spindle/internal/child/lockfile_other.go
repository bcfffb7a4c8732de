//go:build !unix || solaris || aix

package child

import "errors"

// NewLockFile returns an error, because there is no flock.
func NewLockFile(string) (*LockFile, error) { return nil, errors.ErrUnsupported }
