package cli

import (
	"context"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/spindle-lock/spindle/internal/table"
)

func newStatus(o *common) *cobra.Command {
	var f format
	var id string
	var token int64
	var quiet bool
	c := &cobra.Command{
		Use:   "status NAME",
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

The answer is about the past: the lock may have changed hands since. Use it to
decide where to look, not what to write: for that there is the token.

Exit codes:
  0    it is held; with --id or --token, by that holder
  1    the database could not be asked
  2    the command line is wrong
  3    it is free: nobody holds it
  4    it is held, but not by the holder that --id or --token names`,
		Example: `  spindle status nightly && echo "somebody is at it"
  spindle status nightly --id "$(hostname)/" --quiet || exit 0
  spindle status "$SPINDLE_LOCK" --token "$SPINDLE_TOKEN"    # in a program of exec
  spindle status nightly -o json | jq -r .value`,
		Args:              exactly(1, "the name of one lock"),
		ValidArgsFunction: o.complete,
		RunE: func(c *cobra.Command, args []string) error {
			if err := table.CheckKey(args[0]); err != nil {
				return misuse("%w", err)
			}
			return o.withTable(c.Context(), func(ctx context.Context, t table.Table) error {
				l, err := oneLock(ctx, t, args[0])
				if err != nil {
					return err
				}
				switch {
				case quiet:
				case f.json:
					err = printJSON(os.Stdout, statusJSON{jsonOf(l), waitersOf(l)})
				default:
					_, err = fmt.Println(sentence(l) + waiterLines(l))
				}
				if err != nil {
					return err
				}
				mine := (id == "" || isHolder(l.Holder(), id)) && (token == 0 || l.Token == table.Token(token))
				switch {
				case l.State() == table.Unreadable:
					return l.Unreadable
				case !l.IsHeld():
					return &exit{code: statusFree}
				case !mine && !quiet && !f.json:
					return &exit{statusElse, fmt.Errorf("%s is held, but not by the holder that --id or --token names", show(l.Name))}
				case !mine:
					return &exit{code: statusElse}
				}
				return nil
			})
		},
	}
	c.Flags().StringVar(&id, "id", "", "answer 4 unless this `id` holds the lock; if it ends in /, any id that begins with it")
	c.Flags().Int64Var(&token, "token", 0, "answer 4 unless the lock is held under this `token`")
	c.Flags().BoolVarP(&quiet, "quiet", "q", false, "print nothing")
	// What is meant for another command must not change the answer.
	_ = c.Flags().SetAnnotation("id", commandLineOnly, []string{})
	_ = c.Flags().SetAnnotation("token", commandLineOnly, []string{})
	f.flag(c.Flags())
	return c
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
		s += fmt.Sprintf("\n  token %v, for %s; last heartbeat %s, lease %v", token, short(l.At.Sub(l.Since())), age, l.Promise.Lease)
		if l.Promise.Value != "" {
			s += "\n  value " + show(l.Promise.Value)
		}
		return s + with(l)
	case table.Expired:
		return fmt.Sprintf("%s is free: the lease of %s has expired\n  token %v; last heartbeat %s, lease %v", name, show(l.Holder()), token, age, l.Promise.Lease) + with(l)
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
