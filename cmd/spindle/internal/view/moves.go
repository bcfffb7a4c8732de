package view

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/spindle-lock/spindle/cmd/spindle/internal/model"
	"github.com/spindle-lock/spindle/cmd/spindle/internal/terminal"
	"github.com/spindle-lock/spindle/internal/operator"
)

// A move is a change of the member that holds a group's partitions, from one read of the table to the next. From is ""
// if no member held the partitions before, and to is "" if no member holds them now.
type move struct{ from, to string }

// moved has the number of partitions in a move, and the time of the last one.
type moved struct {
	n  int
	at time.Time
}

// MoveJSON is the JSON form of a move.
type MoveJSON struct {
	Name          string    `json:"name"`
	State         string    `json:"state"`
	Group         string    `json:"group"`
	Moved         int       `json:"moved"`
	From          string    `json:"from,omitempty"`
	To            string    `json:"to,omitempty"`
	WithoutHolder int       `json:"without_holder"`
	At            time.Time `json:"at"`
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
			m.from, at = s.had[now.Name], now.Token.Time()
			s.had[now.Name] = m.to
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
		of, sum := moves[m], g.JSON()
		all = append(all, change{of.at, g.Prefix, g.State(), m.text(of.n), MoveJSON{g.Prefix, sum.State, sum.Group, of.n, m.from, m.to, sum.WithoutHolder, of.at.UTC()}})
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
