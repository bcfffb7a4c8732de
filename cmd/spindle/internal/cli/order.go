package cli

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spindle-lock/spindle/internal/table"
)

// orders are what a list can be sorted by. What an operator looks for is first: the longest, the most, the worst.
var orders = map[string]func(a, b entry) int{
	"name":  func(entry, entry) int { return 0 }, // as it is
	"state": func(a, b entry) int { return cmp.Compare(concern(a.state), concern(b.state)) },
	"holder": func(a, b entry) int {
		return cmp.Or(last(a.order.holder == "", b.order.holder == ""), cmp.Compare(a.order.holder, b.order.holder))
	},
	"age":   func(a, b entry) int { return earlier(a.order.since, b.order.since) },
	"beat":  func(a, b entry) int { return earlier(a.order.beat, b.order.beat) },
	"lease": func(a, b entry) int { return cmp.Compare(b.order.lease, a.order.lease) },
	"waiting": func(a, b entry) int {
		return cmp.Or(cmp.Compare(b.order.waiting, a.order.waiting), cmp.Compare(b.order.longest, a.order.longest))
	},
}

var orderNames = []string{"name", "state", "holder", "age", "beat", "lease", "waiting"}

// states are those that a list can be chosen by, the worst first.
var states = []table.State{table.Unreadable, table.Orphaned, table.Expired, partial, table.Unconfirmed, table.Leaving, table.Held, table.Released, table.Free}

func concern(s table.State) int { return slices.Index(states, s) }

// last puts what does not have something behind what has it.
func last(without, other bool) int {
	switch {
	case without == other:
		return 0
	case without:
		return 1
	}
	return -1
}

func earlier(a, b time.Time) int { return cmp.Or(last(a.IsZero(), b.IsZero()), a.Compare(b)) }

// sorted puts entries, which are in the order of their names, in the order that was asked for.
func sorted(all []entry, by string, reverse bool) []entry {
	slices.SortStableFunc(all, orders[by])
	if reverse {
		slices.Reverse(all)
	}
	return all
}

// A choice is a flag whose values are words of a list.
type choice struct {
	value string
	of    []string
}

// String implements pflag.Value.
func (c *choice) String() string { return c.value }

// Type implements pflag.Value.
func (c *choice) Type() string { return "choice" }

// Set implements pflag.Value.
func (c *choice) Set(s string) error {
	if !slices.Contains(c.of, s) {
		return fmt.Errorf("want %s", oneOf(c.of))
	}
	c.value = s
	return nil
}

func oneOf(words []string) string {
	return strings.Join(words[:len(words)-1], ", ") + " or " + words[len(words)-1]
}

// choices is a flag whose value is a list of such words.
type choices struct {
	values []table.State
	of     []table.State
}

// String implements pflag.Value.
func (c *choices) String() string { return strings.Join(texts(c.values), ",") }

// Type implements pflag.Value.
func (c *choices) Type() string { return "choices" }

// Set implements pflag.Value.
func (c *choices) Set(s string) error {
	for word := range strings.SplitSeq(s, ",") {
		if !slices.Contains(c.of, table.State(word)) {
			return fmt.Errorf("there is no state %q: want %s", word, oneOf(texts(c.of)))
		}
		c.values = append(c.values, table.State(word))
	}
	return nil
}

func texts(states []table.State) (all []string) {
	for _, s := range states {
		all = append(all, string(s))
	}
	return all
}
