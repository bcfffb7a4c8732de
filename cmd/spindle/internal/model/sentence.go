package model

import (
	"cmp"
	"errors"
	"fmt"
	"strings"
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
			s += ", which is leaving and will release the lock once its work has ended"
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
		return fmt.Sprintf("%s is paused by the program of its member, %s; it was last released %s", name, terminal.Show(l.Member.Name), since)
	case operator.Unconfirmed:
		return fmt.Sprintf("%s is not held: %s claimed it %s and has not confirmed the claim yet\n  token %v", name, terminal.Show(l.Holder()), age, token) + with(l)
	case operator.Orphaned:
		if l.Adrift {
			return fmt.Sprintf("%s is not held, because %s; other members can claim the partition once that member's lease has certainly expired", name, whatWasDeleted(l))
		}
		return fmt.Sprintf("%s is not held, because %s; candidates can claim the lock once its last holder's lease has certainly expired", name, whatWasDeleted(l))
	case operator.Unreadable:
		return fmt.Sprintf("%s may be held by %s under token %v, but its lease row can't be read", name, cmp.Or(terminal.Show(l.Holder()), "an unknown process"), token)
	}
	return fmt.Sprintf("%s is free: it was never claimed, or its row was pruned", name)
}

// whatWasDeleted says which row of an orphaned lock is missing.
func whatWasDeleted(l operator.Listing) string {
	if l.Adrift {
		return "the lock row of its member, " + terminal.Show(l.Member.Name) + ", was deleted"
	}
	return "its lock row was deleted"
}

// with returns a line that names the member that holds a partition.
func with(l operator.Listing) string {
	if l.Member.Name == "" {
		return ""
	}
	return "\n  its heartbeats are sent by a member of the group, " + terminal.Show(l.Member.Name)
}

const lastDone = "last done: "

// DoneLine describes the work that was last done under a lock. It returns "" if there is none.
func DoneLine(l operator.Listing) string {
	switch {
	case l.Undone != nil:
		return l.Undone.Error()
	case l.Done.Key == "":
		return ""
	}
	return lastDone + terminal.Show(l.Done.Key) + ", " + WhenDone(l.Done, l.At)
}

// WhenDone returns when work was done, and by which holder.
func WhenDone(d table.Done, now time.Time) string {
	by := "an unknown holder"
	if d.By != "" {
		by = terminal.Show(d.By)
	}
	return terminal.Ago(now.Sub(d.At)) + ", by " + by
}

// Change describes the new state of a lock in a few words.
func Change(l operator.Listing) string {
	switch l.State() {
	case operator.Held:
		text := fmt.Sprintf("held by %s, token %v", terminal.Show(l.Holder()), l.Token)
		if l.LeaseRecord.Value != "" {
			text += ", value " + terminal.Show(l.LeaseRecord.Value)
		}
		return text
	case operator.Leaving:
		return fmt.Sprintf("leaving: %s will release the lock once its work has ended", terminal.Show(l.Holder()))
	case operator.Expired:
		return fmt.Sprintf("expired, %v after the last heartbeat of %s", l.LeaseRecord.Lease, terminal.Show(l.Holder()))
	case operator.Released:
		if l.Done.Key != "" && table.TokenAt(l.Done.At) == l.Token { // one commit did both
			return "released: " + terminal.Show(l.Done.Key) + " is done"
		}
		return "released"
	case operator.Paused:
		return "paused by the program of its member, " + terminal.Show(l.Member.Name)
	case operator.Unconfirmed:
		return "claimed by " + terminal.Show(l.Holder())
	case operator.Orphaned:
		return "orphaned: " + whatWasDeleted(l)
	case operator.Unreadable:
		if errors.Is(l.Unreadable, table.ErrNewer) {
			return "unreadable: " + l.Unreadable.Error()
		}
		return "unreadable: the lease row does not say how long the holder may act"
	}
	if done := DoneLine(l); done != "" {
		return "free; " + done
	}
	return "free: it was never claimed, or its row was pruned"
}

// Leaderless lists the locks that have no holder, each with the reason. If every lock has a holder, it returns "". A
// lock that can't be read counts as held.
func Leaderless(found []operator.Listing) string {
	var all []string
	for _, l := range found {
		if l.IsHeld() || l.State() == operator.Unreadable {
			continue
		}
		all = append(all, terminal.Show(l.Name)+" ("+whyNobody(l)+")")
	}
	return strings.Join(all, ", ")
}

// whyNobody returns the reason why a lock has no holder.
func whyNobody(l operator.Listing) string {
	switch l.State() {
	case operator.Released:
		return "released " + terminal.Ago(l.At.Sub(l.Since()))
	case operator.Expired:
		return "expired " + terminal.Ago(l.At.Sub(l.Heartbeat)-l.LeaseRecord.Lease)
	case operator.Unconfirmed:
		return "claimed by " + terminal.Show(l.Holder()) + ", which has not confirmed its claim yet"
	case operator.Orphaned:
		return whatWasDeleted(l)
	case operator.Paused:
		return "paused by the program of its member"
	}
	return "never claimed, or its row was pruned"
}

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
		fmt.Fprintf(&b, "\n    %*d. %s, for %s", len(fmt.Sprint(min(n, shownWaiters))), i+1, cmp.Or(terminal.Show(w.ID), "an unknown process"), terminal.Short(l.At.Sub(w.Since())))
		switch {
		case w.Key != "":
			b.WriteString(", to do " + terminal.Show(w.Key))
		case w.Set:
			b.WriteString(", together with other locks")
		}
		if said := notified(l, w); said != "" && (w.Notify != "" || l.LeaseRecord.Notify != "") { // most locks are used without notifications
			b.WriteString(", " + said)
		}
	}
	if n > shownWaiters {
		fmt.Fprintf(&b, "\n    and %s more", howMany(l, n-shownWaiters))
	}
	return b.String()
}
