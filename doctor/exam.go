package doctor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"cloud.google.com/go/spanner"
	sppb "cloud.google.com/go/spanner/apiv1/spannerpb"
	"github.com/google/uuid"
	"google.golang.org/grpc/codes"

	"github.com/spindle-lock/spindle/internal/table"
)

// exam is one run of all probes.
type exam struct {
	*recorder
	table    table.Table
	base     string // the prefix of the names of this run's rows
	inserted bool   // the check of the permissions has inserted a row
	made     map[string]Check
	gap      error // the reason why the first missing check could not be made

	roundTrips *RoundTrips
	clock      *Clock
}

// probe checks one assumption. It does not run if a check that it needs has failed or could not be made, because it
// would then fail for the same reason. For the only exception, see missing.
type probe struct {
	name  string
	needs []string
	run   func(*exam) (found string) // may end early: see must
	means string                     // the consequence if it fails
	do    string
}

// finding is the error with which a probe reports a verdict other than OK.
type finding struct {
	verdict          Verdict
	found, means, do string // means and do replace the probe's own, unless empty
}

func (f *finding) Error() string { return f.found }

// stop is the panic that ends a probe early. Only attemptProbe recovers from it.
type stop struct{ error }

// must ends the probe if err is not nil. Call it only in the probe's own goroutine, where attemptProbe can recover.
func must(err error) {
	if err != nil {
		panic(stop{err})
	}
}

func get[T any](v T, err error) T {
	must(err)
	return v
}

// does ends the probe if a step failed, and names the step.
func does(step string, err error) {
	if err != nil {
		must(fmt.Errorf("%s: %w", step, err))
	}
}

// refute ends the probe because its assumption does not hold.
func refute(format string, args ...any) {
	must(&finding{verdict: Failed, found: fmt.Sprintf(format, args...)})
}

// refuteUnlessPassing ends the probe because a step did not fail as it should have. If the step failed with an error that
// may be temporary, this does not show that the assumption is wrong.
func refuteUnlessPassing(err error, format string, args ...any) {
	if err != nil && passing(err) {
		must(err)
	}
	refute("%s; its error was: %v", fmt.Sprintf(format, args...), err)
}

// warn ends the probe because its assumption holds only in part.
func warn(format string, args ...any) {
	must(&finding{verdict: Warning, found: fmt.Sprintf(format, args...)})
}

// errNotTheQuestion is the error of a step that only prepares a probe. It does not show that the assumption is wrong.
var errNotTheQuestion = errors.New("the check could not be prepared")

func prepared[T any](v T, err error) T {
	if err != nil {
		must(fmt.Errorf("%w: %w", errNotTheQuestion, err))
	}
	return v
}

const (
	prefix = "spindle-doctor/"
	stale  = 10 * time.Minute // longer than any run
)

func newExam(ctx context.Context, db *spanner.Client, tableName string) *exam {
	r := newRecorder(ctx, table.Spanner{DB: db, Table: tableName})
	return &exam{recorder: r, table: table.Table{Store: r}, base: prefix + uuid.NewString(), made: map[string]Check{}}
}

// run makes as many checks as possible. It returns an error if the database can't be reached, if ctx ended, or if a
// check could not be made because of a problem that may be temporary.
func (e *exam) run() error {
	if err := e.reach(); err != nil {
		return cmp.Or(context.Cause(e.ctx), err)
	}
	defer e.cleanUp()
	for _, p := range probes {
		if e.ctx.Err() == nil {
			e.made[p.name] = e.check(p)
		}
	}
	return cmp.Or(context.Cause(e.ctx), e.gap)
}

// reach returns an error if the database cannot be reached, in which case no check can be made.
func (e *exam) reach() error {
	_, _, err := e.Read(e.ctx, "doctor", table.Strong, table.Keys{Names: []string{e.base}})
	switch table.FaultOf(err) {
	case table.NoPermission, table.NoTable, table.BadTable:
		return nil // the checks report this error
	}
	return err
}

func (e *exam) check(p probe) Check {
	if need := e.missing(p); need != "" {
		return Check{Name: p.name, Verdict: NotChecked, Found: fmt.Sprintf("this can't be checked until the check %q succeeds", need)}
	}
	found, err := attemptProbe(e, p)
	var f *finding
	switch {
	case err == nil:
		return Check{Name: p.name, Verdict: OK, Found: found}
	case errors.As(err, &f):
		return Check{Name: p.name, Verdict: f.verdict, Found: f.found, Means: cmp.Or(f.means, p.means), Do: cmp.Or(f.do, p.do)}
	case errors.Is(err, table.ErrNoTimestamp), isDenied(err), err == errNoCommit: // a different check reports this
		return Check{Name: p.name, Verdict: NotChecked, Found: oneLine(err)}
	case passing(err):
		e.gap = cmp.Or(e.gap, fmt.Errorf("%q could not be checked: %w", p.name, err))
		return Check{Name: p.name, Verdict: NotChecked, Found: oneLine(err)}
	}
	return Check{Name: p.name, Verdict: Failed, Found: oneLine(err), Means: p.means, Do: p.do}
}

