package view

import (
	"slices"

	"github.com/spindle-lock/spindle/cmd/spindle/internal/exit"
	"github.com/spindle-lock/spindle/cmd/spindle/internal/model"
	"github.com/spindle-lock/spindle/cmd/spindle/internal/terminal"
	"github.com/spindle-lock/spindle/internal/operator"
	"github.com/spindle-lock/spindle/internal/table"
)

// A selection determines which locks are listed.
type selection struct {
	prefix string
	all    bool    // released locks too
	states choices // only locks in these states; overrides all
	group  string  // only the members and partitions of this group
}

// check returns an error if flags exclude each other.
func (s *selection) check() (err error) {
	if s.group == "" {
		return nil
	}
	if s.group, err = model.GroupNamed(s.group); err != nil {
		return err
	}
	switch {
	case s.prefix != "":
		return exit.Misuse("give only one of the prefix %q and --group %q", s.prefix, s.group)
	case slices.Contains(s.states.values, model.Partial):
		return exit.Misuse("--state partial applies only to groups, but --group lists members and partitions")
	}
	s.prefix = table.GroupPrefix(s.group)
	return nil
}

// idle reports whether unused locks have to be read as well.
func (s *selection) idle() bool {
	return s.all || slices.Contains(s.states.values, operator.Released) || slices.Contains(s.states.values, operator.Free)
}

// wants reports whether a lock is listed.
func (s *selection) wants(l operator.Listing) bool {
	if s.states.values != nil {
		return slices.Contains(s.states.values, l.State())
	}
	return s.all || l.State() != operator.Released || len(l.Waiters) > 0
}

// wantsGroup reports whether a group is listed.
func (s *selection) wantsGroup(g *model.Group) bool {
	return s.states.values == nil || slices.Contains(s.states.values, g.State())
}

// wantsPart reports whether a partition of an open group is listed.
func (s *selection) wantsPart(l operator.Listing) bool {
	return s.states.values == nil || slices.Contains(s.states.values, l.State())
}

// none returns the message for an empty list.
func (s *selection) none() string {
	if s.group != "" {
		return "There is no group " + terminal.Show(s.group) + " in the table."
	}
	which := "There are no locks in the table"
	switch {
	case s.states.values != nil:
		which = "No lock in the table is " + oneOrMore(texts(s.states.values))
	case !s.all:
		which = "No lock in the table is in use"
	}
	if s.prefix != "" {
		which += ", among those whose names begin with " + terminal.Show(s.prefix)
	}
	if s.states.values == nil && !s.all {
		which += ". To list released locks, use --all"
	}
	return which + "."
}

func oneOrMore(words []string) string {
	if len(words) == 1 {
		return words[0]
	}
	return terminal.OneOf(words)
}
