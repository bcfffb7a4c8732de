// Package operate implements the commands that operators use to examine or change a lock table: init, doctor, handover,
// release and prune. Each command is in the file of the same name.
package operate

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/spindle-lock/spindle/cmd/spindle/internal/database"
	"github.com/spindle-lock/spindle/cmd/spindle/internal/model"
	"github.com/spindle-lock/spindle/cmd/spindle/internal/terminal"
	"github.com/spindle-lock/spindle/internal/operator"
	"github.com/spindle-lock/spindle/internal/table"
)

const releaseHelp = `Release takes a lock away from its holder. Use --token to say which term to end;
spindle ls shows the token of the current term. If the lock has changed hands in
the meantime, the token no longer matches, and the new holder keeps the lock.

The lock becomes free immediately, and the former holder's fenced writes fail
from then on. If the former holder is running and can reach the database, it
notices the release at its next heartbeat, up to a third of a lease later, and
then stops its work. Until its work has stopped, the next holder may be working
too, and only the fence keeps their writes apart.

Therefore, use release only for a holder that hangs. If you can stop the holder,
do that instead, because it ends its work before it releases the lock. If the
holder has crashed, wait for its lease to expire.

If the former holder is still running, it may compete for the lock again, and
win. Check afterwards who holds the lock.

In a group, release a member rather than a partition, because only members send
heartbeats. All partitions of the member become free immediately. However, the
member's fenced writes to a partition still commit until another member has
claimed that partition, which normally takes only moments.

Release asks for confirmation unless --yes is given.
` + terminal.CommonCodes

// NewRelease returns the command release.
func NewRelease(o *database.Database) *cobra.Command {
	var token int64
	var yes bool
	var f terminal.Format
	c := &cobra.Command{
		Use:     "release NAME --token T",
		Short:   "Take a lock away from its holder",
		Long:    releaseHelp,
		Example: `  spindle release nightly --token 1763645616123456  # see spindle ls`,
		Args:    model.OneName,
		RunE: func(c *cobra.Command, args []string) error {
			part, _ := table.PartOf(args[0])
			if token <= 0 && part.Partition == "" {
				return terminal.Misuse("no token given for %q; use --token with the token that spindle ls shows", args[0])
			}
			return o.WithTable(c.Context(), func(ctx context.Context, t table.Table) error {
				l, err := model.OneLock(ctx, t, args[0])
				if err != nil {
					return err
				}
				if err := breakable(l, table.Token(token)); err != nil {
					return err
				}
				if !yes {
					if err := confirm(l); err != nil {
						return err
					}
				}
				// The timeout of ctx may have expired while the user was answering.
				text, err := breakLock(context.WithoutCancel(ctx), o, t, l, table.Token(token))
				switch {
				case err != nil:
				case f.Objects():
					err = terminal.PrintJSON(os.Stdout, ReleaseJSON{l.Name, l.Holder(), table.Token(token).String()})
				default:
					_, err = fmt.Print(text)
				}
				return err
			})
		},
	}
	c.Flags().Int64Var(&token, "token", 0, "the `token` of the term to end")
	c.Flags().BoolVarP(&yes, "yes", "y", false, "don't ask for confirmation")
	f.Flag(c.Flags())
	terminal.OnlyOnCommandLine(c.Flags(), "token", "yes")
	return c
}

