package watch

import (
	"cmp"
	"slices"
	"strings"

	"github.com/spindle-lock/spindle/cmd/spindle/internal/states"
	"github.com/spindle-lock/spindle/internal/operator"
)

// An order is a way to sort rows.
type order int

const (
	byTrouble order = iota
	byName
	byAge
	byHolder
	orders
)

func (o order) String() string { return [...]string{"trouble", "name", "age", "holder"}[o] }

// urgencies has the urgency of each state. An operator has to see the smallest first.
var urgencies = map[operator.State]int{
	operator.Expired: 0, operator.Orphaned: 1, operator.Unreadable: 2, operator.Unconfirmed: 3, states.Partial: 4,
	operator.Leaving: 6, operator.Free: 7, operator.Held: 8, operator.Released: 9, operator.Paused: 9,
}

const urgencyLate = 5

// urgency returns a number that is small for a row in trouble. A free lock has a row only if processes wait for it.
func (r *Row) urgency() int {
	if r.late() {
		return urgencyLate
	}
	return urgencies[r.State]
}

// late reports whether a holder may soon lose its lock, because less than a third of its lease is left.
func (r *Row) late() bool { return r.State == operator.Held && !r.Group && r.Left*3 < r.Lease }

// compare orders two rows. Rows that are equal in this order are sorted by name.
func (o order) compare(a, b *Row) int {
	switch o {
	case byTrouble:
		return cmp.Or(cmp.Compare(a.urgency(), b.urgency()), cmp.Compare(a.Name, b.Name))
	case byAge:
		return cmp.Or(cmp.Compare(b.Age, a.Age), cmp.Compare(a.Name, b.Name))
	case byHolder:
		return cmp.Or(lastIfEmpty(a.Holder, b.Holder), cmp.Compare(a.Holder, b.Holder), cmp.Compare(a.Name, b.Name))
	}
	return cmp.Compare(a.Name, b.Name)
}

func lastIfEmpty(a, b string) int {
	switch {
	case a == "" && b != "":
		return 1
	case a != "" && b == "":
		return -1
	}
	return 0
}

// matches reports whether the row's name, state, holder or value contains lower, ignoring case. The argument must be in
// lower case.
func (r *Row) matches(lower string) bool {
	if lower == "" {
		return true
	}
	for _, text := range [...]string{r.Label, string(r.State), r.Holder, r.Value} {
		if strings.Contains(strings.ToLower(text), lower) {
			return true
		}
	}
	return false
}

// choose returns the rows that match the filter, in the given order.
func choose(rows []*Row, filter string, o order) []*Row {
	lower := strings.ToLower(filter)
	var chosen []*Row
	for _, r := range rows {
		if r.matches(lower) {
			chosen = append(chosen, r)
		}
	}
	slices.SortFunc(chosen, o.compare)
	return chosen
}

// merge merges two lists that are in the given order.
func merge(a, b []*Row, o order) []*Row {
	all := make([]*Row, 0, len(a)+len(b))
	for len(a) > 0 && len(b) > 0 {
		if o.compare(a[0], b[0]) <= 0 {
			all, a = append(all, a[0]), a[1:]
		} else {
			all, b = append(all, b[0]), b[1:]
		}
	}
	return append(append(all, a...), b...)
}
