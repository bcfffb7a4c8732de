package model

import (
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"github.com/spindle-lock/spindle/cmd/spindle/internal/exit"
	"github.com/spindle-lock/spindle/cmd/spindle/internal/terminal"
	"github.com/spindle-lock/spindle/internal/operator"
	"github.com/spindle-lock/spindle/internal/table"
)

// ExpectFlag adds the flag --expect, which names the locks that should always have a holder.
func ExpectFlag(flags *pflag.FlagSet, names *[]string) {
	flags.StringSliceVar(names, "expect", nil, "comma-separated `names` of locks that should have a holder; can be repeated")
}

// CheckExpected returns the names without duplicates, or an error if one of them can't be the name of a lock.
func CheckExpected(names []string) ([]string, error) {
	var once []string
	for _, name := range names {
		if err := table.CheckKey(name); err != nil {
			return nil, exit.Misuse("--expect: %w", err)
		}
		if !slices.Contains(once, name) {
			once = append(once, name)
		}
	}
	return once, nil
}

// Leaderless returns a list of the locks that have no holder, with a reason for each of them. If all locks have a
// holder, it returns "". A lock that can't be read counts as held.
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
		return "its lock row was deleted"
	}
	return "never taken, or its row was pruned"
}
