package describe

import (
	"context"
	"maps"
	"slices"

	"github.com/spindle-lock/spindle/cmd/spindle/internal/exit"
	"github.com/spindle-lock/spindle/cmd/spindle/internal/terminal"
	"github.com/spindle-lock/spindle/internal/table"
)

// OneLock reads a lock. It returns an error if the name belongs to a group.
func OneLock(ctx context.Context, t table.Table, name string) (table.Listing, error) {
	l, err := t.ListOne(ctx, name)
	if err == nil && l.State() == table.Free {
		err = noGroup(ctx, t, name)
	}
	return l, err
}

// noGroup returns an error if the name belongs to a group. No lock has that name, but it must not be reported as a free
// lock.
func noGroup(ctx context.Context, t table.Table, arg string) error {
	name, err := GroupNamed(arg)
	if err != nil {
		return nil // no group can have the name
	}
	r, err := t.LookAtGroup(ctx, name, table.GroupQuery{Members: true})
	if err != nil || len(r.Members) == 0 {
		return err
	}
	return exit.Misuse("%[1]s is a group, not a lock; use spindle members %[1]s, or name one of its locks, such as %[2]s", terminal.Show(name), slices.Min(slices.Collect(maps.Keys(r.Members))))
}

// ExpectedLocks reads the locks, and returns them in the order of their names in the argument.
func ExpectedLocks(ctx context.Context, t table.Table, names []string) ([]table.Listing, error) {
	var found []table.Listing
	for _, name := range names {
		l, err := OneLock(ctx, t, name)
		if err != nil {
			return nil, err
		}
		found = append(found, l)
	}
	return found, nil
}
