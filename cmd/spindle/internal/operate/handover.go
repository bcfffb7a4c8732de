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
	"github.com/spindle-lock/spindle/cmd/spindle/internal/complete"
	"github.com/spindle-lock/spindle/cmd/spindle/internal/connect"
	"github.com/spindle-lock/spindle/cmd/spindle/internal/exit"
	"github.com/spindle-lock/spindle/cmd/spindle/internal/flags"
	"github.com/spindle-lock/spindle/cmd/spindle/internal/model"
	"github.com/spindle-lock/spindle/cmd/spindle/internal/terminal"
	"github.com/spindle-lock/spindle/internal/table"
)

// handover is one run of the command.
type handover struct {
	*connect.Database
	f     terminal.Format
	name  string
	token int64
	wait  time.Duration
}

// NewHandover returns the command handover.
func NewHandover(o *connect.Database) *cobra.Command {
	h := &handover{Database: o}
	c := &cobra.Command{
		Use:   "handover NAME",
		Short: "Ask the holder to hand the lock to another candidate",
		Long: `Handover asks the holder of a lock to hand it over to another candidate. The
holder announces that it is leaving, and keeps working until the other
candidates have seen the announcement. It then stops its work and releases the
lock. Another candidate claims the lock immediately, so the lock has no holder
for only a short time. Handover prints the new holder and the length of that
time.

A holder accepts requests only if it is spindle exec or spindle guard with
--handover, or a Go program that uses WithHandover. It checks for requests once
per lease.

A request applies to a single term: the current one, or the one whose token is
given with --token. It never affects a later term, and it can't be withdrawn.

Members of a group don't accept requests. Stop the member's process instead, and
the other members take over its partitions.

Exit codes:
  0    another candidate has taken over
  1    the request failed; the message says why
  2    the command line is wrong
  3    no process holds the lock, or --token is not the current token
  4    the holder does not accept requests
  5    no other candidate has taken over`,
		Example: `  spindle handover nightly
  spindle handover nightly --token 1763645616123456 --wait 1m`,
		Args:              flags.Exactly(1, "the name of one lock"),
		ValidArgsFunction: complete.Locks(o),
		RunE: func(c *cobra.Command, args []string) error {
			if h.token < 0 || h.wait < 0 {
				return exit.Misuse("--token %d, --wait %v: must not be negative", h.token, h.wait)
			}
			if err := table.CheckKey(args[0]); err != nil {
				return exit.Misuse("%w", err)
			}
			h.name = args[0]
			return h.run(c.Context())
		},
	}
	c.Flags().Int64Var(&h.token, "token", 0, "the `token` of the term to end (default: the current one)")
	c.Flags().DurationVar(&h.wait, "wait", 0, "how long to wait for another candidate to take over (default: three times the holder's lease)")
	flags.OnlyOnCommandLine(c.Flags(), "token", "wait")
	h.f.Flag(c.Flags())
	return c
}

func (h *handover) run(ctx context.Context) error {
	db, err := h.Open(spindle.ClientOptions(0)...)
	if err != nil {
		return err
	}
	defer db.Close()
	leader, err := h.asks(ctx, db, db.Audibly(h.Database))
	if err != nil {
		return err
	}
	done, err := h.request(ctx, db, leader)
	if err != nil {
		return err
	}
	return h.print(done)
}

// asks returns the holder to ask. If --wait was not given, asks also sets the wait to three times the holder's lease.
func (h *handover) asks(ctx context.Context, db *connect.Connection, t table.Table) (spindle.Leader, error) {
	if err := h.refuse(ctx, t); err != nil {
		return spindle.Leader{}, err
	}
	leader, err := h.leader(ctx, spindle.New(db.Client(), h.Table, h.name))
	if h.wait == 0 {
		h.wait = 3 * leader.Lease
	}
	return leader, err
}

