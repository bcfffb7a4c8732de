package describe

import (
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"github.com/spindle-lock/spindle/cmd/spindle/internal/exit"
	"github.com/spindle-lock/spindle/cmd/spindle/internal/terminal"
	"github.com/spindle-lock/spindle/internal/table"
)

// ExpectFlag adds --expect: the names of locks that should always have a holder.
func ExpectFlag(flags *pflag.FlagSet, names *[]string) {
	flags.StringSliceVar(names, "expect", nil, "locks that should have a holder: their `names`, separated by commas; may be repeated")
}

// CheckExpected refuses names that no lock can have, and returns each name once.
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

// Leaderless names the locks without a holder, and says why; it returns "" if there is none. A lock that can't be read counts
// as held.
func Leaderless(found []table.Listing) string {
	var all []string
	for _, l := range found {
		if l.IsHeld() || l.State() == table.Unreadable {
			continue
		}
		all = append(all, terminal.Show(l.Name)+" ("+whyNobody(l)+")")
	}
	return strings.Join(all, ", ")
}

// whyNobody says why a lock has no holder.
func whyNobody(l table.Listing) string {
	switch l.State() {
	case table.Released:
		return "released " + terminal.Ago(l.At.Sub(l.Since()))
	case table.Expired:
		return "expired " + terminal.Ago(l.At.Sub(l.Heartbeat)-l.LeaseRecord.Lease)
	case table.Unconfirmed:
		return "claimed by " + terminal.Show(l.Holder()) + ", who may not act yet"
	case table.Orphaned:
		return "somebody deleted its row"
	}
	return "never taken, or its row was pruned"
}