func attemptProbe(e *exam, p probe) (found string, err error) {
	defer func() {
		switch early := recover().(type) {
		case nil:
		case stop:
			err = early.error
		default:
			panic(early)
		}
	}()
	return p.run(e), nil
}

// missing returns the name of the first check that prevents the probe from running, or "" if the probe can run. A check
// that the probe needs prevents it from running if the check failed or could not be made.
func (e *exam) missing(p probe) string {
	for _, need := range p.needs {
		if need == checkReplies && e.unanswered > 0 || need == checkPermissions && e.denied > 0 {
			return need
		}
		if v := e.made[need].Verdict; v == Failed || v == NotChecked && need != checkTable {
			return need // the other checks work even if the schema can't be read
		}
	}
	return ""
}

// passing reports whether an error may be temporary and therefore says nothing about the assumption.
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
			c = e.check(p) // the later probes made commits, too
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

// cleanUp deletes the rows of this run, and the stale rows that earlier runs left behind.
func (e *exam) cleanUp() {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(e.ctx), attempt)
	defer cancel()
	clean := newRecorder(ctx, e.spanner)
	e.made[checkCleanUp] = e.check(probe{name: checkCleanUp, run: func(*exam) string {
		old, err := clean.sweep(e.base)
		switch {
		case isDenied(err) && !e.inserted, err != nil && table.Missing(err):
			return "nothing was written"
		case err != nil:
			must(&finding{Warning, oneLine(err), "rows whose names begin with " + e.base + " may be left in the table; no lock uses them",
				"run doctor again; it deletes rows left by earlier runs once they are ten minutes old"})
		case old > 0:
			return fmt.Sprintf("this run left no rows; it also deleted rows that earlier runs had left behind (%d)", old)
		}
		return "this run left no rows"
	}})
}

