package view

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/spindle-lock/spindle/cmd/spindle/internal/model"
	"github.com/spindle-lock/spindle/cmd/spindle/internal/terminal"
	"github.com/spindle-lock/spindle/internal/operator"
	"github.com/spindle-lock/spindle/internal/table"
)

// A selection determines which locks are listed.
type selection struct {
	prefix string
	all    bool     // released locks too
	states inStates // only locks in these states; overrides all
	group  string   // only the members and partitions of this group
}

// check returns an error if the group's name is invalid or flags exclude each other. With --group, it sets the prefix.
func (s *selection) check() (err error) {
	if s.group == "" {
		return nil
	}
	if s.group, err = model.GroupNamed(s.group); err != nil {
		return err
	}
	switch {
	case s.prefix != "":
		return terminal.Misuse("give only one of the prefix %q and --group %q", s.prefix, s.group)
	case slices.Contains(s.states, model.Partial):
		return terminal.Misuse("--state partial applies only to groups, but --group lists members and partitions")
	}
	s.prefix = table.GroupPrefix(s.group)
	return nil
}

// idle reports whether unused locks have to be read as well.
func (s *selection) idle() bool {
	return s.all || slices.Contains(s.states, operator.Released) || slices.Contains(s.states, operator.Free)
}

// wants reports whether a lock is listed.
func (s *selection) wants(l operator.Listing) bool {
	return s.in(l.State()) && (s.states != nil || s.all || l.State() != operator.Released || len(l.Waiters) > 0)
}

// in reports whether --state allows a state. It decides which groups are listed and, with --group, which partitions.
func (s *selection) in(state operator.State) bool {
	return s.states == nil || slices.Contains(s.states, state)
}

// none returns the message for an empty list.
func (s *selection) none() string {
	if s.group != "" {
		return "There is no group " + terminal.Show(s.group) + " in the table."
	}
	here := " in the table"
	if s.prefix != "" {
		here += " with a name that begins with " + terminal.Show(s.prefix)
	}
	which := "There are no locks" + here
	switch {
	case s.states != nil:
		which = "No lock" + here + " is " + terminal.OneOf(texts(s.states))
	case !s.all:
		which = "No lock" + here + " is in use"
	}
	if s.states == nil && !s.all {
		which += ". To list released locks, use --all"
	}
	return which + "."
}

// orders has a comparison function for each value of --sort. All functions except those for name and holder put first
// the entries that operators usually look for, such as those with the oldest term or the most waiters.
var orders = map[string]func(a, b model.Entry) int{
	"name":  func(model.Entry, model.Entry) int { return 0 }, // they are already in this order
	"state": func(a, b model.Entry) int { return cmp.Compare(model.Concern(a.State), model.Concern(b.State)) },
	"holder": func(a, b model.Entry) int {
		return cmp.Or(last(a.Holder() == "", b.Holder() == ""), cmp.Compare(a.Holder(), b.Holder()))
	},
	"age": func(a, b model.Entry) int {
		return cmp.Or(last(a.Token == 0, b.Token == 0), a.Since().Compare(b.Since()))
	},
	"beat": func(a, b model.Entry) int {
		return cmp.Or(last(a.Heartbeat.IsZero(), b.Heartbeat.IsZero()), a.Heartbeat.Compare(b.Heartbeat))
	},
	"lease": func(a, b model.Entry) int { return cmp.Compare(leaseOf(b), leaseOf(a)) },
	"waiting": func(a, b model.Entry) int {
		return cmp.Or(cmp.Compare(len(b.Waiters), len(a.Waiters)), cmp.Compare(b.LongestWait(), a.LongestWait()))
	},
}

var orderNames = []string{"name", "state", "holder", "age", "beat", "lease", "waiting"}

// last puts entries that lack a value after entries that have one.
func last(without, other bool) int {
	switch {
	case without == other:
		return 0
	case without:
		return 1
	}
	return -1
}

func leaseOf(e model.Entry) time.Duration {
	if e.LeaseRecord == nil {
		return 0
	}
	return e.LeaseRecord.Lease
}

// sorted sorts entries by the key that --sort names. Entries with equal keys keep their order.
func sorted(all []model.Entry, by string) []model.Entry {
	slices.SortStableFunc(all, orders[by])
	return all
}

// inStates is a flag whose value is a comma-separated list of states.
type inStates []operator.State

// String implements pflag.Value.
func (in *inStates) String() string { return strings.Join(texts(*in), ",") }

// Type implements pflag.Value.
func (in *inStates) Type() string { return "choices" }

// Set implements pflag.Value.
func (in *inStates) Set(s string) error {
	for word := range strings.SplitSeq(s, ",") {
		if !slices.Contains(model.All, operator.State(word)) {
			return fmt.Errorf("%q is not a state; use %s", word, terminal.OneOf(texts(model.All)))
		}
		*in = append(*in, operator.State(word))
	}
	return nil
}

func texts(states []operator.State) (all []string) {
	for _, s := range states {
		all = append(all, string(s))
	}
	return all
}

// Complete completes the last word in the flag's value. It offers only states that the value does not contain yet.
func (in *inStates) Complete(begun string) (found []cobra.Completion) {
	before := begun[:strings.LastIndexByte(begun, ',')+1]
	for _, s := range model.All {
		if !strings.Contains(","+before, ","+string(s)+",") {
			found = append(found, before+string(s))
		}
	}
	return found
}
