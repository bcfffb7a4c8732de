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

// A story is what the last look saw, by name.
type story map[string]table.Listing

// next lists what has changed since the last look, in the order of the names. Heartbeats don't count. A term that
// began and ended between two looks is missed.
func (s *story) next(l look) []change {
	var all []change
	now := story{}
	for _, lock := range l.locks {
		now[lock.Name] = lock
		was, known := (*s)[lock.Name]
		if known && was.State() == lock.State() && was.Token == lock.Token {
			continue
		}
		text := what(lock)
		if known && lock.State() == table.Free {
			text = gone
		}
		all = append(all, change{At: when(was, lock), Lock: lock, Text: text})
	}
	for name, was := range *s {
		if _, present := now[name]; !present && was.State() != table.Free {
			none := table.Listing{Observation: table.Observation{Name: name, At: l.at}}
			all = append(all, change{At: l.at, Lock: none, Text: gone})
		}
	}
	*s = now
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
