package agent

import (
	"time"

	"github.com/spindle-lock/spindle/internal/elect"
)

// attention is whether a program reads what it is sent. One that does not, for so long as it has asked for, loses its lock: it
// may be writing a core dump of gigabytes.
type attention struct {
	unread int           // at the last look, in bytes
	since  elect.Instant // when the program last read something, or had nothing to read
}

// stalled takes in how much is unread now, and reports whether the program has read nothing for so long.
func (a *attention) stalled(unread int, limit time.Duration, now elect.Instant) bool {
	if unread == 0 || unread < a.unread || a.since == (elect.Instant{}) {
		a.since = now
	}
	a.unread = unread
	return limit > 0 && now.Ran(a.since) >= limit
}

// watchReading returns when to look whether the program reads.
func (h *hold) watchReading() *time.Ticker {
	every := time.Hour
	if h.asked.stall > 0 {
		every = max(h.asked.stall/8, time.Millisecond)
	}
	return time.NewTicker(every)
}
