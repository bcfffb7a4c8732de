package view

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spindle-lock/spindle/cmd/spindle/internal/model"
	"github.com/spindle-lock/spindle/cmd/spindle/internal/terminal"
	"github.com/spindle-lock/spindle/internal/operator"
	"github.com/spindle-lock/spindle/internal/table"
)

// A change describes how a lock, or some of a group's partitions, changed between two reads.
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

// A story keeps what the last read has shown, so that the next read can be compared with it.
type story struct {
	locks map[string]operator.Listing // as of the last read
	had   map[string]string           // the holder of each partition, or its last holder
}

// next returns the changes between the previous read and this one. A new heartbeat is not a change. A term that begins
// and ends between two reads is missed.
func (s *story) next(locks []operator.Listing, groups []*model.Group, at time.Time) []change {
	if s.had == nil {
		s.had = map[string]string{}
	}
	before := s.locks
	s.locks = map[string]operator.Listing{}
	var all []change
	for _, lock := range locks {
		all = append(all, s.note(before, lock)...)
	}
	for _, g := range groups {
		for _, m := range g.Members {
			all = append(all, s.note(before, m)...)
		}
		all = append(all, s.moves(before, g)...)
	}
	for _, name := range slices.Sorted(maps.Keys(before)) {
		if _, here := s.locks[name]; !here && before[name].State() != operator.Free {
			all = append(all, changed(at, operator.Listing{Observation: table.Observation{Name: name, At: at}}, gone))
		}
	}
	return all
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
	text := model.Change(lock)
	switch part, _ := table.PartOf(lock.Name); {
	case known && lock.State() == operator.Free:
		text = gone
	case !lock.IsPart() || part.Partition != "":
	case lock.State() == operator.Held && was.State() == operator.Expired && was.Token == lock.Token:
		text = "heard from again: " + terminal.Show(lock.Holder())
	case lock.State() == operator.Held:
		text = "joined by " + strings.TrimPrefix(text, "held by ")
	case lock.State() == operator.Leaving:
		text = terminal.Show(lock.Holder()) + " is leaving"
	case lock.State() == operator.Released && !known:
		return nil // a slot that was in use once
	case lock.State() == operator.Released && was.Holder() != "":
		text = parted(was, lock)
	}
	return []change{changed(when(was, lock), lock, text)}
}

// parted describes how a member's term ended, given the last listing that showed the term and the listing after it.
// Either the member left, or the other members evicted it because it had stopped sending heartbeats.
func parted(was, now operator.Listing) string {
	who := terminal.Show(was.Holder())
	switch _, end := model.Ending(was, now); end {
	case model.EndExpired:
		return fmt.Sprintf("ended: %s sent no heartbeat within its lease of %v", who, was.LeaseRecord.Lease)
	case model.EndUnseen:
		return fmt.Sprintf("ended: %s left, or sent no heartbeat within its lease of %v", who, was.LeaseRecord.Lease)
	}
	return "left by " + who
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

// A move says that some of a group's partitions have a new holder, or no longer have one. Its fields are the id of the
// member that last held the partitions, and the id of the member that holds them now. If there is no such member, the
// field is "".
type move struct{ from, to string }

// moved says how many partitions are in a move, and when the last of them moved.
type moved struct {
	n  int
	at time.Time
}

// MoveJSON is the JSON form of partitions of a group that moved between two reads of the table.
type MoveJSON struct {
	Name          string         `json:"name"` // the prefix of the group's locks' names
	State         operator.State `json:"state" schema:"$ref=groupState"`
	Group         string         `json:"group"`                             // the group's name
	Moved         int            `json:"moved" schema:"minimum=1"`          // how many partitions moved
	From          string         `json:"from,omitempty"`                    // the id of the member that had them; absent: no member had
	To            string         `json:"to,omitempty"`                      // the id of the member that has them; absent: no member has
	WithoutHolder int            `json:"without_holder" schema:"minimum=0"` // how many partitions have no holder, without those that are paused
	At            time.Time      `json:"at"`                                // when, by Spanner's clock
}

// moves returns the moves of the group's partitions, with the number of partitions in each move.
func (s *story) moves(before map[string]operator.Listing, g *model.Group) (all []change) {
	moves := map[move]moved{}
	for _, now := range g.Partitions {
		s.locks[now.Name] = now
		was, known := before[now.Name]
		m, at := move{was.Holder(), now.Holder()}, now.At
		switch {
		case now.IsHeld() && was.IsHeld() && was.Token == now.Token:
			continue
		case now.IsHeld():
			m.from = s.had[now.Name]
			s.had[now.Name] = m.to
			if was.Token != now.Token { // otherwise, its member was heard from again
				at = now.Token.Time()
			}
		case was.IsHeld() || !known:
			m.to = ""
		default:
			continue
		}
		of := moves[m]
		if of.n++; at.After(of.at) {
			of.at = at
		}
		moves[m] = of
	}
	order := func(a, b move) int { return cmp.Or(cmp.Compare(a.from, b.from), cmp.Compare(a.to, b.to)) }
	for _, m := range slices.SortedFunc(maps.Keys(moves), order) {
		of, j := moves[m], g.JSON
		all = append(all, change{of.at, j.Name, j.State, m.text(of.n), MoveJSON{j.Name, j.State, j.Group, of.n, m.from, m.to, j.WithoutHolder, of.at.UTC()}})
	}
	return all
}

func (m move) text(n int) string {
	what := terminal.Count(n, "partition")
	switch {
	case m.from == "" && m.to == "":
		return what + " without a holder"
	case m.from == "":
		return what + " held by " + terminal.Show(m.to)
	case m.to == "":
		return fmt.Sprintf("%s without a holder, last held by %s", what, terminal.Show(m.from))
	case m.from == m.to:
		return fmt.Sprintf("%s taken again by %s", what, terminal.Show(m.to))
	}
	return fmt.Sprintf("%s moved from %s to %s", what, terminal.Show(m.from), terminal.Show(m.to))
}
