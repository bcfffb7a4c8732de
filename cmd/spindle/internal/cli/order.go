package cli

import (
	"cmp"
	"slices"
	"time"
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
