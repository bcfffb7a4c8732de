// Package systemd reports this process's state to systemd if the unit has Type=notify or WatchdogSec=.
package systemd

import (
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"
)

// Variables are the environment variables with which systemd asks this process for reports. They must be removed from
// the environment of other programs, which must not report in place of this process.
var Variables = []string{"NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID"}

// A Unit reports the state of this process to systemd. Its methods return immediately, even if systemd does not read
// the reports. On a nil *Unit, they do nothing.
type Unit struct {
	asks chan<- struct{}
	ping time.Duration // the time between two pings, or 0 for no pings
	wake chan struct{}
	quit chan struct{}
	done chan struct{}

	mu      sync.Mutex // guards the fields below, which wait to be sent
	states  []string
	status  string
	pending bool // status has not been sent
}

// Begin starts the reports. It returns nil if systemd did not ask for them. It sends pings to systemd's watchdog only
// while the main loop answers by receiving from asks.
func Begin(asks chan<- struct{}) *Unit {
	if os.Getenv("NOTIFY_SOCKET") == "" {
		return nil
	}
	limit, _ := daemon.SdWatchdogEnabled(false)
	u := &Unit{asks: asks, ping: limit / 3, wake: make(chan struct{}, 1), quit: make(chan struct{}), done: make(chan struct{})}
	go u.report()
	return u
}

// Ready reports that the process has started.
func (u *Unit) Ready() { u.say(daemon.SdNotifyReady) }

// Stopping reports that the process is about to exit.
func (u *Unit) Stopping() { u.say(daemon.SdNotifyStopping) }

// Status reports a line of text. The command systemctl status shows the last one.
func (u *Unit) Status(text string) {
	if u == nil {
		return
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	if text = oneLine(text); text == u.status {
		return
	}
	u.status, u.pending = text, true
	u.wakeUp()
}

// End sends the remaining reports, but waits for at most a second.
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

func (u *Unit) say(state string) {
	if u == nil {
		return
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	if !slices.Contains(u.states, state) {
		u.states = append(u.states, state)
	}
	u.wakeUp()
}

func (u *Unit) wakeUp() {
	select {
	case u.wake <- struct{}{}:
	default:
	}
}

func (u *Unit) report() {
	defer close(u.done)
	if u.ping > 0 {
		go u.pings()
	}
	for {
		select {
		case <-u.wake:
			u.send()
		case <-u.quit:
			u.send()
			return
		}
	}
}

// send sends the pending reports. Errors are ignored, because they can't be reported to systemd either.
func (u *Unit) send() {
	u.mu.Lock()
	lines := u.states
	u.states = nil
	if u.pending {
		lines = append(lines, "STATUS="+u.status)
		u.pending = false
	}
	u.mu.Unlock()
	if len(lines) > 0 {
		_, _ = daemon.SdNotify(false, strings.Join(lines, "\n"))
	}
}

// pings sends systemd's watchdog a ping for each answer of the main loop. If the loop does not answer, there are no
// pings, so systemd notices that the loop hangs.
func (u *Unit) pings() {
	every := time.NewTicker(u.ping)
	defer every.Stop()
	for {
		select {
		case u.asks <- struct{}{}:
			u.say(daemon.SdNotifyWatchdog)
		case <-u.quit:
			return
		}
		select {
		case <-every.C:
		case <-u.quit:
			return
		}
	}
}

// oneLine escapes line breaks, so that a text can't set anything but the status. To systemd, each line is an
// assignment.
func oneLine(text string) string {
	var b strings.Builder
	for _, r := range text {
		if strconv.IsGraphic(r) {
			b.WriteRune(r)
		} else {
			b.WriteString(strings.Trim(strconv.QuoteRuneToASCII(r), "'"))
		}
	}
	return b.String()
}
