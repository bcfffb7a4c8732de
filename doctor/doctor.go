// Package doctor checks whether a Cloud Spanner database behaves the way locks require. Run it against the database
// that your program will use, and with the program's permissions.
//
// [Run] performs the steps of the lock protocol on temporary rows and checks the results. It takes a few seconds, and
// makes a few hundred small reads and commits. It never touches the rows of your locks.
//
// docs/spanner.md lists what locks require of Spanner, and which check verifies each requirement.
package doctor

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"cloud.google.com/go/spanner"

	"github.com/spindle-lock/spindle/internal/table"
)

// Verdict is the outcome of a check.
type Verdict string

// The verdicts.
const (
	OK         Verdict = "ok"          // as far as the check can tell, the assumption holds
	Note       Verdict = "note"        // informational; nothing depends on it
	Warning    Verdict = "warning"     // locks are safe, but slower or more expensive than they should be
	Failed     Verdict = "failed"      // the assumption does not hold; don't use locks on this database until that is fixed
	NotChecked Verdict = "not checked" // the assumption could not be checked
)

// Check is the result of checking one assumption that locks make about Spanner.
type Check struct {
	Name    string  `json:"name"` // what was checked
	Verdict Verdict `json:"verdict"`
	Found   string  `json:"found"`           // what was found, or why it was not checked
	Means   string  `json:"means,omitempty"` // what that means for a lock
	Do      string  `json:"do,omitempty"`    // what to do
}

// Report has the results of all checks. It can be encoded as JSON and decoded again.
type Report struct {
	Database   string      `json:"database"`              // the path of the database
	Table      string      `json:"table"`                 // the lock table
	Checks     []Check     `json:"checks"`                // the checks, always in the same order; with --expect, the last one is named expected
	RoundTrips *RoundTrips `json:"round_trips,omitempty"` // how long requests took
	Clock      *Clock      `json:"clock,omitempty"`       // Spanner's clock, compared with this machine's
}

// OK returns true if no check has failed. A check that could not be made does not count as failed.
func (r Report) OK() bool { return r.Err() == nil }

// Err returns an error that names the failed checks and their findings, or nil if no check has failed.
func (r Report) Err() error {
	var failed []error
	for _, c := range r.Checks {
		if c.Verdict == Failed {
			failed = append(failed, fmt.Errorf("%s: %s", c.Name, c.Found))
		}
	}
	if failed == nil {
		return nil
	}
	return fmt.Errorf("doctor: %d of %d checks failed on table %s: %w", len(failed), len(r.Checks), r.Table, errors.Join(failed...))
}

// limit is the time limit for a run. It does not include the final cleanup.
const limit = 3 * time.Minute

// Run checks a database and its lock table. It needs the same permissions as a process that competes for a lock. If it
// also has permission to read the table's schema, it verifies the schema. Run stops after three minutes or when ctx ends.
//
// Run returns an error if an argument is invalid, if ctx ends, or if a problem that may be temporary prevents a check,
// for example if the database cannot be reached or stops responding. The report still contains the results of the other
// checks. A failed check does not make Run return an error. Neither does a missing permission, although it may prevent
// checks. To find out whether a check has failed, call [Report.Err].
//
// Run deletes its rows before it returns, even if ctx has ended. If the process is killed or the deletion fails, some
// rows whose names begin with spindle-doctor/ remain in the table. No lock uses them. Later runs delete them once they
// are ten minutes old by Spanner's clock.
func Run(ctx context.Context, db *spanner.Client, tableName string) (Report, error) {
	if db == nil {
		return Report{}, errors.New("doctor: the Spanner client is nil; create one with spindle.Open")
	}
	if err := table.CheckTable(tableName); err != nil {
		return Report{}, fmt.Errorf("doctor: %w", err)
	}
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("the checks took longer than %v", limit))
	defer cancel()
	e := newExam(ctx, db, tableName)
	err := e.run()
	r := Report{Database: db.DatabaseName(), Table: tableName, Checks: e.checks(), RoundTrips: e.roundTrips, Clock: e.clock}
	if err != nil {
		return r, fmt.Errorf("doctor: table %s in %s: %w", tableName, r.Database, err)
	}
	return r, nil
}

// oneLine returns the text of an error as a single line.
func oneLine(err error) string { return strings.Join(strings.Fields(err.Error()), " ") }
