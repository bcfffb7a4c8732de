package model

import (
	"fmt"
	"time"

	"github.com/spindle-lock/spindle/cmd/spindle/internal/terminal"
	"github.com/spindle-lock/spindle/internal/operator"
	"github.com/spindle-lock/spindle/internal/table"
)

// Sentence describes a lock in a few lines.
func Sentence(l operator.Listing) string {
	text := standing(l)
	if done := DoneLine(l); done != "" {
		text += "\n  " + done
	}
	return text
}

// standing describes whether a lock is held, and by which holder.
func standing(l operator.Listing) string {
	name, token := terminal.Show(l.Name), l.Token
	age, since := terminal.Ago(l.At.Sub(l.Heartbeat)), terminal.Ago(l.At.Sub(l.Since()))
	switch l.State() {
	case operator.Held, operator.Leaving:
		s := fmt.Sprintf("%s is held by %s", name, terminal.Show(l.Holder()))
		if l.Leaving() {
			s += ", which is leaving and will release it once its work has ended"
		}
		s += fmt.Sprintf("\n  token %v, held for %s; last heartbeat %s, lease %v", token, terminal.Short(l.At.Sub(l.Since())), age, l.LeaseRecord.Lease)
		if l.LeaseRecord.Value != "" {
			s += "\n  value " + terminal.Show(l.LeaseRecord.Value)
		}
		return s + with(l)
	case operator.Expired:
		return fmt.Sprintf("%s is free: the lease of %s has expired\n  token %v; last heartbeat %s, lease %v", name, terminal.Show(l.Holder()), token, age, l.LeaseRecord.Lease) + with(l)
	case operator.Released:
		if l.Member.Name != "" {
			// Its slot may have had other terms since.
			return fmt.Sprintf("%s is free: the member that held it, %s, ended its term at least %s", name, terminal.Show(l.Member.Name), since)
		}
		return fmt.Sprintf("%s is free: it was released %s", name, since)
	case operator.Paused:
		return fmt.Sprintf("%s is paused: the program of the member to which it is assigned, %s, has paused it %s", name, terminal.Show(l.Member.Name), since)
	case operator.Unconfirmed:
		return fmt.Sprintf("%s is not held: %s claimed it %s and has not confirmed the claim yet\n  token %v", name, terminal.Show(l.Holder()), age, token) + with(l)
	case operator.Orphaned:
		if l.Adrift {
			return fmt.Sprintf("%s is not held, because the lock row of its member, %s, was deleted; the partition will be free when the member's lease expires", name, terminal.Show(l.Member.Name))
		}
		return fmt.Sprintf("%s is not held, because its lock row was deleted; the lock will be free when its last holder's lease expires", name)
	case operator.Unreadable:
		return fmt.Sprintf("%s is taken by %s, token %v", name, terminal.Show(l.Holder()), token)
	}
	return fmt.Sprintf("%s is free: it was never claimed, or its row was pruned", name)
}

// with returns a line that names the member that holds a partition.
func with(l operator.Listing) string {
	if l.Member.Name == "" {
		return ""
	}
	return "\n  its heartbeats are sent by a member of the group, " + terminal.Show(l.Member.Name)
}

// DoneLine describes the work that was last done under a lock. It returns "" if there is none.
func DoneLine(l operator.Listing) string {
	switch {
	case l.Undone != nil:
		return l.Undone.Error()
	case l.Done.Key == "":
		return ""
	}
	return "last done: " + terminal.Show(l.Done.Key) + ", " + WhenDone(l.Done, l.At)
}

// WhenDone returns when work was done, and by which holder.
func WhenDone(d table.Done, now time.Time) string {
	by := "an unknown holder"
	if d.By != "" {
		by = terminal.Show(d.By)
	}
	return terminal.Ago(now.Sub(d.At)) + ", by " + by
}
