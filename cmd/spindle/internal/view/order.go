package view

import (
	"cmp"
	"slices"
	"time"

	"github.com/spindle-lock/spindle/cmd/spindle/internal/model"
)

// orders has a comparison function for each value of --sort. Each function puts the entries first that operators
// usually look for, such as the oldest term or the longest wait.
var orders = map[string]func(a, b model.Entry) int{
	"name": func(model.Entry, model.Entry) int { return 0 }, // as it is
	"state": func(a, b model.Entry) int {
		return cmp.Compare(model.Concern(a.State), model.Concern(b.State))
	},
	"holder": func(a, b model.Entry) int {
		return cmp.Or(last(a.Order.Holder == "", b.Order.Holder == ""), cmp.Compare(a.Order.Holder, b.Order.Holder))
	},
	"age":   func(a, b model.Entry) int { return earlier(a.Order.Since, b.Order.Since) },
	"beat":  func(a, b model.Entry) int { return earlier(a.Order.Beat, b.Order.Beat) },
	"lease": func(a, b model.Entry) int { return cmp.Compare(b.Order.Lease, a.Order.Lease) },
	"waiting": func(a, b model.Entry) int {
		return cmp.Or(cmp.Compare(b.Order.Waiting, a.Order.Waiting), cmp.Compare(b.Order.Longest, a.Order.Longest))
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

func earlier(a, b time.Time) int { return cmp.Or(last(a.IsZero(), b.IsZero()), a.Compare(b)) }

// sorted sorts entries, which have to be in the order of their names, by the key that --sort names.
func sorted(all []model.Entry, by string) []model.Entry {
	slices.SortStableFunc(all, orders[by])
	return all
}