// breakable returns nil if the lock can be released under the token, and otherwise an error that explains why it can't.
func breakable(l operator.Listing, token table.Token) error {
	switch state := l.State(); {
	case state == operator.Free, state == operator.Released, state == operator.Paused:
		return fmt.Errorf("nothing was released, because %s", model.Sentence(l))
	case model.IsPartition(l):
		return terminal.Misuse("nothing was released: %s is a partition, and partitions can't be released individually; %s", terminal.Show(l.Name), instead(l))
	case token <= 0:
		return terminal.Misuse("no token given for %q; use --token with the token that spindle ls shows", l.Name)
	case errors.Is(l.Unreadable, table.ErrNewer):
		return fmt.Errorf("nothing was released, because %s can't be read: %w", terminal.Show(l.Name), l.Unreadable)
	case state == operator.Orphaned:
		return fmt.Errorf("nothing was released, because %s", model.Sentence(l)) // a release changes the lock row
	case l.Token != token:
		return fmt.Errorf("nothing was released: %d is not the current token of %s\n  %s", token, terminal.Show(l.Name), model.Sentence(l))
	case state == operator.Unconfirmed:
		return fmt.Errorf("nothing was released, because %s\n  if the claim is not confirmed, the lock becomes free one lease after the claim", model.Sentence(l))
	}
	return nil
}

// instead tells the user what to do about a partition, which can't be released alone.
func instead(l operator.Listing) string {
	if l.Member.Name == "" {
		return "another member of the group will claim it once it is free"
	}
	return fmt.Sprintf("to free all partitions of %s, release that member:\n  spindle release %s --token %v", cmp.Or(terminal.Show(l.Holder()), "its member"), terminal.Show(l.Member.Name), l.Member.Token)
}

const (
	allFree   = "all partitions of the member are free, and other members can claim them"
	stillLand = "the member's fenced writes to a partition still commit until another member claims that partition"
)

// consequences describes a lock and what happens if it is released.
func consequences(l operator.Listing) string {
	third := "a third of its lease"
	if l.LeaseRecord != nil && l.Unreadable == nil {
		third = terminal.Short(l.LeaseRecord.Lease / 3)
	}
	free, fenced := "the lock becomes free immediately, and another candidate can claim it", "fenced writes under this token fail from then on"
	if l.IsPart() {
		free, fenced = allFree, stillLand
	}
	return model.Sentence(l) + fmt.Sprintf(`

If you continue:
  - %s;
  - %s;
  - if the holder is running and can reach the database, it notices the release
    at its next heartbeat, up to %s later, and then stops its work. Until
    its work has stopped, the next holder may be working too.
`, free, fenced, third)
}

func confirm(l operator.Listing) error {
	fmt.Fprint(os.Stderr, consequences(l))
	if !term.IsTerminal(int(os.Stdin.Fd())) {
		return terminal.Misuse("nothing was released: standard input is not a terminal, so release cannot ask for confirmation; use --yes")
	}
	fmt.Fprintf(os.Stderr, "\nRelease %s? [y/N] ", terminal.Show(l.Name))
	answer, _ := bufio.NewReader(os.Stdin).ReadString('\n')
	if a := strings.ToLower(strings.TrimSpace(answer)); a != "y" && a != "yes" {
		return errors.New("nothing was released")
	}
	return nil
}

// ReleaseJSON is the JSON form of a release.
type ReleaseJSON struct {
	Name   string `json:"name"`                              // the lock's name
	Holder string `json:"holder,omitempty"`                  // the id of the holder that lost the lock
	Token  string `json:"token" schema:"pattern=^-?[0-9]+$"` // the token of the term that ended
}

// breakLock releases a lock that is held under the token, and returns a message that says so.
func breakLock(ctx context.Context, o *database.Database, t table.Table, l operator.Listing, token table.Token) (string, error) {
	name := terminal.Show(l.Name)
	ctx, cancel := context.WithTimeout(ctx, o.Timeout)
	defer cancel()
	err := t.Break(ctx, token, l.Name)
	if errors.Is(err, table.ErrSuperseded) { // also if the reply was lost, and the client sent the request again
		var broken bool
		if broken, err = t.Broken(ctx, token, l.Name); err == nil && !broken {
			return "", fmt.Errorf("nothing was released: %d is no longer the current token of %s, because its term has just ended", token, name)
		}
	}
	text := fmt.Sprintf("released %s, which was held under token %v\n", name, token)
	if l.IsPart() {
		text += fmt.Sprintf("  %s;\n  %s\n", allFree, stillLand)
	}
	return text, err
}
