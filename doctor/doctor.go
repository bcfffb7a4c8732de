// Package doctor checks what locks assume of Cloud Spanner: on the database that a program is going to use, with that
// program's permissions.
//
// [Run] takes the steps of the protocol on rows of its own, under a name that nobody else has, and checks the results.
// It takes a few seconds, and costs a few hundred small reads and commits. It touches no other rows.
//
// docs/spanner.md lists the assumptions, each with the check that tests it.
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
	OK         Verdict = "ok"          // the assumption holds, as far as could be seen
	Note       Verdict = "note"        // worth knowing; nothing depends on it
	Warning    Verdict = "warning"     // the locks are safe, and slower or costlier than they should be
	Failed     Verdict = "failed"      // the assumption does not hold: don't use locks here until that is fixed
	NotChecked Verdict = "not checked" // it could not be checked
)

// A Check is the result for one assumption.
type Check struct {
	Name    string  `json:"name"`
	Verdict Verdict `json:"verdict"`
	Found   string  `json:"found"`           // what was seen, or why it was not checked
	Means   string  `json:"means,omitempty"` // what that means for a lock, unless the verdict is OK
	Do      string  `json:"do,omitempty"`    // what to do about it, unless the verdict is OK
}

// Report has all results. It can be encoded as JSON and read back.
type Report struct {
	Database   string      `json:"database"`
	Table      string      `json:"table"`
	Checks     []Check     `json:"checks"` // all of them, in an order that does not change
	RoundTrips *RoundTrips `json:"round_trips,omitempty"`
	Clock      *Clock      `json:"clock,omitempty"`
	Costs      []Cost      `json:"costs,omitempty"` // at the shortest lease that the round trips allow, and at the default
}

// OK reports whether no check failed. A check that could not be made counts as not failed.
func (r Report) OK() bool { return r.Err() == nil }

// Err returns an error that names the failed checks, with what was found, or nil.
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

// limit is how long a run takes at most, however slow the database is; the cleanup comes on top.
const limit = time.Minute

// Run examines the lock table of a database, for at most a minute, or until ctx ends. It needs the
// permissions of a candidate for a lock; the schema is verified if it may be queried.
//
// The error says why checks are missing: a bad argument, a database that can't be reached or stops answering, the end
// of ctx. The report still has what the other checks found. A failed check is not an error of Run: see [Report.Err].
//
// When Run returns, its rows are gone, even if ctx has ended meanwhile. A process that is killed leaves at most a few
// rows whose names begin with spindle-doctor/: they are nobody's locks. The next run deletes those that are older than
// ten minutes by Spanner's clock.
func Run(ctx context.Context, db *spanner.Client, tableName string) (Report, error) {
	if db == nil {
		return Report{}, errors.New("doctor: the Spanner client is nil: make one with spanner.NewClient")
	}
	if err := table.CheckTable(tableName); err != nil {
		return Report{}, fmt.Errorf("doctor: %w", err)
	}
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("it took longer than %v", limit))
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

// oneLine makes the text of an error fit a report.
func oneLine(err error) string { return strings.Join(strings.Fields(err.Error()), " ") }
