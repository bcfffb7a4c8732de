package cli

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/spindle-lock/spindle/internal/table"
)

func newStatus(o *common) *cobra.Command {
	var a answer
	var expected []string
	c := &cobra.Command{
		Use:   "status NAME | --expect NAME,...",
		Short: "Tell scripts whether a lock is held, and by whom",
		Long: `Status says whether a lock is held: by anybody, or by the holder that --id or
--token names. An --id that ends in a slash matches every id that begins with
it, such as those of one host: the default id is host/process/UUID.

A partition of a group, such as orders/partition/17, is held as long as its
member is, such as orders/member/0003: its holder, state and heartbeat are that
one's, and its token is its own. A group as such is no lock: for that, use
spindle members.

What was done last under the lock, by exec --every, --once or lock.Once, is said
as well, and which processes wait for it, by package lock: the first ten, in
their order; --output json has up to 32 of them or more. One that was killed is
among them until the next holder passes its place. The waiters of a semaphore
are those of each of its slots, such as pool/slot/0000.

With --expect it looks at all the locks that should have a holder. If nobody
leads some of them, it names these, and says why: each was never taken, was
released, or has expired.

The answer is about the past: the lock may have changed hands since. Use it to
decide where to look, not what to write: for that there is the token.

Exit codes:
  0    it is held; with --id or --token, by that holder
  1    the database could not be asked
  2    the command line is wrong
  3    it is free: nobody holds it; with --expect, this is so of some lock
  4    it is held, but not by the holder that --id or --token names`,
		Example: `  spindle status nightly && echo "somebody is at it"
  spindle status nightly --id "$(hostname)/" --quiet || exit 0
  spindle status "$SPINDLE_LOCK" --token "$SPINDLE_TOKEN"    # in a program of exec
  spindle status nightly -o json | jq -r .value
  spindle status --expect nightly,billing,orders/export --quiet || page-somebody`,
		Args: func(c *cobra.Command, args []string) error {
			if len(args) == 0 && len(expected) > 0 {
				return nil
			}
			return exactly(1, "the name of one lock")(c, args)
		},
		ValidArgsFunction: o.complete,
		RunE: func(c *cobra.Command, args []string) error {
			switch {
			case len(expected) == 0:
				if err := table.CheckKey(args[0]); err != nil {
					return misuse("%w", err)
				}
				return o.withTable(c.Context(), func(ctx context.Context, t table.Table) error { return a.one(ctx, t, args[0]) })
			case len(args) > 0:
				return misuse("%q and --expect: give one of them", args[0])
			case a.id != "" || a.token != 0:
				return misuse("--id and --token are of one lock: give its name, and not --expect")
			}
			names, err := checkExpected(expected)
			if err != nil {
				return err
			}
			return o.withTable(c.Context(), func(ctx context.Context, t table.Table) error { return a.expected(ctx, t, names) })
		},
	}
	c.Flags().StringVar(&a.id, "id", "", "answer 4 unless this `id` holds the lock; if it ends in /, any id that begins with it")
	c.Flags().Int64Var(&a.token, "token", 0, "answer 4 unless the lock is held under this `token`")
	c.Flags().BoolVarP(&a.quiet, "quiet", "q", false, "print nothing")
	// What is meant for another command must not change the answer.
	_ = c.Flags().SetAnnotation("id", commandLineOnly, []string{})
	_ = c.Flags().SetAnnotation("token", commandLineOnly, []string{})
	expectFlag(c.Flags(), &expected)
	_ = c.Flags().SetAnnotation("expect", commandLineOnly, []string{})
	a.f.flag(c.Flags(), asYAML)
	return c
}

// An answer is one run of status.
type answer struct {
	id    string
	token int64
	quiet bool
	f     format
}

// one says whether a lock is held.
func (a *answer) one(ctx context.Context, t table.Table, name string) error {
	l, err := oneLock(ctx, t, name)
	if err != nil {
		return err
	}
	switch {
	case a.quiet:
	case a.f.objects():
		err = a.f.print(os.Stdout, statusJSON{jsonOf(l), waitersOf(l)})
	default:
		p := terminalOn(os.Stdout)
		_, err = fmt.Fprintln(p, fold(p, sentence(l)+waiterLines(l)))
	}
	if err != nil {
		return err
	}
	mine := (a.id == "" || isHolder(l.Holder(), a.id)) && (a.token == 0 || l.Token == table.Token(a.token))
	switch {
	case l.State() == table.Unreadable:
		return l.Unreadable
	case !l.IsHeld():
		return &exit{code: statusFree}
	case !mine && !a.quiet && !a.f.objects():
		return &exit{statusElse, fmt.Errorf("%s is held, but not by the holder that --id or --token names", show(l.Name))}
	case !mine:
		return &exit{code: statusElse}
	}
	return nil
}