// request sends the request to the holder, and returns once another candidate has taken over.
func (h *handover) request(ctx context.Context, db *connect.Connection, leader spindle.Leader) (spindle.Handover, error) {
	ctx, cancel := context.WithTimeout(ctx, h.wait)
	defer cancel()
	done, err := spindle.New(db.Client(), h.Table, h.name).RequestHandover(ctx, leader.Token)
	switch {
	case errors.Is(err, spindle.ErrSuperseded):
		return done, &exit.Error{Code: exit.NobodyLeads, Err: fmt.Errorf("no request was sent: %v is not the current token of %s", leader.Token, terminal.Show(h.name))}
	case errors.Is(err, spindle.ErrHandoverUnsupported):
		return done, &exit.Error{Code: exit.Unsupported, Err: fmt.Errorf("the holder of %s, %s, does not accept requests, because it was started without --handover (or WithHandover, in Go); stop it with SIGTERM instead, and it will release the lock", terminal.Show(h.name), terminal.Show(leader.ID))}
	case ctx.Err() != nil:
		return done, &exit.Error{Code: exit.NotTakenOver, Err: fmt.Errorf("no other candidate has taken over %s within %v: %s", terminal.Show(h.name), h.wait, soFar(err))}
	case err != nil:
		return done, h.Explain(err)
	case done.To.ID == done.From.ID:
		return done, &exit.Error{Code: exit.NotTakenOver, Err: fmt.Errorf("%s claimed %s again, under token %v, because no other candidate did", terminal.Show(done.To.ID), terminal.Show(h.name), done.To.Token)}
	}
	return done, nil
}

// refuse returns an error if h.name is the name of a group, or of a lock that a group member holds, because group
// members don't accept requests.
func (h *handover) refuse(ctx context.Context, t table.Table) error {
	ctx, cancel := context.WithTimeout(ctx, h.Timeout)
	defer cancel()
	l, err := model.OneLock(ctx, t, h.name)
	switch {
	case err != nil:
		return h.Explain(err)
	case !l.IsPart() || !l.IsHeld():
		return nil
	}
	return &exit.Error{Code: exit.Unsupported, Err: fmt.Errorf("no request was sent: %s belongs to a group, and group members don't accept requests; stop its holder, %s, with SIGTERM instead, and the other members will take over its partitions", terminal.Show(h.name), terminal.Show(l.Holder()))}
}

// soFar returns the part of RequestHandover's error that says how far the request got. It cuts off the end, which only
// says that the wait timed out.
func soFar(err error) string {
	return strings.TrimSuffix(errors.Unwrap(err).Error(), ": "+context.DeadlineExceeded.Error())
}

// leader returns the holder to ask.
func (h *handover) leader(ctx context.Context, lock *spindle.Lock) (spindle.Leader, error) {
	ctx, cancel := context.WithTimeout(ctx, h.Timeout)
	defer cancel()
	defer h.Audible()()
	leader, err := lock.Leader(ctx)
	switch {
	case errors.Is(err, spindle.ErrNoLeader):
		return leader, &exit.Error{Code: exit.NobodyLeads, Err: fmt.Errorf("no request was sent: no process holds %s", terminal.Show(h.name))}
	case err != nil:
		return leader, h.Explain(err)
	case h.token != 0 && leader.Token != spindle.Token(h.token):
		return leader, &exit.Error{Code: exit.NobodyLeads, Err: fmt.Errorf("no request was sent: %d is not the current token of %s, which %s holds under token %v", h.token, terminal.Show(h.name), terminal.Show(leader.ID), leader.Token)}
	}
	return leader, nil
}

// HandoverJSON is the JSON form of a handover.
type HandoverJSON struct {
	Name  string  `json:"name"`                              // the lock's name
	From  string  `json:"from"`                              // the id of the holder that was asked
	To    string  `json:"to"`                                // the id of the next holder
	Token string  `json:"token" schema:"pattern=^-?[0-9]+$"` // the token of its term
	Gap   float64 `json:"gap_seconds"`                       // an upper bound of the time during which the lock had no holder
}

func (h *handover) print(done spindle.Handover) error {
	if h.f.Objects() {
		return terminal.PrintJSON(os.Stdout, HandoverJSON{h.name, done.From.ID, done.To.ID, done.To.Token.String(), done.Gap.Seconds()})
	}
	_, err := fmt.Print(h.text(done))
	return err
}

func (h *handover) text(done spindle.Handover) string {
	return fmt.Sprintf("%s was handed over\n  from %s\n  to   %s, token %v\n  without a holder for at most %v\n",
		terminal.Show(h.name), terminal.Show(done.From.ID), terminal.Show(done.To.ID), done.To.Token, done.Gap.Round(time.Millisecond))
}
