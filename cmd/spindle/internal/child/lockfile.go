package child

import (
	"errors"
	"os"
)

// ErrBusy means that another process holds the lock file.
var ErrBusy = errors.New("another process on this machine holds the lock file")

// A LockFile is a file that only one process on a machine can hold at a time. A process can share the lock file with
// its watchdog by passing File to the watchdog. The lock file then stays locked until both processes have closed it.
type LockFile struct{ *os.File }

// End removes and releases the lock file. Call it only if no watchdog holds the file any more.
func (l *LockFile) End() {
	_ = os.Remove(l.Name())
	_ = l.Close()
}
