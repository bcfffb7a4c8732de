package view

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/spindle-lock/spindle/cmd/spindle/internal/database"
	"github.com/spindle-lock/spindle/cmd/spindle/internal/model"
	"github.com/spindle-lock/spindle/cmd/spindle/internal/terminal"
	"github.com/spindle-lock/spindle/internal/operator"
	"github.com/spindle-lock/spindle/internal/table"
)

const statusHelp = `Status reports whether a lock is held. With --id or --token, it reports whether
the holder has that id or token. An --id that ends in a slash matches every id
that begins with it. Default ids have the form host/process/UUID, so --id web-1/
matches all processes on the host web-1.

A partition of a group, such as orders/partition/17, is kept by the heartbeats
of a member, such as orders/member/0003. Status therefore shows the member's
holder, state and heartbeat for the partition. Only the token is the partition's
own. A group itself is not a lock; to see its state, use spindle members.

Status also shows the most recent work that lock.Once, or exec with --every,
--cron or --once, has done under the lock, and the processes in the lock's
queue. It lists the first ten processes in the order of the queue, or at least
the first 32 with --output json. A killed process may stay on the list for three
leases, or for a minute if that is longer. To see the processes that wait for a
semaphore, give the name of any of its slots, such as pool/slot/0000.

A waiter "can be notified" if both its row and the holder's row have an address
for notifications. The table does not show whether messages arrive. While the
holder answers the waiter's messages, the waiter polls about once per lease.
Otherwise, it polls as often as a waiter with "no notifications". Status never
shows an address, and says nothing about notifications if neither the waiter nor
the holder uses them.

With --expect, status checks several locks that should all have a holder. It
lists them all, and then says which of them have no holder, and why: for
example, because a lock was released or has expired.

The answer may be out of date when you read it, because the lock can change
hands at any time. Use it to find out where a program runs, but not to decide
whether a write is safe. To make writes safe, fence them with the token.

Exit codes:
  0    the lock is held; with --id or --token, by the holder they identify
  1    the database or a lock could not be read
  2    the command line is wrong
  3    the lock has no holder; with --expect, at least one lock has none
  4    the lock is held, but not by the holder that --id or --token identifies`

// NewStatus returns the command status.
func NewStatus(o *database.Database) *cobra.Command {
	var a answer
	var expected []string
	c := &cobra.Command{
		Use:   "status NAME | --expect NAME,...",
		Short: "Check whether a lock is held, and by whom",
		Long:  statusHelp,
		Example: `  spindle status nightly && echo "already running"
  spindle status nightly --id "$(hostname)/" --quiet || exit 0
  spindle status "$SPINDLE_LOCK" --token "$SPINDLE_TOKEN"    # in a program run by exec
  spindle status nightly -o json | jq -r .value
  spindle status --expect nightly,billing,orders/export --quiet || page-on-call`,
		Args: func(c *cobra.Command, args []string) error {
			if len(args) == 0 && len(expected) > 0 {
				return nil
			}
			return model.OneName(c, args)
		},
		RunE: func(c *cobra.Command, args []string) error {
			single := len(expected) == 0
			switch {
			case single:
			case len(args) > 0:
				return terminal.Misuse("give either the lock %q or --expect, not both", args[0])
			case a.id != "" || a.token != 0:
				return terminal.Misuse("--id and --token check a single lock; give its name instead of --expect")
			default:
				var err error
				if args, err = model.CheckExpected(expected); err != nil {
					return err
				}
			}
			return o.WithTable(c.Context(), func(ctx context.Context, t table.Table) error { return a.run(ctx, t, single, args) })
		},
	}
	c.Flags().StringVar(&a.id, "id", "", "exit with code 4 if the lock is held by another `id`; an id that ends in / matches every id that begins with it")
	c.Flags().Int64Var(&a.token, "token", 0, "exit with code 4 if the lock is held under another `token`")
	c.Flags().BoolVarP(&a.quiet, "quiet", "q", false, "print nothing")
	model.ExpectFlag(c.Flags(), &expected)
	terminal.OnlyOnCommandLine(c.Flags(), "id", "token", "expect") // a variable that is meant for another command must not change the answer
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

// run reports whether the single lock is held or, with --expect, whether all expected locks are held.
func (a *answer) run(ctx context.Context, t table.Table, single bool, names []string) error {
	found, err := model.ExpectedLocks(ctx, t, names)
	if err != nil {
		return err
	}
	if !a.quiet {
		if err := a.print(single, found); err != nil {
			return err
		}
	}
	code, why := a.verdict(single, found)
	switch {
	case code == 0:
		return why
	case a.quiet || single && a.f.Objects():
		why = nil
	}
	return &terminal.Exit{Code: code, Err: why}
}

func (a *answer) print(single bool, found []operator.Listing) error {
	p := terminal.On(os.Stdout)
	if single && !a.f.Objects() {
		_, err := fmt.Fprintln(p, terminal.Fold(p, model.Sentence(found[0])+model.WaiterLines(found[0])))
		return err
	}
	var all []model.Entry
	for _, l := range found {
		e := model.LockEntry(l)
		e.Object = model.StatusOf(l)
		all = append(all, e)
	}
	ls := listing{f: a.f}
	return ls.write(p, ls.columns(model.LockColumns, model.WideColumns), all)
}

// verdict returns the exit code and the reason for it. If a lock can't be read, it returns 0 and the error.
func (a *answer) verdict(single bool, found []operator.Listing) (int, error) {
	if text := model.Leaderless(found); single && text != "" {
		return terminal.StatusFree, nil // the output says why
	} else if text != "" {
		return terminal.StatusFree, errors.New("no process holds " + text)
	}
	for _, l := range found {
		if l.State() == operator.Unreadable {
			return 0, fmt.Errorf("%s: %w", terminal.Show(l.Name), l.Unreadable)
		}
	}
	l := found[0]
	if a.id != "" && !isHolder(l.Holder(), a.id) || a.token != 0 && l.Token != table.Token(a.token) {
		return terminal.StatusElse, fmt.Errorf("%s is held, but not by the holder that --id or --token identifies", terminal.Show(l.Name))
	}
	return 0, nil
}

func isHolder(holder, id string) bool {
	return holder == id || strings.HasSuffix(id, "/") && strings.HasPrefix(holder, id)
}
