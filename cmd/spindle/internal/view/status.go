package view

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/spindle-lock/spindle/cmd/spindle/internal/complete"
	"github.com/spindle-lock/spindle/cmd/spindle/internal/connect"
	"github.com/spindle-lock/spindle/cmd/spindle/internal/exit"
	"github.com/spindle-lock/spindle/cmd/spindle/internal/flags"
	"github.com/spindle-lock/spindle/cmd/spindle/internal/model"
	"github.com/spindle-lock/spindle/cmd/spindle/internal/terminal"
	"github.com/spindle-lock/spindle/internal/operator"
	"github.com/spindle-lock/spindle/internal/table"
)

const statusHelp = `Status reports whether a lock is held. With --id or --token, it reports whether
that particular holder has it. An --id that ends in a slash matches every id
that begins with it. Default ids have the form host/process/UUID, so --id web-1/
matches all processes on the host web-1.

A partition of a group, such as orders/partition/17, is kept by the heartbeats
of a member, such as orders/member/0003. Status therefore shows the member's
holder, state and heartbeat for the partition. Only the token is the partition's
own. A group itself is not a lock; to see its state, use spindle members.

Status also shows the most recent work that exec --every, exec --once or
lock.Once has done under the lock, and the processes that wait for the lock with
package lock. It lists the first ten processes in the order of the queue, or at
least the first 32 with --output json. A killed process stays on the list until
a process behind it gets the lock. To see the processes that wait for a
semaphore, give the name of any of its slots, such as pool/slot/0000.

With --expect, status checks several locks that should all have a holder. It
lists the locks without a holder, and says whether each of them was never taken,
was released or has expired.

The answer may be out of date when you read it, because the lock can change
hands at any time. Use it to find out where a program runs, but not to decide
whether a write is safe. To make writes safe, use the token.

Exit codes:
  0    the lock is held; with --id or --token, by that holder
  1    the database could not be read
  2    the command line is wrong
  3    the lock has no holder; with --expect, at least one lock has none
  4    the lock is held, but not by the holder that --id or --token identifies`

// NewStatus returns the command status.
func NewStatus(o *connect.Database) *cobra.Command {
	var a answer
	var expected []string
	c := &cobra.Command{
		Use:   "status NAME | --expect NAME,...",
		Short: "Check whether a lock is held, and by whom",
		Long:  statusHelp,
		Example: `  spindle status nightly && echo "already running"
  spindle status nightly --id "$(hostname)/" --quiet || exit 0
  spindle status "$SPINDLE_LOCK" --token "$SPINDLE_TOKEN"    # in a program of exec
  spindle status nightly -o json | jq -r .value
  spindle status --expect nightly,billing,orders/export --quiet || page-on-call`,
		Args: func(c *cobra.Command, args []string) error {
			if len(args) == 0 && len(expected) > 0 {
				return nil
			}
			return flags.Exactly(1, "the name of one lock")(c, args)
		},
		ValidArgsFunction: complete.Locks(o),
		RunE: func(c *cobra.Command, args []string) error {
			switch {
			case len(expected) == 0:
				if err := table.CheckKey(args[0]); err != nil {
					return exit.Misuse("%w", err)
				}
				return o.WithTable(c.Context(), func(ctx context.Context, t table.Table) error { return a.one(ctx, t, args[0]) })
			case len(args) > 0:
				return exit.Misuse("give either the lock %q or --expect, not both", args[0])
			case a.id != "" || a.token != 0:
				return exit.Misuse("--id and --token check a single lock; give its name instead of --expect")
			}
			names, err := model.CheckExpected(expected)
			if err != nil {
				return err
			}
			return o.WithTable(c.Context(), func(ctx context.Context, t table.Table) error { return a.expected(ctx, t, names) })
		},
	}
	c.Flags().StringVar(&a.id, "id", "", "exit with code 4 unless this `id` holds the lock; an id that ends in / matches every id that begins with it")
	c.Flags().Int64Var(&a.token, "token", 0, "exit with code 4 unless the lock is held under this `token`")
	c.Flags().BoolVarP(&a.quiet, "quiet", "q", false, "print nothing")
	model.ExpectFlag(c.Flags(), &expected)
	flags.OnlyOnCommandLine(c.Flags(), "id", "token", "expect") // a variable that is meant for another command must not change the answer
	a.f.Flag(c.Flags())
	return c
}

// An answer is one run of status.
type answer struct {
	id    string
	token int64
	quiet bool
	f     terminal.Format
}

// one reports whether a single lock is held.
func (a *answer) one(ctx context.Context, t table.Table, name string) error {
	l, err := model.OneLock(ctx, t, name)
	if err != nil {
		return err
	}
	switch {
	case a.quiet:
	case a.f.Objects():
		err = terminal.PrintJSON(os.Stdout, model.StatusOf(l))
	default:
		p := terminal.On(os.Stdout)
		_, err = fmt.Fprintln(p, terminal.Fold(p, model.Sentence(l)+model.WaiterLines(l)))
	}
	if err != nil {
		return err
	}
	mine := (a.id == "" || isHolder(l.Holder(), a.id)) && (a.token == 0 || l.Token == table.Token(a.token))
	switch {
	case l.State() == operator.Unreadable:
		return l.Unreadable
	case !l.IsHeld():
		return &exit.Error{Code: exit.StatusFree}
	case !mine && !a.quiet && !a.f.Objects():
		return &exit.Error{Code: exit.StatusElse, Err: fmt.Errorf("%s is held, but not by the holder that --id or --token identifies", terminal.Show(l.Name))}
	case !mine:
		return &exit.Error{Code: exit.StatusElse}
	}
	return nil
}

// expected reports which of the locks have no holder.
func (a *answer) expected(ctx context.Context, t table.Table, names []string) error {
	found, err := model.ExpectedLocks(ctx, t, names)
	if err != nil {
		return err
	}
	switch {
	case a.quiet:
	case a.f.Objects():
		for _, l := range found {
			if err := terminal.PrintJSON(os.Stdout, model.StatusOf(l)); err != nil {
				return err
			}
		}
	default:
		var all []model.Entry
		for _, l := range found {
			all = append(all, model.LockEntry(l))
		}
		ls := listing{f: a.f}
		if err := ls.write(terminal.On(os.Stdout), ls.columns(model.LockColumns, model.WideColumns), all); err != nil {
			return err
		}
	}
	if text := model.Leaderless(found); text != "" && !a.quiet {
		return &exit.Error{Code: exit.StatusFree, Err: errors.New("no process holds " + text)}
	} else if text != "" {
		return &exit.Error{Code: exit.StatusFree}
	}
	for _, l := range found {
		if l.State() == operator.Unreadable {
			return fmt.Errorf("%s: %w", terminal.Show(l.Name), l.Unreadable)
		}
	}
	return nil
}

func isHolder(holder, id string) bool {
	return holder == id || strings.HasSuffix(id, "/") && strings.HasPrefix(holder, id)
}
