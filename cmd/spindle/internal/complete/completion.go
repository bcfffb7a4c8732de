// Package complete implements shell completion from the contents of the lock table.
package complete

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/spindle-lock/spindle/cmd/spindle/internal/connect"
	"github.com/spindle-lock/spindle/cmd/spindle/internal/flags"
	"github.com/spindle-lock/spindle/cmd/spindle/internal/model"
	"github.com/spindle-lock/spindle/cmd/spindle/internal/terminal"
	"github.com/spindle-lock/spindle/internal/operator"
	"github.com/spindle-lock/spindle/internal/table"
)

// atTab limits how long a user waits after pressing Tab. If the table has not answered by then, nothing is completed.
const atTab = time.Second

// A completer returns the words in the table that begin with the text typed so far.
type completer func(ctx context.Context, t table.Table, begun string) ([]cobra.Completion, error)

// fromTable completes a word with names from the table. It ignores errors, because an error message would appear in the
// middle of the user's command line.
func fromTable(o *connect.Database, c *cobra.Command, begun string, ask completer) ([]cobra.Completion, cobra.ShellCompDirective) {
	const directive = cobra.ShellCompDirectiveNoFileComp
	if flags.FromEnvironment(c.Flags()) != nil || o.Check() != nil {
		return nil, directive
	}
	ctx, cancel := context.WithTimeout(c.Context(), atTab)
	defer cancel()
	answer := make(chan []cobra.Completion, 1)
	go func() { // creating a client may wait for credentials even after ctx ends
		db, err := o.Open()
		if err != nil {
			answer <- nil
			return
		}
		found, err := ask(ctx, db.Locks(), begun)
		if err != nil {
			found = nil
		}
		answer <- found
	}()
	select {
	case found := <-answer:
		if len(found) == 1 && strings.Contains(found[0], "/\t") { // a group, to be continued with the name of one of its locks
			return found, directive | cobra.ShellCompDirectiveNoSpace
		}
		return found, directive
	case <-ctx.Done():
		return nil, directive
	}
}

// offer adds a name to the completions, unless a shell would read it differently.
func offer(all []cobra.Completion, name, about string) []cobra.Completion {
	if name == "" || terminal.Show(name) != name {
		return all
	}
	return append(all, cobra.CompletionWithDesc(name, terminal.Show(about)))
}

// Locks completes a command's only argument with the name of a lock or group.
func Locks(o *connect.Database) cobra.CompletionFunc { return onlyArgument(o, lockNames(false)) }

// Groups completes a command's only argument with the name of a group.
func Groups(o *connect.Database) cobra.CompletionFunc { return onlyArgument(o, groupNames) }

func onlyArgument(o *connect.Database, ask completer) cobra.CompletionFunc {
	return func(c *cobra.Command, args []string, begun string) ([]cobra.Completion, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return fromTable(o, c, begun, ask)
	}
}

// lockNames completes the names of locks and groups that are in use or, with idle, of all locks and groups.
func lockNames(idle bool) completer {
	return func(ctx context.Context, t table.Table, begun string) (names []cobra.Completion, err error) {
		all, _, err := operator.List(ctx, t, begun, idle)
		locks, groups := model.Gather(all, begun)
		for _, l := range locks {
			names = offer(names, l.Name, string(l.State()))
		}
		for _, g := range groups {
			if g.JSON.Name != begun {
				names = offer(names, g.JSON.Name, string(g.JSON.State))
				continue
			}
			for _, l := range slices.Concat(g.Members, g.Partitions) {
				names = offer(names, l.Name, string(l.State()))
			}
		}
		return names, err
	}
}

func groupNames(ctx context.Context, t table.Table, begun string) (names []cobra.Completion, err error) {
	all, _, err := operator.List(ctx, t, table.GroupPrefix(begun)[:len(table.GroupPrefix(begun))-1], false)
	_, groups := model.Gather(all, "")
	for _, g := range groups {
		if name := g.JSON.Group; strings.HasPrefix(name, begun) {
			names = offer(names, name, g.Sum())
		}
	}
	return names, err
}

