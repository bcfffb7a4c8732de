package model

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"github.com/spindle-lock/spindle/cmd/spindle/internal/terminal"
	"github.com/spindle-lock/spindle/internal/operator"
)

const shownWaiters = 10

// howMany formats a number of waiters. The number is a lower limit if not all waiters were read.
func howMany(l operator.Listing, n int) string {
	if l.Cut {
		return fmt.Sprint("at least ", n)
	}
	return fmt.Sprint(n)
}

// Waiting returns in a few words how many processes wait for a lock. It returns "" if none do.
func Waiting(l operator.Listing) string {
	if len(l.Waiters) == 0 {
		return ""
	}
	return fmt.Sprintf("%s waiting, longest %s", howMany(l, len(l.Waiters)), terminal.Short(l.LongestWait()))
}

// WaiterLines returns a line for each of the first waiters.
func WaiterLines(l operator.Listing) string {
	n := len(l.Waiters)
	if n == 0 {
		return ""
	}
	var b strings.Builder
	if n == 1 && !l.Cut {
		b.WriteString("\n  1 process waits for it:")
	} else {
		fmt.Fprintf(&b, "\n  %s processes wait for it:", howMany(l, n))
	}
	for i, w := range l.Waiters[:min(n, shownWaiters)] {
		fmt.Fprintf(&b, "\n    %*d. %s, for %s", len(fmt.Sprint(min(n, shownWaiters))), i+1, cmp.Or(terminal.Show(w.ID), "an unknown process"), terminal.Short(l.At.Sub(w.Time.Time())))
		switch {
		case w.Key != "":
			b.WriteString(", to do " + terminal.Show(w.Key))
		case w.Set:
			b.WriteString(", together with other locks")
		}
	}
	if n > shownWaiters {
		fmt.Fprintf(&b, "\n    and %s more", howMany(l, n-shownWaiters))
	}
	return b.String()
}

// waiterJSON is the JSON form of a process that waits for a lock.
type waiterJSON struct {
	Place   int       `json:"place"` // from 1
	ID      string    `json:"id,omitempty"`
	Since   time.Time `json:"since"`
	Seconds float64   `json:"waiting_seconds"`
	Key     string    `json:"key,omitempty"` // the key of the work that the process wants to do once
	Set     bool      `json:"set,omitempty"` // the process waits for other locks as well
}

// StatusJSON is the JSON output of status for a lock.
type StatusJSON struct {
	LockJSON
	Waiters []waiterJSON `json:"waiters,omitempty"`
}

// StatusOf returns the StatusJSON for a lock.
func StatusOf(l operator.Listing) StatusJSON { return StatusJSON{JSONOf(l), waitersOf(l)} }

func waitersOf(l operator.Listing) (all []waiterJSON) {
	for i, w := range l.Waiters {
		since := w.Time.Time()
		all = append(all, waiterJSON{i + 1, w.ID, since, max(l.At.Sub(since), 0).Seconds(), w.Key, w.Set})
	}
	return all
}