// sweep deletes all rows of this run and the stale rows of other runs. It returns the number of stale rows. A row's age
// is the time from its token to the timestamp of the read, both by Spanner's clock. A ticket has no token, so its
// heartbeat counts instead.
func (r *recorder) sweep(base string) (old int, err error) {
	var all []table.Range
	for _, begin := range prefixes(prefix) {
		all = append(all, table.Range{From: begin, To: begin + "\U0010FFFF"})
	}
	for {
		rows, at, err := r.Read(r.ctx, "doctor", table.Strong, table.Keys{Ranges: all})
		if err != nil {
			return old, err
		}
		var writes []table.Write
		for _, row := range rows {
			mine := beginsWith(row.Name, base)
			if !mine && (at.Sub(cmp.Or(row.Token, row.Heartbeat)) < stale || !beginsWith(row.Name, prefix)) {
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
		if err := r.Commit(r.ctx, "doctor", writes); err != nil {
			return old, err
		}
	}
}

// prefixes returns the prefixes of the keys of all locks whose names begin with the given text, and of their tickets.
func prefixes(name string) []string { return []string{name, table.TicketPrefix + url.PathEscape(name)} }

func beginsWith(key, name string) bool {
	return slices.ContainsFunc(prefixes(name), func(p string) bool { return strings.HasPrefix(key, p) })
}

// now sets columns to the timestamp of the commit.
func now(columns ...string) (set []table.Cell) {
	for _, c := range columns {
		set = append(set, table.Cell{Column: c, Value: table.Now})
	}
	return set
}

// insert inserts one of this run's rows in a blind commit, reads the row back, and returns it.
func (e *exam) insert(name, writer string) table.Row {
	set := append(now(table.ColHeartbeat, table.ColToken), table.Cell{Column: table.ColWriter, Value: writer})
	must(e.Commit(e.ctx, "doctor", []table.Write{{Kind: table.Insert, Name: name, Set: set}}))
	return e.row(name)
}

func (e *exam) read(bound table.Bound, keys table.Keys) ([]table.Row, time.Time) {
	rows, at, err := e.Read(e.ctx, "doctor-read", bound, keys)
	must(err)
	return rows, at
}

// row reads one of this run's rows. The check fails if the row is not there.
func (e *exam) row(name string) table.Row {
	rows, _ := e.read(table.Strong, table.Keys{Names: []string{name}})
	if len(rows) != 1 {
		refute("a strong read did not return row %q, which had been committed before the read", name)
	}
	return rows[0]
}

// elect makes id the holder of a lock, even if it is held.
func (e *exam) elect(id, name string) (table.Token, error) {
	token, err := e.claim(id, name)
	if err != nil {
		return 0, err
	}
	confirm := func() error { return e.table.Confirm(e.ctx, token, table.LeaseRecord{Lease: limit}, name) }
	if err := retry(confirm); err != nil {
		return 0, fmt.Errorf("confirm: %w", err)
	}
	return token, nil
}

func (e *exam) claim(id, name string) (table.Token, error) {
	return e.take(name, func(seen []table.Observation) (table.Token, error) { return e.table.Claim(e.ctx, id, seen...) })
}

// take observes a lock and claims it. A claim fails if the observation is stale.
func (e *exam) take(name string, claim func([]table.Observation) (table.Token, error)) (token table.Token, err error) {
	try := func() error {
		seen, err := e.table.Observe(e.ctx, name)
		if err != nil {
			return fmt.Errorf("observe: %w", err)
		}
		if token, err = claim(seen); err != nil {
			return fmt.Errorf("claim: %w", err)
		}
		return nil
	}
	e.await(func() bool { err = retry(try); return overrun(err) || !errors.Is(err, table.ErrChanged) })
	return token, err
}

// retry runs a step, and runs it again if it failed because of a concurrent transaction. It makes up to 20 attempts.
// The emulator runs only one transaction at a time, and aborts or loses all others.
func retry(try func() error) (err error) {
	for range 20 {
		if err = try(); !overrun(err) {
			break
		}
	}
	return err
}

// overrun reports whether err was caused by a concurrent transaction.
func overrun(err error) bool {
	code := spanner.ErrCode(err)
	return errors.Is(err, table.ErrAborted) ||
		(code == codes.FailedPrecondition || code == codes.NotFound) && strings.Contains(spanner.ErrDesc(err), "ransaction")
}

func (e *exam) pause(d time.Duration) {
	select {
	case <-e.ctx.Done():
	case <-time.After(d):
	}
}

// await calls done repeatedly until it returns true, and gives up after five seconds or when ctx ends. A call may
// return false at first, because reads can be slightly stale and miss a new commit.
func (e *exam) await(done func() bool) bool {
	for start := time.Now(); !done(); e.pause(100 * time.Millisecond) {
		if time.Since(start) > 5*time.Second || e.ctx.Err() != nil {
			return false
		}
	}
	return true
}

// attempt is the time limit for one request.
const attempt = 5 * time.Second

// recorder gives the probes access to the lock table. It counts denied requests and commits without a timestamp, which
// separate checks report.
//
// Once its context has ended, recorder starts no more requests, but it lets a request in progress finish. If it
// abandoned a commit, the commit could still be applied after the cleanup.
type recorder struct {
	table.Via
	spanner table.Spanner
	ctx     context.Context

	mu         sync.Mutex
	denied     int
	unanswered int // the number of replies to commits that had no timestamp
}

func newRecorder(ctx context.Context, s table.Spanner) *recorder {
	r := &recorder{spanner: s, ctx: ctx}
	r.Via = r.do
	return r
}

func (r *recorder) do(ctx context.Context, step string, call func(context.Context, table.Store) error) error {
	if err := r.ctx.Err(); err != nil {
		return err // rather than its cause, which passing may not recognize
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), attempt)
	defer cancel()
	err := call(ctx, r.spanner)
	r.mu.Lock()
	defer r.mu.Unlock()
	if isDenied(err) {
		r.denied++
	}
	if errors.Is(err, table.ErrNoTimestamp) {
		r.unanswered++
	}
	return err
}

func isDenied(err error) bool { return table.FaultOf(err) == table.NoPermission }

// apply sets a row's token to the timestamp of the commit, and returns this timestamp. It commits as an application
// does: either blindly or in a transaction.
func (r *recorder) apply(step string, blind bool, row string, also ...*spanner.Mutation) (at time.Time, err error) {
	opts := []spanner.ApplyOption{spanner.TransactionTag("spindle-" + step), spanner.IsolationLevel(sppb.TransactionOptions_SERIALIZABLE)}
	if blind {
		opts = append(opts, spanner.ApplyAtLeastOnce())
	}
	also = append(also, spanner.InsertOrUpdate(r.spanner.Table, []string{table.ColName, table.ColToken}, []any{row, spanner.CommitTimestamp}))
	err = r.do(r.ctx, step, func(ctx context.Context, _ table.Store) error {
		at, err = table.Acknowledged(r.spanner.DB.Apply(ctx, also, opts...))
		return err
	})
	return at, err
}