// listed completes the last name in a comma-separated list.
func listed(ask completer) completer {
	return func(ctx context.Context, t table.Table, begun string) ([]cobra.Completion, error) {
		before := begun[:strings.LastIndexByte(begun, ',')+1]
		found, err := ask(ctx, t, begun[len(before):])
		for i := range found {
			found[i] = before + found[i]
		}
		return found, err
	}
}

// holders completes the id of a lock's holder, or the ids of all holders if name is empty.
func holders(name string) completer {
	return func(ctx context.Context, t table.Table, begun string) (ids []cobra.Completion, err error) {
		all, err := holding(ctx, t, name)
		for _, l := range all {
			if id := l.Holder(); strings.HasPrefix(id, begun) {
				ids = offer(ids, id, l.Name)
			}
		}
		return ids, err
	}
}

// tokens completes the token of a lock, or the tokens of all locks if name is empty.
func tokens(name string) completer {
	return func(ctx context.Context, t table.Table, begun string) (found []cobra.Completion, err error) {
		all, err := holding(ctx, t, name)
		for _, l := range all {
			if token := l.Token.String(); strings.HasPrefix(token, begun) {
				found = offer(found, token, terminal.Join(", ", l.Name, l.Holder()))
			}
		}
		return found, err
	}
}

func holding(ctx context.Context, t table.Table, name string) (all []operator.Listing, err error) {
	if name != "" {
		var l operator.Listing
		l, err = operator.ListOne(ctx, t, name)
		all = []operator.Listing{l}
	} else {
		all, _, err = operator.List(ctx, t, "", false)
	}
	return slices.DeleteFunc(all, func(l operator.Listing) bool {
		return model.IsPartition(l) || l.Holder() == "" || l.State() == operator.Released || l.State() == operator.Free
	}), err
}

// Flags registers completions for flag values. Most flags are completed in the same way in every command. The flag --id
// is completed only for status, because other commands take a new id.
func Flags(o *connect.Database, root *cobra.Command) {
	ask := func(of func(lock string) completer) cobra.CompletionFunc {
		return func(c *cobra.Command, args []string, begun string) ([]cobra.Completion, cobra.ShellCompDirective) {
			return fromTable(o, c, begun, of(strings.Join(args, "")))
		}
	}
	always := func(c completer) func(string) completer { return func(string) completer { return c } }
	known := map[string]cobra.CompletionFunc{
		"name":    ask(always(lockNames(true))), // an idle lock can be taken again
		"prefix":  ask(always(lockNames(true))),
		"expect":  ask(always(listed(lockNames(true)))),
		"group":   ask(always(groupNames)),
		"token":   ask(tokens),
		"dialect": words("googlesql", "postgresql"),
	}
	flags.Commands(root, func(c *cobra.Command) {
		own := map[string]cobra.CompletionFunc{}
		if c.Name() == "status" { // for other commands, --id is a new id
			own["id"] = ask(holders)
		}
		c.LocalFlags().VisitAll(func(f *pflag.Flag) {
			complete := known[f.Name]
			if special, is := own[f.Name]; is {
				complete = special
			}
			switch v := f.Value.(type) {
			case interface{ Words() []string }:
				complete = words(v.Words()...)
			case interface {
				Complete(string) []cobra.Completion
			}:
				complete = inList(v.Complete)
			}
			if complete != nil {
				_ = c.RegisterFlagCompletionFunc(f.Name, complete) // fails only if it has one of its own
			}
		})
	})
}

func inList(complete func(begun string) []cobra.Completion) cobra.CompletionFunc {
	return func(_ *cobra.Command, _ []string, begun string) ([]cobra.Completion, cobra.ShellCompDirective) {
		return complete(begun), cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveNoSpace
	}
}

func words(all ...string) cobra.CompletionFunc {
	return cobra.FixedCompletions(all, cobra.ShellCompDirectiveNoFileComp)
}
