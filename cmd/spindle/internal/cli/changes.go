package cli

import (
	"fmt"
	"time"

	"github.com/spindle-lock/spindle/internal/table"
)

// A change is what happened to a lock between two looks.
type change struct {
	At   time.Time // by Spanner's clock, as exactly as the table shows it
	Lock table.Listing
	Text string
}

const gone = "gone: its row was pruned, or somebody deleted it"

// changes lists what has changed, in the order of the names. Heartbeats don't count. A term that began and
// ended between two looks is missed.
func changes(before map[string]table.Listing, now []table.Listing, at time.Time) []change {
	var all []change
	for _, l := range now {
		was, known := before[l.Name]
		if known && was.State() == l.State() && was.Token == l.Token {
			continue
		}
		text := what(l)
		if known && l.State() == table.Free {
			text = gone
		}
		all = append(all, change{At: when(was, l), Lock: l, Text: text})
	}
	present := map[string]bool{}
	for _, l := range now {
		present[l.Name] = true
	}
	for name, was := range before {
		if !present[name] && was.State() != table.Free {
			none := table.Listing{Observation: table.Observation{Name: name, At: at}}
			all = append(all, change{At: at, Lock: none, Text: gone})
		}
	}
	return all
}

func when(was, l table.Listing) time.Time {
	switch s := l.State(); {
	case (l.IsHeld() || s == table.Unconfirmed) && l.Token != was.Token:
		return l.Token.Time()
	case s == table.Expired:
		return l.Heartbeat.Add(l.Promise.Lease)
	}
	return l.At
}

func what(l table.Listing) string {
	switch l.State() {
	case table.Held:
		text := fmt.Sprintf("held by %s, token %v", show(l.Holder()), l.Token)
		if l.Promise.Value != "" {
			text += ", value " + show(l.Promise.Value)
		}
		return text
	case table.Leaving:
		return fmt.Sprintf("leaving: %s will release it once its work has ended", show(l.Holder()))
	case table.Expired:
		return fmt.Sprintf("expired, %v after the last heartbeat of %s", l.Promise.Lease, show(l.Holder()))
	case table.Released:
		return "released"
	case table.Unconfirmed:
		return "claimed by " + show(l.Holder())
	case table.Orphaned:
		return "orphaned: somebody deleted its row"
	case table.Unreadable:
		return "unreadable: its lease row does not say how long its holder may act"
	}
	return "free: nobody has claimed it yet, or its row was pruned"
}
