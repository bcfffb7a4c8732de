package describe

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"github.com/spindle-lock/spindle/cmd/spindle/internal/terminal"
	"github.com/spindle-lock/spindle/internal/table"
)

const shownWaiters = 10

// howMany returns the number of waiters in words.
func howMany(l table.Listing, n int) string {
	if l.Cut {
		return fmt.Sprint("at least ", n)
	}
	return fmt.Sprint(n)
}

// Waiting says in a few words how many wait for a lock: "" if nobody does.
func Waiting(l table.Listing) string {
	if len(l.Waiters) == 0 {
		return ""
	}
	return fmt.Sprintf("%s waiting, %s the longest", howMany(l, len(l.Waiters)), terminal.Short(l.LongestWait()))
}

// WaiterLines has a line for each of the first waiters.
func WaiterLines(l table.Listing) string {
	n := len(l.Waiters)
	if n == 0 {
		return ""
	}
	var b strings.Builder
	if n == 1 && !l.Cut {
		b.WriteString("\n  1 waits for it:")
	} else {
		fmt.Fprintf(&b, "\n  %s wait for it:", howMany(l, n))
	}
	for i, w := range l.Waiters[:min(n, shownWaiters)] {
		fmt.Fprintf(&b, "\n    %*d. %s, for %s", len(fmt.Sprint(min(n, shownWaiters))), i+1, cmp.Or(terminal.Show(w.ID), "somebody"), terminal.Short(l.At.Sub(w.Time.Time())))
		switch {
		case w.Key != "":
			b.WriteString(", to do " + terminal.Show(w.Key))
		case w.Set:
			b.WriteString(", and for other locks too")
		}
	}
	if n > shownWaiters {
		fmt.Fprintf(&b, "\n    and %s more", howMany(l, n-shownWaiters))
	}
	return b.String()
}

// waiterJSON is one that waits for a lock, as scripts see it.
type waiterJSON struct {
	Place   int       `json:"place"` // from 1
	ID      string    `json:"id,omitempty"`
	Since   time.Time `json:"since"`
	Seconds float64   `json:"waiting_seconds"`
	Key     string    `json:"key,omitempty"` // of the work that it wants to do once
	Set     bool      `json:"set,omitempty"` // it waits for other locks, too
}

// StatusJSON is what status says of a lock, as scripts see it.
type StatusJSON struct {
	LockJSON
	Waiters []waiterJSON `json:"waiters,omitempty"`
}

// StatusOf returns a lock with its waiters.
func StatusOf(l table.Listing) StatusJSON { return StatusJSON{JSONOf(l), waitersOf(l)} }

func waitersOf(l table.Listing) (all []waiterJSON) {
	for i, w := range l.Waiters {
		since := w.Time.Time()
		all = append(all, waiterJSON{i + 1, w.ID, since, max(l.At.Sub(since), 0).Seconds(), w.Key, w.Set})
	}
	return all
}
