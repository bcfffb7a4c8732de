package health

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"
)

// Pings receives a program's watchdog pings, as systemd would, and calls the given function for each ping. The program
// needs the returned variables in its environment. They tell it where to send pings, and that the time between two
// pings must be shorter than the limit.
func Pings(limit time.Duration, ping func()) (environment []string, stop func(), err error) {
	dir, err := os.MkdirTemp("", "spindle-") // only this user can write to it
	if err != nil {
		return nil, nil, err
	}
	at := &net.UnixAddr{Net: "unixgram", Name: filepath.Join(dir, "notify")}
	on, err := net.ListenUnixgram(at.Net, at)
	if err != nil {
		_ = os.RemoveAll(dir)
		return nil, nil, fmt.Errorf("%w; if the path is too long for a socket, set TMPDIR to a directory with a shorter one", err)
	}
	go func() {
		message := make([]byte, 4096)
		for {
			n, err := on.Read(message)
			if err != nil {
				return
			}
			if slices.Contains(strings.Split(string(message[:n]), "\n"), daemon.SdNotifyWatchdog) {
				ping()
			}
		}
	}()
	stop = func() {
		_ = on.Close()
		_ = os.RemoveAll(dir)
	}
	return []string{"NOTIFY_SOCKET=" + at.Name, fmt.Sprintf("WATCHDOG_USEC=%d", limit.Microseconds())}, stop, nil
}
