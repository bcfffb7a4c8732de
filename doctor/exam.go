package doctor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"cloud.google.com/go/spanner"
	"github.com/google/uuid"

	"github.com/spindle-lock/spindle/internal/table"
)

// exam is one run of all probes.
type exam struct {
	*recorder
	table table.Table
	base  string // the prefix of the names of this run's rows
	made  map[string]Check
	gap   error // the reason why the first missing check could not be made

	roundTrips *RoundTrips
	clock      *Clock
}

// probe checks one assumption. It does not run if a check listed in needs has failed, because it would then fail for
// the same reason.
type probe struct {
	name  string
	needs []string
	run   func(*exam, context.Context) (found string, err error)
	means string // the consequence if it fails
	do    string
}

// finding is the error of a probe whose assumption does not hold, or holds only in part.
type finding struct {
	verdict          Verdict
	found, means, do string // means and do replace the probe's own, unless empty
}

func (f *finding) Error() string { return f.found }

func broken(format string, args ...any) error {
	return &finding{verdict: Failed, found: fmt.Sprintf(format, args...)}
}

const (
	prefix    = "spindle-doctor/"
	prefixEnd = "spindle-doctor0" // the first key after all keys with the prefix
	stale     = 10 * limit        // longer than any run
)

func newExam(ctx context.Context, db *spanner.Client, tableName string) *exam {
	r := newRecorder(ctx, table.Spanner{DB: db, Table: tableName})
	return &exam{recorder: r, table: table.Table{Store: r}, base: prefix + uuid.NewString(), made: map[string]Check{}}
}

// run makes as many checks as possible. If some are missing, it returns the reason.
func (e *exam) run(ctx context.Context) error {
	if err := e.reach(ctx); err != nil {
		return err
	}
	defer e.cleanUp(ctx)
	for _, p := range probes {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		e.made[p.name] = e.check(ctx, p)
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return e.gap
}

// reach returns an error if the database cannot be reached, so that no check can be made.
func (e *exam) reach(ctx context.Context) error {
	_, _, err := e.Read(ctx, "doctor", table.Strong, table.Keys{Names: []string{e.base}})
	switch table.FaultOf(err) {
	case table.NoPermission, table.NoTable, table.BadTable:
		return nil // the checks report this error
	}
	return err
}

func (e *exam) check(ctx context.Context, p probe) Check {
	if need := e.missing(p); need != "" {
		return Check{Name: p.name, Verdict: NotChecked, Found: fmt.Sprintf("this can't be checked until %q is ok", need)}
	}
	found, err := p.run(e, ctx)
	var f *finding
	switch {
	case err == nil:
		return Check{Name: p.name, Verdict: OK, Found: found}
	case errors.As(err, &f):
		return Check{Name: p.name, Verdict: f.verdict, Found: f.found, Means: cmp.Or(f.means, p.means), Do: cmp.Or(f.do, p.do)}
	case errors.Is(err, table.ErrNoTimestamp), isDenied(err): // a different check reports this
		return Check{Name: p.name, Verdict: NotChecked, Found: oneLine(err)}
	case passing(err):
		e.gap = cmp.Or(e.gap, fmt.Errorf("%q could not be checked: %w", p.name, err))
		return Check{Name: p.name, Verdict: NotChecked, Found: oneLine(err)}
	}
	return Check{Name: p.name, Verdict: Failed, Found: oneLine(err), Means: p.means, Do: p.do}
}

// missing returns the first check that the probe needs and that is not ok, or "".
func (e *exam) missing(p probe) string {
	for _, need := range p.needs {
		if need == checkReplies && e.unanswered > 0 || need == checkPermissions && len(e.denied) > 0 {
			return need
		}
		if v := e.made[need].Verdict; v == Failed || v == NotChecked && need != checkTable {
			return need // the other checks work even if the schema can't be read
		}
	}
	return ""
}

// errNotTheQuestion is the failure of a step that only prepares a probe.
var errNotTheQuestion = errors.New("the check could not be prepared")

// passing reports whether an error may be temporary, so that it says nothing about an assumption.
func passing(err error) bool {
	fault := table.FaultOf(err)
	return fault.Kind == table.Outage || fault == table.NoCredentials || errors.Is(err, errNotTheQuestion) || errors.Is(err, context.Canceled) ||
		overrun(err) || errors.Is(err, table.ErrNotFound)
}

// checks returns the results of all checks in their fixed order, including the checks that were not made.
func (e *exam) checks() []Check {
	var all []Check
	for _, p := range probes {
		c, ok := e.made[p.name]
		switch {
		case p.name == checkReplies:
			c = e.replies()
		case !ok:
			c = Check{Name: p.name, Verdict: NotChecked, Found: "the run ended before this check"}
		}
		all = append(all, c)
	}
	if c, ok := e.made[checkCleanUp]; ok {
		all = append(all, c)
	}
	return all
}

// replies checks that the replies to all commits of this run had a timestamp.
func (e *exam) replies() Check {
	c := Check{Name: checkReplies, Verdict: OK, Found: "every reply to a commit had a timestamp"}
	switch {
	case e.unanswered > 0:
		c.Verdict, c.Found = Failed, fmt.Sprintf("%d replies to commits had no timestamp", e.unanswered)
		c.Means = "the outcome of a commit without a timestamp is unknown, so a process cannot use it to acquire or keep a lock"
		c.Do = "update cloud.google.com/go/spanner to the latest version; older versions don't send the second commit request that Spanner may ask for"
	case e.made[checkPermissions].Verdict != OK:
		c.Verdict, c.Found = NotChecked, "no commit was made"
	}
	return c
}

var permission = regexp.MustCompile(`\bspanner\.[a-z]+\.[A-Za-z]+`)

// lacks returns the permissions that this process is missing. It takes their names from Spanner's errors. If an error
// names no permission, lacks uses the one that the failed step needs.
func lacks(denied []denial, needed map[string]string) []string {
	var all []string
	for _, d := range denied {
		names := permission.FindAllString(d.message, -1)
		if names == nil {
			names = []string{cmp.Or(needed[d.step], d.step)}
		}
		for _, name := range names {
			if !slices.Contains(all, name) {
				all = append(all, name)
			}
		}
	}
	return all
}

// cleanUp deletes the rows of this run, and of earlier runs that were killed.
func (e *exam) cleanUp(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), attempt)
	defer cancel()
	clean := newRecorder(ctx, e.spanner)
	c := Check{Name: checkCleanUp, Verdict: OK, Found: "this run left no rows"}
	old, err := clean.sweep(ctx, e.base)
	switch {
	case len(clean.denied) > 0, err != nil && table.Missing(err):
		c.Found = "nothing was written"
	case err != nil:
		c.Verdict, c.Found = Warning, oneLine(err)
		c.Means = "rows whose names begin with " + e.base + " may be left in the table; no lock uses them"
		c.Do = "run doctor again; it deletes rows left by earlier runs once they are ten minutes old"
	case old > 0:
		c.Found += fmt.Sprintf(", and it deleted %d rows that earlier runs had left behind", old)
	}
	e.made[checkCleanUp] = c
}