// expected says which of the locks nobody leads.
func (a *answer) expected(ctx context.Context, t table.Table, names []string) error {
	found, err := expectedLocks(ctx, t, names)
	if err != nil {
		return err
	}
	switch {
	case a.quiet:
	case a.f.objects():
		for _, l := range found {
			if err := a.f.print(os.Stdout, statusJSON{jsonOf(l), waitersOf(l)}); err != nil {
				return err
			}
		}
	default:
		var all []entry
		for _, l := range found {
			all = append(all, lockEntry(l))
		}
		ls := listing{f: a.f}
		if err := ls.write(terminalOn(os.Stdout), ls.columns(lockColumns, wideColumns), all); err != nil {
			return err
		}
	}
	if text := leaderless(found); text != "" && !a.quiet {
		return &exit{statusFree, errors.New("nobody leads " + text)}
	} else if text != "" {
		return &exit{code: statusFree}
	}
	for _, l := range found {
		if l.State() == table.Unreadable {
			return fmt.Errorf("%s: %w", show(l.Name), l.Unreadable)
		}
	}
	return nil
}

// oneLock reads what there is of a lock. It fails if the name is that of a group.
func oneLock(ctx context.Context, t table.Table, name string) (table.Listing, error) {
	l, err := t.ListOne(ctx, name)
	if err == nil && l.State() == table.Free {
		err = noGroup(ctx, t, name)
	}
	return l, err
}

// noGroup fails if the name is that of a group: it is not free because no lock has it.
func noGroup(ctx context.Context, t table.Table, arg string) error {
	name, err := groupNamed(arg)
	if err != nil {
		return nil // of no group
	}
	r, err := t.LookAtGroup(ctx, name, table.GroupQuery{Members: true})
	if err != nil || len(r.Members) == 0 {
		return err
	}
	return misuse("%[1]s is a group, and not a lock: see spindle members %[1]s, or the status of one of its locks, such as %[2]s", show(name), slices.Min(slices.Collect(maps.Keys(r.Members))))
}

func isHolder(holder, id string) bool {
	return holder == id || strings.HasSuffix(id, "/") && strings.HasPrefix(holder, id)
}

// sentence describes a lock in a few lines.
func sentence(l table.Listing) string {
	text := standing(l)
	if done := doneLine(l); done != "" {
		text += "\n  " + done
	}
	return text
}

// standing says whether a lock is held.
func standing(l table.Listing) string {
	name, token := show(l.Name), l.Token
	age, since := ago(l.At.Sub(l.Heartbeat)), ago(l.At.Sub(l.Since()))
	switch l.State() {
	case table.Held, table.Leaving:
		s := fmt.Sprintf("%s is held by %s", name, show(l.Holder()))
		if l.Leaving() {
			s += ", who is leaving: it will be released once the work has ended"
		}
		s += fmt.Sprintf("\n  token %v, for %s; last heartbeat %s, lease %v", token, short(l.At.Sub(l.Since())), age, l.LeaseRecord.Lease)
		if l.LeaseRecord.Value != "" {
			s += "\n  value " + show(l.LeaseRecord.Value)
		}
		return s + with(l)
	case table.Expired:
		return fmt.Sprintf("%s is free: the lease of %s has expired\n  token %v; last heartbeat %s, lease %v", name, show(l.Holder()), token, age, l.LeaseRecord.Lease) + with(l)
	case table.Released:
		if l.Member.Name != "" {
			// Its slot may have had other terms since.
			return fmt.Sprintf("%s is free: the term of its member, %s, ended at least %s", name, show(l.Member.Name), since)
		}
		return fmt.Sprintf("%s is free: it was released %s", name, since)
	case table.Unconfirmed:
		return fmt.Sprintf("%s is not held: %s claimed it %s, and may not act yet\n  token %v", name, show(l.Holder()), age, token) + with(l)
	case table.Orphaned:
		if l.Adrift {
			return fmt.Sprintf("%s is not held: somebody deleted the row of its member, %s; it is free once that one's lease has passed", name, show(l.Member.Name))
		}
		return fmt.Sprintf("%s is not held: somebody deleted its row; it is free once its last holder's lease has passed", name)
	case table.Unreadable:
		return fmt.Sprintf("%s is taken by %s, token %v", name, show(l.Holder()), token)
	}
	return fmt.Sprintf("%s is free: nobody has claimed it yet, or its row was pruned", name)
}

// with says which member a partition is held with.
func with(l table.Listing) string {
	if l.Member.Name == "" {
		return ""
	}
	return "\n  it has the heartbeats of its member, " + show(l.Member.Name)
}
