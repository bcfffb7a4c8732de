package operate

import (
	"context"
	"fmt"
	"math"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/spindle-lock/spindle/cmd/spindle/internal/connect"
	"github.com/spindle-lock/spindle/cmd/spindle/internal/describe"
	"github.com/spindle-lock/spindle/cmd/spindle/internal/exit"
	"github.com/spindle-lock/spindle/cmd/spindle/internal/flags"
	"github.com/spindle-lock/spindle/cmd/spindle/internal/terminal"
	"github.com/spindle-lock/spindle/doctor"
	"github.com/spindle-lock/spindle/internal/table"
)

const doctorHelp = `Doctor takes each step of a lock on the database, under a name that nobody else
uses. It says which of the things that locks assume of Spanner hold there, what
a failed one means for a lock, and what to do. It takes some seconds and a few
hundred small requests, and needs the permissions of a candidate.

It leaves nothing behind, even if it is interrupted. If it is killed, it leaves
rows whose names begin with spindle-doctor/; a later run deletes them once they
are ten minutes old.

It reports what a lock that does not change hands costs, in requests. If you say
what a million requests cost on your instance, it reports money too.

With --expect it also fails if one of these locks has no holder, and says why.

With --locks or --members it needs no database. It estimates what so many locks,
or a group, cost a month: in commits and reads, as a share of a node, and, with
--node-price, in money. It says where its figures are from.

Exit codes:
  0    everything that was checked holds
  1    not everything could be checked; the message says why
  2    the command line is wrong
  3    something does not hold`

// examination is one run of doctor.
type examination struct {
	*connect.Database
	f           terminal.Format
	deadline    time.Duration
	commitPrice float64 // of a million
	readPrice   float64
	priced      fleet
	expected    []string
}

// NewDoctor returns the command doctor.
func NewDoctor(o *connect.Database) *cobra.Command {
	e := &examination{Database: o}
	c := &cobra.Command{
		Use:   "doctor",
		Short: "Find out whether the database keeps what locks rely on",
		Long:  doctorHelp,
		Example: `  spindle doctor
  spindle doctor --expect nightly,billing
  spindle doctor --locks 50 --candidates 6 --members 6 --partitions 64 --node-price 0.90
  spindle doctor -o json | jq -r '.checks[] | select(.verdict != "ok")'`,
		Args: flags.Exactly(0, "no arguments"),
		RunE: func(c *cobra.Command, _ []string) error {
			if err := e.check(c.Flags()); err != nil {
				return err
			}
			if e.priced.asked(c.Flags()) {
				return e.priced.print(e.f)
			}
			return e.run(c.Context())
		},
	}
	c.Flags().DurationVar(&e.deadline, "deadline", time.Minute, "how long it may take, a minute at most")
	c.Flags().Float64Var(&e.commitPrice, "commit-price", 0, "what a million commits cost, in your `currency`")
	c.Flags().Float64Var(&e.readPrice, "read-price", 0, "what a million reads cost, in the same `currency`")
	describe.ExpectFlag(c.Flags(), &e.expected)
	e.priced.flags(c.Flags())
	e.f.Flag(c.Flags(), terminal.AsYAML)
	return c
}

func (e *examination) check(f *pflag.FlagSet) (err error) {
	switch {
	case e.deadline <= 0:
		return exit.Misuse("--deadline %v: must be positive", e.deadline)
	case e.commitPrice < 0 || e.readPrice < 0:
		return exit.Misuse("--commit-price %v, --read-price %v: must not be negative", e.commitPrice, e.readPrice)
	}
	if err = e.priced.check(f); err != nil {
		return err
	}
	if e.priced.asked(f) && len(e.expected) > 0 {
		return exit.Misuse("--expect: needs the database, and an estimate does not; leave out --locks and --members")
	}
	e.expected, err = describe.CheckExpected(e.expected)
	return err
}

func (e *examination) run(ctx context.Context) error {
	report, err := e.examine(ctx)
	switch {
	case report.Checks == nil:
	case e.f.Objects():
		if err := e.f.Print(os.Stdout, report); err != nil {
			return err
		}
	default:
		e.printReport(terminal.On(os.Stdout), report)
	}
	switch {
	case err != nil:
		return e.Explain(err)
	case !report.OK():
		return &exit.Error{Code: exit.DoctorFailed}
	}
	return nil
}

// print prints the estimate.
func (w *fleet) print(f terminal.Format) error {
	if e := w.estimate(); f.Objects() {
		return f.Print(os.Stdout, e)
	} else {
		e.print(terminal.On(os.Stdout))
	}
	return nil
}

// longRun is how long doctor takes if all is well, with some to spare.
const longRun = 5 * time.Second

