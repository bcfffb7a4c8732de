package child

import (
	"errors"
	"os"
)

// ErrBusy is returned if another process holds a LockFile.
var ErrBusy = errors.New("another process on this machine holds the lock file")

// A LockFile is a file that only one process on a machine can hold at a time. A process can share the lock file with
// its watchdog by passing File to the watchdog. The lock file then stays locked until both processes have closed it.
type LockFile struct{ *os.File }

// End removes and releases the lock file. No watchdog may still hold the file.
func (l *LockFile) End() {
	_ = os.Remove(l.Name())
	_ = l.Close()
}
