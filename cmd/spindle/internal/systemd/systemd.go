// Package systemd reports this process's state to systemd, if its unit has Type=notify or WatchdogSec=.
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

// Variables are the environment variables by which systemd asks this process to report. Programs that it starts must not
// report in its place.
var Variables = []string{"NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID"}

// A Unit is this process as systemd sees it. Its methods return at once: a systemd that does not read delays nobody. They do
// nothing if systemd did not ask, or the Unit is nil.
type Unit struct {
	asks chan<- struct{}
	ping time.Duration // between two pings; 0: none
	wake chan struct{}
	quit chan struct{}
	done chan struct{}

	mu      sync.Mutex // guards the rest, which is to be sent
	states  []string
	status  string
	pending bool // status
}

// Begin begins to report. It sends pings for systemd's watchdog only while the loop answers, by receiving from asks.
func Begin(asks chan<- struct{}) *Unit {
	if os.Getenv("NOTIFY_SOCKET") == "" {
		return nil
	}
	limit, _ := daemon.SdWatchdogEnabled(false)
	u := &Unit{asks: asks, ping: limit / 3, wake: make(chan struct{}, 1), quit: make(chan struct{}), done: make(chan struct{})}
	go u.report()
	return u
}

// Ready says that the process has started.
func (u *Unit) Ready() { u.say(daemon.SdNotifyReady) }

// Stopping says that the process ends.
func (u *Unit) Stopping() { u.say(daemon.SdNotifyStopping) }

// Status reports a line for people; systemctl status shows the last one.
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

// End waits until all is sent, but not for long.
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

// send sends what is pending. What systemd does not take is lost: there is nobody to tell.
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

// pings sends systemd's watchdog a ping for each answer of the loop. While the loop does not answer there are no pings, so
// systemd notices.
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

// oneLine keeps a text from saying more than a status: to systemd each line is an assignment.
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
