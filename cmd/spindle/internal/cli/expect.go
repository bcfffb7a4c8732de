package cli

import (
	"slices"

	"github.com/spf13/pflag"

	"github.com/spindle-lock/spindle/internal/table"
)

// expectFlag adds --expect: the names of locks that should always have a holder.
func expectFlag(flags *pflag.FlagSet, names *[]string) {
	flags.StringSliceVar(names, "expect", nil, "locks that should have a holder: their `names`, with commas between them, or the flag again")
}

// checkExpected refuses what is no name of a lock, and returns each name once.
func checkExpected(names []string) ([]string, error) {
	var once []string
	for _, name := range names {
		if err := table.CheckKey(name); err != nil {
			return nil, misuse("--expect: %w", err)
		}
		if !slices.Contains(once, name) {
			once = append(once, name)
		}
	}
	return once, nil
}
