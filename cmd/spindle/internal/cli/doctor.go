package cli

import (
	"context"
	"fmt"
	"math"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/api/option"

	"github.com/spindle-lock/spindle/doctor"
	"github.com/spindle-lock/spindle/internal/stage"
)

func newDoctor(o *common) *cobra.Command {
	var f format
	var deadline time.Duration
	var commitPrice, readPrice float64
	c := &cobra.Command{
		Use:   "doctor",
		Short: "Find out whether the database keeps what locks rely on",
		Long: `Doctor takes each step of a lock on the database, under a name that nobody else
uses. It says which of the things that locks assume of Spanner hold there, what
it means for a lock if one does not, and what to do. It takes some seconds and a
few hundred small requests, and needs the permissions of a candidate.

It leaves nothing behind, even if it is interrupted. If it is killed, it leaves
rows whose names begin with spindle-doctor/; a later run deletes them once they
are ten minutes old.

It reports what a lock that does not change hands costs, in requests. If you say
what a million requests cost on your instance, it reports money too.

Exit codes:
  0    everything that was checked holds
  1    not everything could be checked; the message says why
  2    the command line is wrong
  3    something does not hold`,
		Example: `  spindle doctor
  spindle doctor -o json | jq -r '.checks[] | select(.verdict != "ok")'`,
		Args: exactly(0, "no arguments"),
		RunE: func(c *cobra.Command, _ []string) error {
			if deadline <= 0 {
				return misuse("--deadline %v: must be positive", deadline)
			}
			if commitPrice < 0 || readPrice < 0 {
				return misuse("--commit-price %v, --read-price %v: must not be negative", commitPrice, readPrice)
			}
			report, err := o.examine(c.Context(), deadline)
			if report.Checks != nil {
				if f.json {
					if err := printJSON(os.Stdout, report); err != nil {
						return err
					}
				} else {
					printReport(paperOn(os.Stdout), report, commitPrice, readPrice)
				}
			}
			switch {
			case err != nil:
				return o.explain(err)
			case !report.OK():
				return &exit{code: doctorFailed}
			}
			return nil
		},
	}
	c.Flags().DurationVar(&deadline, "deadline", time.Minute, "how long it may take, a minute at most")
	c.Flags().Float64Var(&commitPrice, "commit-price", 0, "what a million commits cost, in your `currency`")
	c.Flags().Float64Var(&readPrice, "read-price", 0, "what a million reads cost, in the same `currency`")
	f.flag(c.Flags())
	return c
}

func (o *common) examine(ctx context.Context, deadline time.Duration) (doctor.Report, error) {
	db, err := o.open(option.WithGRPCConnectionPool(1))
	if err != nil {
		return doctor.Report{}, err
	}
	defer db.Close()
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop) // a second signal does not wait for the rows to be deleted
	ctx, cancel := context.WithTimeoutCause(ctx, deadline, fmt.Errorf("--deadline %v has passed", deadline))
	defer cancel()
	return doctor.Run(ctx, db.client(), o.table)
}

var verdictStyles = map[doctor.Verdict]style{
	doctor.OK: green, doctor.Note: bold, doctor.Warning: amber, doctor.Failed: red, doctor.NotChecked: faint,
}

func printReport(p *paper, r doctor.Report, commitPrice, readPrice float64) {
	fmt.Fprintf(p, "Table %s in %s\n\n", r.Table, r.Database)
	counts := map[doctor.Verdict]int{}
	for _, c := range r.Checks {
		counts[c.Verdict]++
		lines := []string{escape(c.Found)}
		if c.Verdict != doctor.OK && c.Verdict != doctor.NotChecked || c.Means != "" {
			lines = append(lines, "this means: "+escape(c.Means), "what to do: "+escape(c.Do))
		}
		printCheck(p, c, lines)
	}
	fmt.Fprintln(p)
	for _, cost := range r.Costs {
		fmt.Fprintf(p, "At a lease of %v a lock costs %d commits a month, and each waiting candidate %d reads.\n", cost.Lease, cost.Commits, cost.Reads)
		if commitPrice > 0 || readPrice > 0 {
			fmt.Fprintf(p, "  In money, with one waiting candidate: %.2f a month.\n", cost.Price(commitPrice, readPrice))
		}
	}
	var sum []string
	for _, v := range []doctor.Verdict{doctor.OK, doctor.Note, doctor.Warning, doctor.Failed, doctor.NotChecked} {
		if counts[v] > 0 {
			sum = append(sum, fmt.Sprintf("%d %s", counts[v], v))
		}
	}
	fmt.Fprintln(p, strings.Join(sum, ", "))
}

const (
	verdictWidth = len("not checked") + 2
	checkWidth   = len("commit timestamps") + 2
	readable     = 110
)

// printCheck fills the lines beside the verdict and the name.
func printCheck(p *paper, c doctor.Check, lines []string) {
	indent := verdictWidth + checkWidth
	width := math.MaxInt // off a terminal, a line is a line
	if p.width > 0 {
		width = max(min(p.width, readable)-indent, 30)
	}
	head := p.paint(verdictStyles[c.Verdict], pad(string(c.Verdict), verdictWidth)) + pad(c.Name, checkWidth)
	for _, line := range lines {
		for _, text := range stage.Wrap(line, width) {
			fmt.Fprintln(p, head+text)
			head = pad("", indent)
		}
	}
}
