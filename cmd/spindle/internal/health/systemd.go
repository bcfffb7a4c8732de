package health

import (
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"

	"github.com/spindle-lock/spindle/cmd/spindle/internal/terminal"
)

// Variables are the environment variables that systemd sets to ask this process for reports. They must be removed from
// the environment of the programs that this process starts, so that no program reports in this process's place.
var Variables = []string{"NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID"}

// A Unit reports the state of this process to systemd. All methods except End return immediately, even if systemd does
// not read the reports. On a nil *Unit, the methods do nothing.
type Unit struct {
	asks chan<- struct{}
	ping time.Duration // the time between two pings, or 0 for no pings
	wake chan struct{}
	quit chan struct{}
	done chan struct{}

	mu      sync.Mutex        // guards the rest
	pending []string          // assignments that have not been sent, each variable once
	last    map[string]string // the last assignment to each variable
}

// Notify starts the reports to systemd, or returns nil if systemd did not ask for reports. The main loop must receive
// from asks. As long as it does, the Unit pings systemd's watchdog, if the service has one.
func Notify(asks chan<- struct{}) *Unit {
	if os.Getenv("NOTIFY_SOCKET") == "" {
		return nil
	}
	limit, _ := daemon.SdWatchdogEnabled(false)
	u := &Unit{asks: asks, ping: limit / 3, last: map[string]string{}, wake: make(chan struct{}, 1), quit: make(chan struct{}), done: make(chan struct{})}
	go u.report()
	return u
}

// Ready reports, once, that the process has started.
func (u *Unit) Ready() { u.say(daemon.SdNotifyReady) }

// Stopping reports that the process is about to exit.
func (u *Unit) Stopping() { u.say(daemon.SdNotifyStopping) }

// Status sets the text that systemctl status shows until Status is called again. Line breaks are escaped, because
// systemd reads each line as a separate assignment.
func (u *Unit) Status(text string) { u.say("STATUS=" + terminal.Escape(text)) }

// End sends the remaining reports and stops the Unit. It waits for at most a second.
func (u *Unit) End() {
	if u == nil {
		return
	}
	close(u.quit)
	select {
	case <-u.done:
	case <-time.After(time.Second):
	}
}

// say queues an assignment if it changes the variable. The assignment replaces a pending one to the same variable.
func (u *Unit) say(line string) {
	if u == nil {
		return
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	variable, _, _ := strings.Cut(line, "=")
	if line == u.last[variable] {
		return
	}
	u.last[variable] = line
	u.pending = append(slices.DeleteFunc(u.pending, func(p string) bool { return strings.HasPrefix(p, variable+"=") }), line)
	select {
	case u.wake <- struct{}{}:
	default:
	}
}

// report sends reports, and pings systemd's watchdog each time the main loop answers. If the main loop hangs, the pings
// stop, so that systemd notices the hang.
func (u *Unit) report() {
	defer close(u.done)
	asks, next := u.asks, (<-chan time.Time)(nil)
	if u.ping == 0 {
		asks = nil
	}
	for {
		select {
		case <-u.wake:
			u.send()
		case asks <- struct{}{}:
			_, _ = daemon.SdNotify(false, daemon.SdNotifyWatchdog)
			asks, next = nil, time.After(u.ping)
		case <-next:
			asks = u.asks
		case <-u.quit:
			u.send()
			return
		}
	}
}

// send sends the pending reports. Errors are ignored, because they can't be reported to systemd either.
func (u *Unit) send() {
	u.mu.Lock()
	lines := u.pending
	u.pending = nil
	u.mu.Unlock()
	if len(lines) > 0 {
		_, _ = daemon.SdNotify(false, strings.Join(lines, "\n"))
	}
}
