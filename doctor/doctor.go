// Package doctor checks whether a Cloud Spanner database behaves as locks assume. It runs against the database that a
// program will use, with the program's permissions.
//
// [Run] performs the steps of the protocol on its own rows, under a unique name, and checks the results. It takes a few
// seconds and a few hundred small reads and commits. It does not touch any other rows.
//
// docs/spanner.md lists the assumptions and the check for each of them.
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

// A Check is the result for one assumption.
type Check struct {
	Name    string  `json:"name"`
	Verdict Verdict `json:"verdict"`
	Found   string  `json:"found"`           // the observed behavior, or the reason why it was not checked
	Means   string  `json:"means,omitempty"` // the consequence for locks, unless the verdict is OK
	Do      string  `json:"do,omitempty"`    // the recommended action, unless the verdict is OK
}

// Report has the results of all checks. It can be encoded as JSON and decoded again.
type Report struct {
	Database   string      `json:"database"`
	Table      string      `json:"table"`
	Checks     []Check     `json:"checks"` // all checks, in a fixed order
	RoundTrips *RoundTrips `json:"round_trips,omitempty"`
	Clock      *Clock      `json:"clock,omitempty"`
	Costs      []Cost      `json:"costs,omitempty"` // at the shortest lease that the round trips allow, and at the default lease
}

// OK reports whether no check has failed. A check that could not be made does not count as failed.
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

// limit is the longest that a run can take, however slow the database is. The final cleanup is not included.
const limit = time.Minute

// Run examines a database's lock table. It stops after a minute or when ctx ends. It needs the permissions of a
// candidate for a lock. It verifies the table's schema only if it has permission to query it.
//
// If checks are missing from the report, the error gives the reason: an invalid argument, a database that cannot be
// reached or stops responding, or the end of ctx. The report still contains the results of the other checks. Run does
// not return an error for a failed check. See [Report.Err].
//
// Run deletes its rows before it returns, even if ctx has ended in the meantime. A process that is killed leaves a few
// rows behind whose names begin with spindle-doctor/. They do not belong to any lock. A later run deletes them once
// they are ten minutes old by Spanner's clock.
func Run(ctx context.Context, db *spanner.Client, tableName string) (Report, error) {
	if db == nil {
		return Report{}, errors.New("doctor: the Spanner client is nil; create one with spanner.NewClient")
	}
	if err := table.CheckTable(tableName); err != nil {
		return Report{}, fmt.Errorf("doctor: %w", err)
	}
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("the checks took longer than %v", limit))
	defer cancel()
	e := newExam(ctx, db, tableName)
	err := e.run(ctx)
	r := Report{Database: db.DatabaseName(), Table: tableName, Checks: e.checks(), RoundTrips: e.roundTrips, Clock: e.clock}
	if e.roundTrips != nil {
		r.Costs = e.roundTrips.costs()
	}
	if err != nil {
		return r, fmt.Errorf("doctor: table %s in %s: %w", tableName, r.Database, err)
	}
	return r, nil
}

// oneLine returns the text of an error as a single line.
func oneLine(err error) string { return strings.Join(strings.Fields(err.Error()), " ") }
