package model

import (
	"context"
	"maps"
	"slices"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/spindle-lock/spindle/cmd/spindle/internal/terminal"
	"github.com/spindle-lock/spindle/internal/operator"
	"github.com/spindle-lock/spindle/internal/table"
)

// OneName is a cobra.PositionalArgs that wants the name of one lock.
func OneName(c *cobra.Command, args []string) error {
	if err := terminal.Exactly(1, "the name of one lock")(c, args); err != nil {
		return err
	}
	return table.CheckKey(args[0])
}

// OneLock reads a lock. It returns an error if there is no such lock but there is a group with that name.
func OneLock(ctx context.Context, t table.Table, name string) (operator.Listing, error) {
	l, err := operator.ListOne(ctx, t, name)
	if err == nil && l.State() == operator.Free {
		err = noGroup(ctx, t, name)
	}
	return l, err
}

// noGroup returns an error if the argument is the name of a group that has had members. Without this error, a user who
// meant the group would be told that a lock with its name is free.
func noGroup(ctx context.Context, t table.Table, arg string) error {
	name, err := GroupNamed(arg)
	if err != nil {
		return nil // no group can have the name
	}
	r, err := t.LookAtGroup(ctx, name, table.GroupQuery{Members: true})
	if err != nil || len(r.Members) == 0 {
		return err
	}
	return terminal.Misuse("%[1]s is a group, not a lock; use spindle members %[1]s, or give the name of one of its locks, such as %[2]s", terminal.Show(name), slices.Min(slices.Collect(maps.Keys(r.Members))))
}

// ExpectedLocks reads the named locks, and returns them in the order of the names.
func ExpectedLocks(ctx context.Context, t table.Table, names []string) ([]operator.Listing, error) {
	var found []operator.Listing
	for _, name := range names {
		l, err := OneLock(ctx, t, name)
		if err != nil {
			return nil, err
		}
		found = append(found, l)
	}
	return found, nil
}

// ExpectFlag adds the flag --expect, which names the locks that should always have a holder.
func ExpectFlag(flags *pflag.FlagSet, names *[]string) {
	flags.StringSliceVar(names, "expect", nil, "comma-separated `names` of locks that should have a holder; can be repeated")
}

// CheckExpected returns the names without duplicates, or an error if one of them can't be the name of a lock.
func CheckExpected(names []string) ([]string, error) {
	var once []string
	for _, name := range names {
		if err := table.CheckKey(name); err != nil {
			return nil, terminal.Misuse("--expect: %w", err)
		}
		if !slices.Contains(once, name) {
			once = append(once, name)
		}
	}
	return once, nil
}