func (e *examination) examine(ctx context.Context) (doctor.Report, error) {
	db, err := e.Open()
	if err != nil {
		return doctor.Report{}, err
	}
	defer db.Close()
	ctx, stop := exit.UntilInterrupted(ctx)
	defer stop() // a second signal does not wait for the rows to be deleted
	ctx, cancel := context.WithTimeoutCause(ctx, e.deadline, fmt.Errorf("--deadline %v has passed", e.deadline))
	defer cancel()
	late := time.AfterFunc(longRun, func() {
		terminal.Complain("still running after %v: the database is slow, or does not answer; --deadline %v", longRun, e.deadline)
	})
	defer late.Stop()
	report, err := doctor.Run(ctx, db.Client(), e.Table)
	if err == nil && len(e.expected) > 0 {
		report.Checks = append(report.Checks, checkLed(ctx, db.Locks(), e.expected))
	}
	return report, err
}

// checkLed checks that each of the locks has a holder.
func checkLed(ctx context.Context, t table.Table, names []string) doctor.Check {
	c := doctor.Check{Name: "expected", Verdict: doctor.OK, Found: terminal.Count(len(names), "lock") + " with a holder"}
	found, err := describe.ExpectedLocks(ctx, t, names)
	if err != nil {
		c.Verdict, c.Found = doctor.NotChecked, err.Error()
	} else if text := describe.Leaderless(found); text != "" {
		c.Verdict, c.Found = doctor.Failed, "nobody leads "+text
		c.Means, c.Do = "what these locks are for is not done", "look whether their programs run, and what they log"
	}
	return c
}

var verdictStyles = map[doctor.Verdict]terminal.Style{
	doctor.OK: terminal.Green, doctor.Note: terminal.Bold, doctor.Warning: terminal.Amber, doctor.Failed: terminal.Red, doctor.NotChecked: terminal.Faint,
}

func (e *examination) printReport(p *terminal.Terminal, r doctor.Report) {
	say := func(format string, args ...any) { fmt.Fprintln(p, terminal.Fold(p, fmt.Sprintf(format, args...))) }
	say("Table %s in %s\n", r.Table, r.Database)
	counts := map[doctor.Verdict]int{}
	for _, c := range r.Checks {
		counts[c.Verdict]++
		lines := []string{terminal.Escape(c.Found)}
		if c.Verdict != doctor.OK && c.Verdict != doctor.NotChecked || c.Means != "" {
			lines = append(lines, "this means: "+terminal.Escape(c.Means), "what to do: "+terminal.Escape(c.Do))
		}
		printCheck(p, c, lines)
	}
	fmt.Fprintln(p)
	for _, cost := range r.Costs {
		say("At a lease of %v a lock costs %d commits a month, and each waiting candidate %d reads.", cost.Lease, cost.Commits, cost.Reads)
		if e.commitPrice > 0 || e.readPrice > 0 {
			say("  In money, with one waiting candidate: %.2f a month.", cost.Price(e.commitPrice, e.readPrice))
		}
	}
	var sum []string
	for _, v := range []doctor.Verdict{doctor.OK, doctor.Note, doctor.Warning, doctor.Failed, doctor.NotChecked} {
		if counts[v] > 0 {
			sum = append(sum, fmt.Sprintf("%d %s", counts[v], v))
		}
	}
	say("%s", strings.Join(sum, ", "))
}

const (
	verdictWidth = len("not checked") + 2
	checkWidth   = len("commit timestamps") + 2
)

// printCheck fills the lines beside the verdict and the name, or below them if there is no room.
func printCheck(p *terminal.Terminal, c doctor.Check, lines []string) {
	indent := verdictWidth + checkWidth
	if p.Width > 0 && p.Width < indent+30 {
		fmt.Fprintln(p, p.Paint(verdictStyles[c.Verdict], string(c.Verdict)))
		fmt.Fprintln(p, p.Paint(terminal.Bold, c.Name))
		for _, line := range lines {
			for _, text := range terminal.Indented(line, p.Width) {
				fmt.Fprintln(p, text)
			}
		}
		return
	}
	width := math.MaxInt // off a terminal, a line is a line
	if p.Width > 0 {
		width = max(min(p.Width, terminal.Readable)-indent, 30)
	}
	head := p.Paint(verdictStyles[c.Verdict], terminal.Pad(string(c.Verdict), verdictWidth)) + terminal.Pad(c.Name, checkWidth)
	for _, line := range lines {
		for _, text := range terminal.Wrap(line, width) {
			fmt.Fprintln(p, head+text)
			head = terminal.Pad("", indent)
		}
	}
}
