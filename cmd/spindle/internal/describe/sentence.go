package describe

import (
	"fmt"
	"time"

	"github.com/spindle-lock/spindle/cmd/spindle/internal/terminal"
	"github.com/spindle-lock/spindle/internal/table"
)

// Sentence describes a lock in a few lines.
func Sentence(l table.Listing) string {
	text := standing(l)
	if done := DoneLine(l); done != "" {
		text += "\n  " + done
	}
	return text
}

// standing says whether a lock is held.
func standing(l table.Listing) string {
	name, token := terminal.Show(l.Name), l.Token
	age, since := terminal.Ago(l.At.Sub(l.Heartbeat)), terminal.Ago(l.At.Sub(l.Since()))
	switch l.State() {
	case table.Held, table.Leaving:
		s := fmt.Sprintf("%s is held by %s", name, terminal.Show(l.Holder()))
		if l.Leaving() {
			s += ", who is leaving: it will be released once the work has ended"
		}
		s += fmt.Sprintf("\n  token %v, for %s; last heartbeat %s, lease %v", token, terminal.Short(l.At.Sub(l.Since())), age, l.LeaseRecord.Lease)
		if l.LeaseRecord.Value != "" {
			s += "\n  value " + terminal.Show(l.LeaseRecord.Value)
		}
		return s + with(l)
	case table.Expired:
		return fmt.Sprintf("%s is free: the lease of %s has expired\n  token %v; last heartbeat %s, lease %v", name, terminal.Show(l.Holder()), token, age, l.LeaseRecord.Lease) + with(l)
	case table.Released:
		if l.Member.Name != "" {
			// Its slot may have had other terms since.
			return fmt.Sprintf("%s is free: the term of its member, %s, ended at least %s", name, terminal.Show(l.Member.Name), since)
		}
		return fmt.Sprintf("%s is free: it was released %s", name, since)
	case table.Unconfirmed:
		return fmt.Sprintf("%s is not held: %s claimed it %s, and may not act yet\n  token %v", name, terminal.Show(l.Holder()), age, token) + with(l)
	case table.Orphaned:
		if l.Adrift {
			return fmt.Sprintf("%s is not held: somebody deleted the row of its member, %s; it is free once that one's lease has passed", name, terminal.Show(l.Member.Name))
		}
		return fmt.Sprintf("%s is not held: somebody deleted its row; it is free once its last holder's lease has passed", name)
	case table.Unreadable:
		return fmt.Sprintf("%s is taken by %s, token %v", name, terminal.Show(l.Holder()), token)
	}
	return fmt.Sprintf("%s is free: nobody has claimed it yet, or its row was pruned", name)
}

// with says which member a partition is held with.
func with(l table.Listing) string {
	if l.Member.Name == "" {
		return ""
	}
	return "\n  it has the heartbeats of its member, " + terminal.Show(l.Member.Name)
}

// DoneLine says what was done last under a lock, if anything.
func DoneLine(l table.Listing) string {
	switch {
	case l.Undone != nil:
		return l.Undone.Error()
	case l.Done.Key == "":
		return ""
	}
	return "last done: " + terminal.Show(l.Done.Key) + ", " + WhenDone(l.Done, l.At)
}

// WhenDone says when something was done, and by whom.
func WhenDone(d table.Done, now time.Time) string {
	by := "somebody"
	if d.By != "" {
		by = terminal.Show(d.By)
	}
	return terminal.Ago(now.Sub(d.At)) + ", by " + by
}
