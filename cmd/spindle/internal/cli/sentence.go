package cli

import (
	"fmt"
	"time"

	"github.com/spindle-lock/spindle/internal/table"
)

// sentence describes a lock in a few lines.
func sentence(l table.Listing) string {
	text := standing(l)
	if done := doneLine(l); done != "" {
		text += "\n  " + done
	}
	return text
}

// standing says whether a lock is held.
func standing(l table.Listing) string {
	name, token := show(l.Name), l.Token
	age, since := ago(l.At.Sub(l.Heartbeat)), ago(l.At.Sub(l.Since()))
	switch l.State() {
	case table.Held, table.Leaving:
		s := fmt.Sprintf("%s is held by %s", name, show(l.Holder()))
		if l.Leaving() {
			s += ", who is leaving: it will be released once the work has ended"
		}
		s += fmt.Sprintf("\n  token %v, for %s; last heartbeat %s, lease %v", token, short(l.At.Sub(l.Since())), age, l.LeaseRecord.Lease)
		if l.LeaseRecord.Value != "" {
			s += "\n  value " + show(l.LeaseRecord.Value)
		}
		return s + with(l)
	case table.Expired:
		return fmt.Sprintf("%s is free: the lease of %s has expired\n  token %v; last heartbeat %s, lease %v", name, show(l.Holder()), token, age, l.LeaseRecord.Lease) + with(l)
	case table.Released:
		if l.Member.Name != "" {
			// Its slot may have had other terms since.
			return fmt.Sprintf("%s is free: the term of its member, %s, ended at least %s", name, show(l.Member.Name), since)
		}
		return fmt.Sprintf("%s is free: it was released %s", name, since)
	case table.Unconfirmed:
		return fmt.Sprintf("%s is not held: %s claimed it %s, and may not act yet\n  token %v", name, show(l.Holder()), age, token) + with(l)
	case table.Orphaned:
		if l.Adrift {
			return fmt.Sprintf("%s is not held: somebody deleted the row of its member, %s; it is free once that one's lease has passed", name, show(l.Member.Name))
		}
		return fmt.Sprintf("%s is not held: somebody deleted its row; it is free once its last holder's lease has passed", name)
	case table.Unreadable:
		return fmt.Sprintf("%s is taken by %s, token %v", name, show(l.Holder()), token)
	}
	return fmt.Sprintf("%s is free: nobody has claimed it yet, or its row was pruned", name)
}

// with says which member a partition is held with.
func with(l table.Listing) string {
	if l.Member.Name == "" {
		return ""
	}
	return "\n  it has the heartbeats of its member, " + show(l.Member.Name)
}

// doneLine says what was done last under a lock, if that is so.
func doneLine(l table.Listing) string {
	switch {
	case l.Undone != nil:
		return l.Undone.Error()
	case l.Done.Key == "":
		return ""
	}
	return "last done: " + show(l.Done.Key) + ", " + whenDone(l.Done, l.At)
}

// whenDone says when something was done, and by whom.
func whenDone(d table.Done, now time.Time) string {
	by := "somebody"
	if d.By != "" {
		by = show(d.By)
	}
	return ago(now.Sub(d.At)) + ", by " + by
}
