package view

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spindle-lock/spindle/cmd/spindle/internal/model"
	"github.com/spindle-lock/spindle/cmd/spindle/internal/terminal"
	"github.com/spindle-lock/spindle/internal/operator"
	"github.com/spindle-lock/spindle/internal/table"
)

// A change describes how a lock, or partitions of a group, have changed between two reads.
type change struct {
	At    time.Time // by Spanner's clock, as exactly as the table shows it
	Name  string
	State operator.State
	Text  string
	JSON  any
}

func changed(at time.Time, l operator.Listing, text string) change {
	return change{at, l.Name, l.State(), text, model.JSONOf(l)}
}

const gone = "its row was pruned or deleted"

// A story has the locks as the last read has shown them.
type story struct {
	locks map[string]operator.Listing // as of the last read
	had   map[string]string           // the holder of each partition, or its last holder
}

// next returns the changes between the previous read and l. A new heartbeat is not a change. A term that begins and
// ends between two reads is missed.
func (s *story) next(l look) []change {
	if s.had == nil {
		s.had = map[string]string{}
	}
	before := s.locks
	s.locks = map[string]operator.Listing{}
	var all []change
	for _, lock := range l.locks {
		all = append(all, s.note(before, lock)...)
	}
	for _, g := range l.groups {
		for _, m := range g.Members {
			all = append(all, s.note(before, m)...)
		}
		all = append(all, s.moves(before, g)...)
	}
	for _, name := range absent(before, s.locks) {
		all = append(all, changed(l.at, operator.Listing{Observation: table.Observation{Name: name, At: l.at}}, gone))
	}
	return all
}

// absent returns the locks that had rows before and are missing now, in the order of their names.
func absent(before, now map[string]operator.Listing) (names []string) {
	for name, was := range before {
		if _, here := now[name]; !here && was.State() != operator.Free {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// note returns the changes of one lock.
func (s *story) note(before map[string]operator.Listing, lock operator.Listing) []change {
	s.locks[lock.Name] = lock
	was, known := before[lock.Name]
	if known && was.State() == lock.State() && was.Token == lock.Token {
		return nil
	}
	if before != nil && !known && lock.State() == operator.Free && model.DoneLine(lock) == "" {
		return nil // a process has begun to wait for it
	}
	text := what(lock)
	switch part, _ := table.PartOf(lock.Name); {
	case known && lock.State() == operator.Free:
		text = gone
	case !lock.IsPart() || part.Partition != "":
	case lock.State() == operator.Held && was.State() == operator.Expired && was.Token == lock.Token:
		text = "heard from again: " + terminal.Show(lock.Holder())
	case lock.State() == operator.Held:
		text = "joined by " + strings.TrimPrefix(text, heldBy)
	case lock.State() == operator.Leaving:
		text = terminal.Show(lock.Holder()) + " is leaving"
	case lock.State() == operator.Released && !known:
		return nil // a slot that was in use once
	case lock.State() == operator.Released && was.Holder() != "":
		text = parted(was, lock.Since())
	}
	return []change{changed(when(was, lock), lock, text)}
}

// parted describes how a member's term ended. Was is the last listing that showed the term.
//
// If the term ended before the lease expired, the member left by itself. If it ended later, the other members evicted
// the member, because it had stopped sending heartbeats. However, if the last heartbeat was less than half a lease old
// in was, the member may have sent another one and then left by itself. In that case, parted mentions both
// possibilities.
func parted(was operator.Listing, end time.Time) string {
	who := terminal.Show(was.Holder())
	if was.LeaseRecord == nil || end.Sub(was.Heartbeat) < was.LeaseRecord.Lease {
		return "left by " + who
	}
	switch silent, lease := was.At.Sub(was.Heartbeat), was.LeaseRecord.Lease; {
	case silent < lease/2:
		return fmt.Sprintf("ended: %s left, or sent no heartbeat within its lease of %v", who, lease)
	default:
		return fmt.Sprintf("ended: %s sent no heartbeat within its lease of %v", who, lease)
	}
}

func when(was, l operator.Listing) time.Time {
	switch s := l.State(); {
	case (l.IsHeld() || s == operator.Unconfirmed || s == operator.Released) && l.Token != was.Token:
		return l.Since()
	case s == operator.Expired:
		return l.Heartbeat.Add(l.LeaseRecord.Lease)
	}
	return l.At
}

const heldBy = "held by "

func what(l operator.Listing) string {
	switch l.State() {
	case operator.Held:
		text := fmt.Sprintf(heldBy+"%s, token %v", terminal.Show(l.Holder()), l.Token)
		if l.LeaseRecord.Value != "" {
			text += ", value " + terminal.Show(l.LeaseRecord.Value)
		}
		return text
	case operator.Leaving:
		return fmt.Sprintf("leaving: %s will release it once its work has ended", terminal.Show(l.Holder()))
	case operator.Expired:
		return fmt.Sprintf("expired, %v after the last heartbeat of %s", l.LeaseRecord.Lease, terminal.Show(l.Holder()))
	case operator.Released:
		if l.Done.Key != "" && table.TokenAt(l.Done.At) == l.Token { // one commit did both
			return "released: " + terminal.Show(l.Done.Key) + " is done"
		}
		return "released"
	case operator.Unconfirmed:
		return "claimed by " + terminal.Show(l.Holder())
	case operator.Orphaned:
		return "orphaned: its lock row was deleted"
	case operator.Unreadable:
		if errors.Is(l.Unreadable, table.ErrNewer) {
			return "unreadable: " + l.Unreadable.Error()
		}
		return "unreadable: the lease row does not say how long the holder may act"
	}
	if done := model.DoneLine(l); done != "" {
		return "free; " + done
	}
	return "free: it was never claimed, or its row was pruned"
}
