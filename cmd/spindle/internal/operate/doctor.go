package operate

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/spindle-lock/spindle/cmd/spindle/internal/database"
	"github.com/spindle-lock/spindle/cmd/spindle/internal/model"
	"github.com/spindle-lock/spindle/cmd/spindle/internal/terminal"
	"github.com/spindle-lock/spindle/doctor"
	"github.com/spindle-lock/spindle/internal/table"
)

const doctorHelp = `Doctor checks that the database provides the guarantees that locks depend on. It
performs the steps of the lock protocol on temporary rows, and reports whether
Spanner behaved as expected. If a check fails, doctor explains what the failure
means for locks, and what to do about it.

A run takes a few seconds and makes a few hundred small requests. It needs the
same permissions as a candidate.

Doctor deletes its rows before it exits, even if it is interrupted. If it is
killed or can't delete them, rows whose names begin with spindle-doctor/ remain.
No lock uses these rows. Later runs delete them once they are ten minutes old.

With --expect, doctor also checks that each of the named locks has a holder. If
one has none, doctor fails and says why.

Exit codes:
  0    all checks that could be run passed
  1    doctor could not complete its checks; the message says why
  2    the command line is wrong
  3    a check failed`

// examination is one run of doctor.
type examination struct {
	*database.Database
	f        terminal.Format
	expected []string
}

// NewDoctor returns the command doctor.
func NewDoctor(o *database.Database) *cobra.Command {
	e := &examination{Database: o}
	c := &cobra.Command{
		Use:   "doctor",
		Short: "Check that the database provides the guarantees that locks need",
		Long:  doctorHelp,
		Example: `  spindle doctor
  spindle doctor --expect nightly,billing
  spindle doctor -o json | jq -r '.checks[] | select(.verdict != "ok")'`,
		Args: terminal.Exactly(0, "no arguments"),
		RunE: func(c *cobra.Command, _ []string) error {
			var err error
			if e.expected, err = model.CheckExpected(e.expected); err != nil {
				return err
			}
			return e.run(c.Context())
		},
	}
	model.ExpectFlag(c.Flags(), &e.expected)
	e.f.Flag(c.Flags())
	return c
}

func (e *examination) run(ctx context.Context) error {
	report, err := e.examine(ctx)
	if report.Checks != nil {
		written := terminal.On(os.Stdout).Buffered(func(p *terminal.Terminal) error {
			if e.f.Objects() {
				return terminal.PrintJSON(p, report)
			}
			e.printReport(p, report)
			return nil
		})
		if written != nil {
			return written
		}
	}
	switch {
	case err != nil:
		return e.Explain(err)
	case !report.OK():
		return &terminal.Exit{Code: terminal.DoctorFailed}
	}
	return nil
}

// longRun is a little longer than a run takes on a healthy database.
const longRun = 5 * time.Second

func (e *examination) examine(ctx context.Context) (doctor.Report, error) {
	db, err := e.Open()
	if err != nil {
		return doctor.Report{}, err
	}
	defer db.Close()
	ctx, stop := terminal.UntilInterrupted(ctx)
	defer stop() // a second signal does not wait for the rows to be deleted
	late := time.AfterFunc(longRun, func() {
		terminal.Complain("still running after %v; the database is slow or not responding, and doctor gives up after three minutes", longRun)
	})
	defer late.Stop()
	report, err := doctor.Run(ctx, db.Client(), e.Table)
	if err == nil && len(e.expected) > 0 {
		check, failed := e.checkLed(ctx, db.Locks())
		report.Checks, err = append(report.Checks, check), failed
	}
	return report, err
}

// checkLed checks that each of the expected locks has a holder. It returns an error if it was interrupted or took longer
// than the timeout, if a name is wrong, or if the check could not be made because of a problem that may be temporary.
func (e *examination) checkLed(ctx context.Context, t table.Table) (doctor.Check, error) {
	limited, cancel := context.WithTimeout(ctx, e.Timeout)
	defer cancel()
	c := doctor.Check{Name: "expected", Verdict: doctor.OK, Found: terminal.Count(len(e.expected), "lock") + " with a holder"}
	found, err := model.ExpectedLocks(limited, t, e.expected)
	if err != nil {
		c.Verdict, c.Found = doctor.NotChecked, err.Error()
		var wrong *terminal.Exit
		if ctx.Err() != nil || errors.As(err, &wrong) || database.Passing(err) {
			return c, cmp.Or(context.Cause(ctx), err)
		}
	} else if text := model.Leaderless(found); text != "" {
		c.Verdict, c.Found = doctor.Failed, "no process holds "+text
		c.Means, c.Do = "no process is doing the work that these locks protect", "make sure that the programs that use these locks are running, and check their logs"
	}
	return c, nil
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

// printCheck prints the lines next to the verdict and the name, or below them if the terminal is narrow.
func printCheck(p *terminal.Terminal, c doctor.Check, lines []string) {
	verdict, name, indent := string(c.Verdict), c.Name, verdictWidth+checkWidth
	head := p.Paint(verdictStyles[c.Verdict], terminal.Pad(verdict, verdictWidth)) + terminal.Pad(name, checkWidth)
	if p.Width > 0 && p.Width < indent+30 {
		fmt.Fprintf(p, "%s\n%s\n", p.Paint(verdictStyles[c.Verdict], verdict), p.Paint(terminal.Bold, name))
		head, indent = "  ", 2
	}
	width := math.MaxInt // lines are wrapped only on a terminal
	if p.Width > 0 {
		width = min(p.Width, terminal.Readable) - indent
	}
	for _, line := range lines {
		for _, text := range terminal.Wrap(line, width) {
			fmt.Fprintln(p, head+text)
			head = terminal.Pad("", indent)
		}
	}
}
