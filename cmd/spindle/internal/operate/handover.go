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
	"github.com/spindle-lock/spindle/cmd/spindle/internal/describe"
	"github.com/spindle-lock/spindle/cmd/spindle/internal/exit"
	"github.com/spindle-lock/spindle/cmd/spindle/internal/flags"
	"github.com/spindle-lock/spindle/cmd/spindle/internal/terminal"
	"github.com/spindle-lock/spindle/cmd/spindle/internal/watch"
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
		Long: `Handover asks the holder of a lock to give it up in an orderly way. The holder
announces to the other candidates that it is leaving, continues until they know,
stops its work, and then releases the lock. The lock is therefore without a
holder only briefly. Handover prints the new holder, and how long the lock had
no holder.

Holders that use WithHandover accept requests, and so do spindle exec and
spindle guard with --handover. They check for requests once per lease. A request
applies to one term: the current one, or the one whose token is given with
--token. It never affects a later term, and it can't be withdrawn. Members of
groups don't accept requests: stop the process instead, and the other members
take over its partitions.

Exit codes:
  0    another candidate has taken over
  1    it failed; the message says why
  2    the command line is wrong
  3    no process holds the lock, or its token is not the one given
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
	h.f.Flag(c.Flags(), terminal.AsYAML)
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
		return done, &exit.Error{Code: exit.Unsupported, Err: fmt.Errorf("the holder of %s, %s, does not accept requests, because it runs without --handover (in Go: WithHandover); stop it with SIGTERM instead, and it will release the lock", terminal.Show(h.name), terminal.Show(leader.ID))}
	case ctx.Err() != nil:
		return done, &exit.Error{Code: exit.NotTakenOver, Err: fmt.Errorf("no other candidate has taken over %s within %v: %s", terminal.Show(h.name), h.wait, soFar(err))}
	case err != nil:
		return done, h.Explain(err)
	case done.To.ID == done.From.ID:
		return done, &exit.Error{Code: exit.NotTakenOver, Err: fmt.Errorf("there was no other candidate, so %s holds %s again, under token %v", terminal.Show(done.To.ID), terminal.Show(h.name), done.To.Token)}
	}
	return done, nil
}

// HandoverAction returns the handover action for the screen of spindle watch.
func HandoverAction(o *connect.Database, db *connect.Connection) watch.Action {
	ask := func(ctx context.Context, name string, token table.Token) (watch.Question, error) {
		h := &handover{Database: o, name: name, token: int64(token)}
		leader, err := h.asks(ctx, db, db.Locks())
		if err != nil {
			return watch.Question{}, err
		}
		return watch.Question{
			Text: fmt.Sprintf("Ask %s to hand over %s, which it holds under token %v?\n\nSpindle waits up to %v for another candidate to take over. The request can't be withdrawn.", terminal.Show(leader.ID), terminal.Show(name), leader.Token, h.wait),
			Yes: func(ctx context.Context) (string, error) {
				done, err := h.request(ctx, db, leader)
				return h.text(done), err
			},
		}, nil
	}
	return watch.Action{Key: "h", Name: "handover", Ask: ask}
}

// refuse returns an error if the name is a group, or a held lock that belongs to a group, because members of groups
// don't accept requests. Otherwise, it returns nil.
func (h *handover) refuse(ctx context.Context, t table.Table) error {
	ctx, cancel := context.WithTimeout(ctx, h.Timeout)
	defer cancel()
	l, err := describe.OneLock(ctx, t, h.name)
	switch {
	case err != nil:
		return h.Explain(err)
	case !l.IsPart() || !l.IsHeld():
		return nil
	}
	return &exit.Error{Code: exit.Unsupported, Err: fmt.Errorf("no request was sent: %s belongs to a group, whose members don't accept requests; stop its holder, %s, with SIGTERM instead, and the other members will take over its partitions", terminal.Show(h.name), terminal.Show(l.Holder()))}
}

// soFar returns how far a request got. It removes the end of the library's error, which only says that the wait timed
// out.
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
	Name  string  `json:"name"`
	From  string  `json:"from"`
	To    string  `json:"to"`
	Token string  `json:"token"` // of the next holder
	Gap   float64 `json:"gap_seconds"`
}

func (h *handover) print(done spindle.Handover) error {
	if h.f.Objects() {
		return h.f.Print(os.Stdout, HandoverJSON{h.name, done.From.ID, done.To.ID, done.To.Token.String(), done.Gap.Seconds()})
	}
	_, err := fmt.Print(h.text(done))
	return err
}

func (h *handover) text(done spindle.Handover) string {
	return fmt.Sprintf("%s was handed over\n  from %s\n  to   %s, token %v\n  without a holder for at most %v\n",
		terminal.Show(h.name), terminal.Show(done.From.ID), terminal.Show(done.To.ID), done.To.Token, done.Gap.Round(time.Millisecond))
}
