package cli

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/spindle-lock/spindle/cmd/spindle/internal/database"
	"github.com/spindle-lock/spindle/cmd/spindle/internal/model"
	"github.com/spindle-lock/spindle/cmd/spindle/internal/terminal"
	"github.com/spindle-lock/spindle/internal/operator"
	"github.com/spindle-lock/spindle/internal/table"
)

// atTab limits how long a user waits after pressing Tab. If the table has not answered by then, nothing is completed.
const atTab = time.Second

// A completer returns the words in the table that begin with the text typed so far. The parameter lock is the command's
// argument, or "" if no argument has been typed.
type completer func(ctx context.Context, t table.Table, lock, begun string) ([]cobra.Completion, error)

// addCompletions registers completions from the contents of the lock table, and from the values that a flag allows.
func addCompletions(o *database.Database, root *cobra.Command) {
	inUse, all := lockNames(false), lockNames(true)
	argument := map[string]completer{"ls": inUse, "status": inUse, "watch": inUse, "handover": inUse, "release": inUse, "members": groupNames}
	ask := func(what completer) cobra.CompletionFunc {
		return func(c *cobra.Command, args []string, begun string) ([]cobra.Completion, cobra.ShellCompDirective) {
			return fromTable(o, c, what, strings.Join(args, ""), begun)
		}
	}
	value := map[string]cobra.CompletionFunc{
		"name":   ask(all), // an idle lock can be taken again
		"prefix": ask(all),
		"expect": ask(listed(all)),
		"group":  ask(groupNames),
		"token": ask(holding(func(l operator.Listing) (string, string) {
			return l.Token.String(), terminal.Join(", ", l.Name, l.Holder())
		})),
	}
	ids := ask(holding(func(l operator.Listing) (string, string) { return l.Holder(), l.Name }))
	terminal.Commands(root, func(c *cobra.Command) {
		if names := argument[c.Name()]; names != nil {
			c.ValidArgsFunction = func(c *cobra.Command, args []string, begun string) ([]cobra.Completion, cobra.ShellCompDirective) {
				if len(args) > 0 { // these commands take only one argument
					return nil, cobra.ShellCompDirectiveNoFileComp
				}
				return ask(names)(c, args, begun)
			}
		}
		c.LocalFlags().VisitAll(func(f *pflag.Flag) {
			complete := value[f.Name]
			switch v := f.Value.(type) {
			case interface{ Options() []string }:
				complete = cobra.FixedCompletions(v.Options(), cobra.ShellCompDirectiveNoFileComp)
			case interface {
				Complete(string) []cobra.Completion
			}:
				complete = func(_ *cobra.Command, _ []string, begun string) ([]cobra.Completion, cobra.ShellCompDirective) {
					return v.Complete(begun), cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveNoSpace
				}
			}
			if f.Name == "id" && c.Name() == "status" { // for other commands, --id is a new id
				complete = ids
			}
			if complete != nil {
				_ = c.RegisterFlagCompletionFunc(f.Name, complete) // fails only if the flag already has a completion
			}
		})
	})
}

// fromTable completes a word with names from the table. It ignores errors, because an error message would appear in the
// middle of the user's command line.
func fromTable(o *database.Database, c *cobra.Command, ask completer, lock, begun string) ([]cobra.Completion, cobra.ShellCompDirective) {
	const directive = cobra.ShellCompDirectiveNoFileComp
	if terminal.FromEnvironment(c.Flags()) != nil || o.Check() != nil {
		return nil, directive
	}
	ctx, cancel := context.WithTimeout(c.Context(), atTab)
	defer cancel()
	answer := make(chan []cobra.Completion, 1)
	go func() { // creating a client may wait for credentials even after ctx ends
		var found []cobra.Completion
		if db, err := o.Open(); err == nil {
			if found, err = ask(ctx, db.Locks(), lock, begun); err != nil {
				found = nil
			}
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

// offer adds a name to the completions if it begins with the text typed so far. It leaves out names that terminal.Show
// has to escape.
func offer(all []cobra.Completion, begun, name, about string) []cobra.Completion {
	if name == "" || !strings.HasPrefix(name, begun) || terminal.Show(name) != name {
		return all
	}
	return append(all, cobra.CompletionWithDesc(name, terminal.Show(about)))
}

// lockNames completes the names of locks and groups that are in use or, with idle, of all locks and groups.
func lockNames(idle bool) completer {
	return func(ctx context.Context, t table.Table, _, begun string) (names []cobra.Completion, err error) {
		all, _, err := operator.List(ctx, t, begun, idle)
		locks, groups := model.Gather(all, begun)
		for _, g := range groups {
			if g.JSON.Name == begun {
				locks = slices.Concat(locks, g.Members, g.Partitions)
			}
		}
		for _, l := range locks {
			names = offer(names, begun, l.Name, string(l.State()))
		}
		for _, g := range groups {
			if g.JSON.Name != begun {
				names = offer(names, begun, g.JSON.Name, string(g.JSON.State))
			}
		}
		return names, err
	}
}

func groupNames(ctx context.Context, t table.Table, _, begun string) (names []cobra.Completion, err error) {
	prefix := table.GroupPrefix(begun)
	all, _, err := operator.List(ctx, t, prefix[:len(prefix)-1], false)
	_, groups := model.Gather(all, "")
	for _, g := range groups {
		names = offer(names, begun, g.JSON.Group, g.Sum())
	}
	return names, err
}

// listed completes the last name in a comma-separated list.
func listed(ask completer) completer {
	return func(ctx context.Context, t table.Table, lock, begun string) ([]cobra.Completion, error) {
		before := begun[:strings.LastIndexByte(begun, ',')+1]
		found, err := ask(ctx, t, lock, begun[len(before):])
		for i := range found {
			found[i] = before + found[i]
		}
		return found, err
	}
}

// holding returns a completer that calls word for each lock with a holder, or only for the lock in the command's
// argument, and offers the results.
func holding(word func(operator.Listing) (text, about string)) completer {
	return func(ctx context.Context, t table.Table, lock, begun string) (found []cobra.Completion, err error) {
		all := make([]operator.Listing, 1)
		if lock != "" {
			all[0], err = operator.ListOne(ctx, t, lock)
		} else {
			all, _, err = operator.List(ctx, t, "", false)
		}
		for _, l := range all {
			if !model.IsPartition(l) && l.Holder() != "" {
				text, about := word(l)
				found = offer(found, begun, text, about)
			}
		}
		return found, err
	}
}