// sweep deletes all rows of this run, and the stale rows of other runs. It returns how many rows of other runs it
// deleted. To tell whether a row is stale, it compares the row's token with the timestamp of the read, because both are
// times by Spanner's clock.
func (r *recorder) sweep(ctx context.Context, base string) (old int, err error) {
	for {
		rows, at, err := r.Read(ctx, "doctor", table.Strong, table.Keys{Ranges: []table.Range{{From: prefix, To: prefixEnd}}})
		if err != nil {
			return old, err
		}
		var writes []table.Write
		for _, row := range rows {
			mine := strings.HasPrefix(row.Name, base)
			if !mine && (at.Sub(row.Token) < stale || !strings.HasPrefix(row.Name, prefix)) {
				continue
			}
			if !mine {
				old++
			}
			writes = append(writes, table.Write{Kind: table.Delete, Name: row.Name})
		}
		if writes == nil {
			return old, nil
		}
		if err := r.Commit(ctx, "doctor", writes); err != nil {
			return old, err
		}
	}
}

// write inserts or changes one of this run's rows in a blind commit.
func (e *exam) write(ctx context.Context, kind table.Kind, name, writer string) error {
	return e.Commit(ctx, "doctor", []table.Write{{Kind: kind, Name: name,
		Set: []table.Cell{{Column: table.ColHeartbeat, Value: table.Now}, {Column: table.ColToken, Value: table.Now}, {Column: table.ColWriter, Value: writer}}}})
}

// row reads one of this run's rows, which must exist.
func (e *exam) row(ctx context.Context, name string) (table.Row, error) {
	rows, _, err := e.Read(ctx, "doctor", table.Strong, table.Keys{Names: []string{name}})
	if err != nil {
		return table.Row{}, err
	}
	if len(rows) != 1 {
		return table.Row{}, broken("a strong read did not return row %q, which had been committed before the read", name)
	}
	return rows[0], nil
}

func (e *exam) pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}
