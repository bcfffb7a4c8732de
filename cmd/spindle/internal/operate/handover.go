package operate

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/spindle-lock/spindle"
	"github.com/spindle-lock/spindle/cmd/spindle/internal/database"
	"github.com/spindle-lock/spindle/cmd/spindle/internal/model"
	"github.com/spindle-lock/spindle/cmd/spindle/internal/terminal"
	"github.com/spindle-lock/spindle/internal/operator"
	"github.com/spindle-lock/spindle/internal/table"
)

// handover is one run of the command.
type handover struct {
	*database.Database
	f     terminal.Format
	name  string
	token int64
	wait  time.Duration
}

// NewHandover returns the command handover.
func NewHandover(o *database.Database) *cobra.Command {
	h := &handover{Database: o}
	c := &cobra.Command{
		Use:   "handover NAME",
		Short: "Ask the holder to hand the lock to another candidate",
		Long: `Handover asks the holder of a lock to hand it over to another candidate. The
holder announces that it is leaving, and continues to work for a third of its
lease, so that the other candidates see the announcement. It then stops its work
and releases the lock. Another candidate usually claims the lock within a small
fraction of a lease. Handover prints the new holder, and an upper bound on the
time during which the lock had no holder.

A holder accepts requests only if it is spindle exec or spindle guard with
--handover, a Go program that uses WithHandover, or a program whose request to
an agent has handover=true. It checks for requests about once per lease.

A request applies to a single term: the current one, or the one whose token is
given with --token. It never affects a later term, and it can't be withdrawn.

Members of a group don't accept requests. To move a member's partitions to other
members, stop the member's process instead.

Exit codes:
  0    another candidate has taken over
  1    the request failed; the message says why
  2    the command line is wrong
  3    no process holds the lock, or --token is not the current token
  4    the holder does not accept requests
  5    no other candidate has taken over`,
		Example: `  spindle handover nightly
  spindle handover nightly --token 1763645616123456 --wait 1m`,
		Args: model.OneName,
		RunE: func(c *cobra.Command, args []string) error {
			if h.token < 0 || h.wait < 0 {
				return terminal.Misuse("--token (%d) and --wait (%v) must not be negative", h.token, h.wait)
			}
			h.name = args[0]
			return h.run(c.Context())
		},
	}
	c.Flags().Int64Var(&h.token, "token", 0, "the `token` of the term to end (default: the current one)")
	c.Flags().DurationVar(&h.wait, "wait", 0, "how long to wait for another candidate to take over (default: three times the holder's lease)")
	terminal.OnlyOnCommandLine(c.Flags(), "token", "wait")
	h.f.Flag(c.Flags())
	return c
}

func (h *handover) run(ctx context.Context) error {
	db, err := h.Open(spindle.ClientOptions(0)...)
	if err != nil {
		return err
	}
	defer db.Close()
	l, err := h.holder(ctx, db.Audibly(h.Database))
	if err != nil {
		return h.Explain(err)
	}
	if h.wait == 0 {
		h.wait = 3 * l.LeaseRecord.Lease
	}
	done, err := h.request(ctx, db, l)
	if err != nil {
		return h.Explain(err)
	}
	return h.print(done)
}

func notSent(code int, format string, args ...any) error {
	return &terminal.Exit{Code: code, Err: fmt.Errorf("no request was sent: "+format, args...)}
}

// holder returns the lock, or an error if its holder can't be asked.
func (h *handover) holder(ctx context.Context, t table.Table) (operator.Listing, error) {
	ctx, cancel := context.WithTimeout(ctx, h.Timeout)
	defer cancel()
	l, err := model.OneLock(ctx, t, h.name)
	name, holder := terminal.Show(h.name), terminal.Show(l.Holder())
	switch {
	case err != nil:
		return l, err
	case l.Unreadable != nil:
		return l, l.Unreadable
	case !l.IsHeld():
		return l, notSent(terminal.NobodyLeads, "no process holds %s", name)
	case l.IsPart():
		return l, notSent(terminal.Unsupported, "%s belongs to a group, and group members don't accept requests; stop its holder, %s, with SIGTERM instead, and the other members will take over its partitions", name, holder)
	case h.token != 0 && l.Token != table.Token(h.token):
		return l, notSent(terminal.NobodyLeads, "%d is not the current token of %s, which %s holds under token %v", h.token, name, holder, l.Token)
	}
	return l, nil
}

// request sends the request to the holder, and returns once another candidate has taken over.
func (h *handover) request(ctx context.Context, db *database.Connection, l operator.Listing) (spindle.Handover, error) {
	ctx, cancel := context.WithTimeout(ctx, h.wait)
	defer cancel()
	name := terminal.Show(h.name)
	notTaken := func(format string, args ...any) error {
		return &terminal.Exit{Code: terminal.NotTakenOver, Err: fmt.Errorf(format, args...)}
	}
	done, err := spindle.New(db.Client(), h.Table, h.name).RequestHandover(ctx, spindle.Token(l.Token))
	switch {
	case errors.Is(err, spindle.ErrSuperseded):
		err = notSent(terminal.NobodyLeads, "%v is not the current token of %s", l.Token, name)
	case errors.Is(err, spindle.ErrNoLeader):
		err = notSent(terminal.NobodyLeads, "the lease on %s, held by %s, has just expired", name, terminal.Show(l.Holder()))
	case errors.Is(err, spindle.ErrHandoverUnsupported):
		err = &terminal.Exit{Code: terminal.Unsupported, Err: fmt.Errorf("the holder of %s, %s, does not accept requests, because it was started without --handover (in Go: WithHandover; with an agent: handover=true); stop it with SIGTERM instead, and it will release the lock", name, terminal.Show(l.Holder()))}
	case err != nil && ctx.Err() != nil:
		// The end of the error only says that the wait timed out.
		soFar := strings.TrimSuffix(errors.Unwrap(err).Error(), ": "+context.DeadlineExceeded.Error())
		err = notTaken("no other candidate has taken over %s within %v: %s", name, h.wait, soFar)
	case err == nil && done.To.ID == done.From.ID:
		err = notTaken("%s claimed %s again, under token %v, because no other candidate did", terminal.Show(done.To.ID), name, done.To.Token)
	}
	return done, err
}

// HandoverJSON is the JSON form of a handover.
type HandoverJSON struct {
	Name  string  `json:"name"`                              // the lock's name
	From  string  `json:"from"`                              // the id of the holder that was asked
	To    string  `json:"to"`                                // the id of the next holder
	Token string  `json:"token" schema:"pattern=^-?[0-9]+$"` // the token of its term
	Gap   float64 `json:"gap_seconds"`                       // an upper bound on the time during which the lock had no holder
}

func (h *handover) print(done spindle.Handover) error {
	if h.f.Objects() {
		return terminal.PrintJSON(os.Stdout, HandoverJSON{h.name, done.From.ID, done.To.ID, done.To.Token.String(), done.Gap.Seconds()})
	}
	_, err := fmt.Printf("%s was handed over\n  from %s\n  to   %s, token %v\n  without a holder for at most %v\n",
		terminal.Show(h.name), terminal.Show(done.From.ID), terminal.Show(done.To.ID), done.To.Token, done.Gap.Round(time.Millisecond))
	return err
}
