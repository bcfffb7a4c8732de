package inspect

import (
	"context"
	"fmt"
	"maps"
	"os"
	"slices"
	"time"

	"github.com/spindle-lock/spindle/cmd/spindle/internal/describe"
	"github.com/spindle-lock/spindle/cmd/spindle/internal/exit"
	"github.com/spindle-lock/spindle/cmd/spindle/internal/terminal"
	"github.com/spindle-lock/spindle/internal/operator"
	"github.com/spindle-lock/spindle/internal/table"
)

// follow prints the list, and then each lock that changes, until a signal arrives.
func (ls *listing) follow(ctx context.Context) error {
	db, err := ls.Database.Open()
	if err != nil {
		return err
	}
	defer db.Close()
	ctx, stop := exit.UntilInterrupted(ctx)
	defer stop()
	terminal.Stderr.Time()
	return ls.repeat(ctx, terminal.On(os.Stdout), db.Audibly(ls.Database))
}

// repeat reads and prints the locks until ctx ends. If a read fails, repeat logs the error and tries again. However, if
// the first read fails, repeat returns the error, because the user has probably made a mistake, such as naming the
// wrong table.
func (ls *listing) repeat(ctx context.Context, p *terminal.Terminal, t table.Table) error {
	s := ls.columns(describe.LockColumns, describe.WideColumns)
	var before map[string]describe.Entry
	failing := false
	for {
		all, gone, err := ls.look(ctx, t, before)
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil && before == nil:
			return ls.Explain(err)
		case err != nil && !failing:
			terminal.Complain("can't read the locks, will try again: %v", ls.Explain(err))
		case err == nil && failing:
			terminal.Complain("the locks can be read again")
		}
		if failing = err != nil; !failing {
			if before == nil && len(all) == 0 && !ls.f.Objects() {
				fmt.Fprintln(os.Stderr, ls.show.none())
			}
			if now := differing(before, all, gone); len(now) > 0 {
				if err := ls.write(p, s, now); err != nil {
					return err
				}
			}
			before = byName(all)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(ls.every):
		}
	}
}

// differing returns the entries to print. These are the entries that are new or have changed since the previous read,
// followed by the entries of locks that are no longer selected.
func differing(before map[string]describe.Entry, all, gone []describe.Entry) (now []describe.Entry) {
	for _, e := range all {
		if was, known := before[e.Name]; !known || was.Mark != e.Mark {
			now = append(now, e)
		}
	}
	return append(now, gone...)
}

func byName(all []describe.Entry) map[string]describe.Entry {
	named := make(map[string]describe.Entry, len(all))
	for _, e := range all {
		named[e.Name] = e
	}
	return named
}

// look reads the table once. It returns two lists of entries. The first has the selected locks. The second has the
// locks that are in before but are no longer selected, with their current state.
func (ls *listing) look(ctx context.Context, t table.Table, before map[string]describe.Entry) (all, gone []describe.Entry, err error) {
	ctx, cancel := context.WithTimeout(ctx, ls.Timeout)
	defer cancel()
	found, _, err := operator.List(ctx, t, ls.show.prefix, ls.show.idle())
	if err != nil {
		return nil, nil, err
	}
	all = ls.entries(found)
	here := byName(all)
	missing := slices.DeleteFunc(slices.Sorted(maps.Keys(before)), func(name string) bool { _, is := here[name]; return is })
	if len(missing) > 0 {
		gone, err = ls.whatBecame(ctx, t, missing, found)
	}
	return all, gone, err
}

// few is how many locks whatBecame reads one by one. If there are more, it reads the whole table instead.
const few = 20

// whatBecame returns the current entries of the named locks, which are no longer selected. It gets an entry from found,
// the result of the last read, if possible. The last read may have skipped unused locks, so whatBecame reads the
// missing ones separately.
func (ls *listing) whatBecame(ctx context.Context, t table.Table, names []string, found []operator.Listing) (gone []describe.Entry, err error) {
	any := *ls
	any.show = selection{prefix: ls.show.prefix, all: true}
	one := func(name string) (operator.Listing, error) { return operator.ListOne(ctx, t, name) }
	if len(names) > few {
		var at time.Time
		if found, at, err = operator.List(ctx, t, ls.show.prefix, true); err != nil {
			return nil, err
		}
		one = func(name string) (operator.Listing, error) {
			return operator.Listing{Observation: table.Observation{Name: name, At: at}}, nil
		}
	}
	here := byName(any.entries(found))
	for _, name := range names {
		e, is := here[name]
		if !is {
			l, err := one(name)
			if err != nil {
				return nil, err
			}
			e = describe.LockEntry(l)
		}
		gone = append(gone, e)
	}
	return sorted(gone, ls.by.value, ls.reverse), nil
}
