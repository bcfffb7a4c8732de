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
	"google.golang.org/grpc/codes"

	"github.com/spindle-lock/spindle/ddl"
	"github.com/spindle-lock/spindle/internal/table"
)

// The names of checks that other checks need, or that the code treats specially.
const (
	checkTable       = "table"
	checkPermissions = "permissions"
	checkReplies     = "replies"
	checkTimestamps  = "commit timestamps"
	checkUpdate      = "key-only update"
	checkRelease     = "release"
	checkOptimistic  = "optimistic"
	checkPresent     = "present"
	checkCleanUp     = "clean-up"
)

var (
	allowed    = []string{checkTable, checkPermissions, checkReplies}
	timed      = append(slices.Clip(allowed), checkTimestamps)
	steps      = append(slices.Clip(timed), checkUpdate, checkRelease, checkOptimistic)
	tellTeam   = "don't use locks on this database, and report this output, because Spanner does not behave as documented"
	reportIt   = "report this output"
	unfenced   = "a superseded holder's writes may be committed during its successor's term"
	anOutlaw   = "two processes may hold a lock at the same time"
	noExpiry   = "the lease of a dead holder never expires; locks are safe, but no other process takes over"
	slowOnly   = "locks are safe, but slower than they should be"
	slowFree   = "locks from package lock are safe, but acquiring one takes twice as many requests"
	roleAdvice = "grant roles/spanner.databaseUser on the database, or grant SELECT, INSERT, UPDATE and DELETE on the table to the program's database role"
)

var probes = []probe{
	{checkTable, nil, schema, "claims or releases will fail", "run spindle init to create a missing table; ddl.Verify lists the changes that an existing table needs"},
	{checkPermissions, []string{checkTable}, permissions, "this process can't compete for locks", roleAdvice},
	{checkReplies, nil, replies, "if the reply to a commit has no timestamp, the outcome is unknown, so a process can't use the commit to acquire or keep a lock",
		"update cloud.google.com/go/spanner to the latest version; older versions don't send the second commit request that Spanner may ask for"},
	{checkTimestamps, allowed, timestamps, "tokens may repeat or decrease, and a claimant may not recognize its own claim", tellTeam},
	{checkUpdate, allowed, keyOnlyUpdate, unfenced, tellTeam},
	{checkRelease, append(slices.Clip(allowed), checkUpdate), lateRelease, "a duplicate release that is committed late may free a lock that a different process holds", tellTeam},
	{checkOptimistic, allowed, optimistic, anOutlaw, tellTeam},
	{"fence", append(slices.Clip(timed), checkUpdate, checkOptimistic), race, unfenced, tellTeam},
	{"cycle", steps, cycle, "locks don't work here", tellTeam},
	{checkPresent, timed, present, noExpiry, tellTeam},
	{"free rows", append(slices.Clip(steps), checkPresent), freeRows, anOutlaw, tellTeam},
	{"queue", append(slices.Clip(allowed), checkPresent), queue, "locks are safe, but processes that wait for a lock from package lock may acquire it in any order", reportIt},
	{"strong", timed, strong, "a superseded holder may not notice that its token is invalid, and may continue until the fence refuses its writes", tellTeam},
	{"clock", []string{checkTable, checkPermissions, checkPresent}, clockRate, "if the holder's clock runs too slow, the holder's HasLock may still return true after another process has acquired the lock; fenced writes are not affected", "fix this machine's clock: check its time source and, if this is a virtual machine, the host"},
	{"many keys", allowed, manyKeys, "a member may not see all members and partitions of its group, so don't use groups; locks are not affected", tellTeam},
	{"group", steps, group, "two members of a group may work on the same partition until the fence refuses the writes of one of them", tellTeam},
	{"round trips", append(slices.Clip(allowed), checkOptimistic), measure, "the shortest lease that this database allows could not be determined", "run doctor again"},
}

func schema(e *exam) string {
	ctx, cancel := context.WithTimeout(e.ctx, 4*attempt) // several queries
	defer cancel()
	err := ddl.Verify(ctx, e.spanner.DB, e.spanner.Table)
	if wrong := (*ddl.SchemaError)(nil); errors.As(err, &wrong) {
		refute("%s", strings.Join(wrong.Problems, "; "))
	}
	if isDenied(err) {
		must(&finding{NotChecked, "this process is not allowed to read the schema: " + oneLine(err), "locks are not affected, because a candidate does not need this permission",
			"grant roles/spanner.databaseReader, or ask a user with that role to run spindle init"})
	}
	must(err)
	return "the table's schema is correct"
}

var permission = regexp.MustCompile(`\bspanner\.[a-z]+\.[A-Za-z]+`)

// permissions performs each kind of step that a candidate performs, and checks only whether the step is allowed. It
// takes the names of missing permissions from Spanner's errors. If an error names no permission, permissions reports
// the one that the step needs.
func permissions(e *exam) string {
	name := e.base + "/permissions"
	keys := table.Keys{Names: []string{name}}
	write := func(kind table.Kind, columns ...string) []table.Write {
		return []table.Write{{Kind: kind, Name: name, Set: now(columns...)}}
	}
	var missing []string
	var denied, unknown error
	try := func(needs string, err error) {
		names := permission.FindAllString(fmt.Sprint(err), -1)
		if names == nil {
			names = []string{needs}
		}
		switch {
		case isDenied(err):
			denied, missing = cmp.Or(denied, err), append(missing, names...)
		case passing(err):
			unknown = cmp.Or(unknown, err)
		}
	}
	_, _, err := e.Read(e.ctx, "doctor-read", table.Present, keys)
	try("spanner.databases.read (SELECT, for a database role)", err)
	for _, c := range []struct {
		may    string
		writes []table.Write
	}{
		{"INSERT", write(table.Insert, table.ColHeartbeat, table.ColToken)},
		{"UPDATE", write(table.Update, table.ColHeartbeat)},
		{"UPDATE", write(table.Update)}, // a fence
		{"DELETE", write(table.Delete)},
	} {
		err := e.Commit(e.ctx, "doctor-write", c.writes)
		e.inserted = e.inserted || c.may == "INSERT" && err == nil
		try("spanner.databases.write ("+c.may+", for a database role)", err)
	}
	try("spanner.databases.beginOrRollbackReadWriteTransaction", retry(func() error {
		_, err := e.Transact(e.ctx, "doctor-transaction", func(ctx context.Context, r table.Reader) ([]table.Write, error) {
			_, err := r.Read(ctx, keys)
			return write(table.Delete), err
		})
		return err
	}))
	if denied != nil {
		slices.Sort(missing)
		refute("missing: %s; Spanner's error: %s", strings.Join(slices.Compact(missing), ", "), oneLine(denied))
	}
	must(unknown)
	return "reads, blind commits and transactions are allowed"
}

var errNoCommit = errors.New("no commit was made")

// replies judges the replies to all commits so far.
func replies(e *exam) string {
	switch {
	case e.unanswered > 0:
		refute("%d of the replies to commits had no timestamp", e.unanswered)
	case e.made[checkPermissions].Verdict != OK:
		must(errNoCommit)
	}
	return "every reply to a commit had a timestamp"
}

// timestamps alternates blind commits with transactions.
func timestamps(e *exam) string {
	const n = 10
	name := e.base + "/timestamps"
	e.insert(name, "")
	var last time.Time
	for i := range n {
		at := get(e.apply("doctor-timestamps", i%2 == 0, name))
		follows(last, at, e.row(name).Token)
		last = at
	}
	return fmt.Sprintf("the timestamps of %d consecutive commits increased, were in whole microseconds, and matched the stored values", n)
}

// follows checks that a commit returned a timestamp that is in whole microseconds, later than the previous commit's,
// and equal to the stored one.
func follows(last, at, stored time.Time) {
	switch {
	case !stored.Equal(at):
		refute("a commit returned the timestamp %v but stored %v", at.UTC(), stored.UTC())
	case at.Nanosecond()%1000 != 0:
		refute("the timestamp of a commit, %v, is not in whole microseconds", at.UTC())
	case !at.After(last):
		refute("the commit after the one at %v has the timestamp %v, which is not later", last.UTC(), at.UTC())
	}
}

func keyOnlyUpdate(e *exam) string {
	name := e.base + "/update"
	before := e.insert(name, "before")
	must(e.Commit(e.ctx, "doctor-update", []table.Write{{Kind: table.Update, Name: name}}))
	if e.row(name) != before {
		refute("an update that sets only the key changed a row")
	}
	err := e.Commit(e.ctx, "doctor-update", []table.Write{
		{Kind: table.Update, Name: name, Set: []table.Cell{{Column: table.ColWriter, Value: "after"}}},
		{Kind: table.Update, Name: name + "/missing"}})
	switch {
	case err == nil:
		refute("an update of a row that does not exist was committed")
	case !errors.Is(err, table.ErrMissing) && spanner.ErrCode(err) == codes.NotFound:
		must(&finding{Warning, "Spanner's error does not indicate that a row is missing: " + oneLine(err),
			slowOnly + ", because a holder must read its lease row to find out whether it was superseded", reportIt})
	case !errors.Is(err, table.ErrMissing):
		must(err)
	case e.row(name) != before:
		refute("a refused commit changed a row")
	}
	return "a key-only update changes nothing if the row exists, and fails the whole commit if the row is missing"
}

// never is a token that no holder ever gets.
const never table.Token = 1

// lateRelease sends a release for a term that has ended, to imitate a duplicate that arrives late.
func lateRelease(e *exam) string {
	name := e.base + "/release"
	before := e.insert(name, "other holder")
	switch err := e.table.Release(e.ctx, never, name); {
	case err == nil:
		refute("a release was committed although its lease row does not exist")
	case !errors.Is(err, table.ErrSuperseded):
		must(err)
	}
	if e.row(name) != before {
		refute("a refused release changed the lock row")
	}
	return "a release fails and changes nothing if its lease row is missing"
}

// optimistic changes a row that an open transaction has read, and checks that the commit of this change does not have
// to wait for the transaction. It makes up to five attempts, because on the emulator, four out of five such commits
// wait.
func optimistic(e *exam) string {
	name := e.base + "/optimistic"
	e.insert(name, "")
	var took time.Duration
	for range 5 {
		var waited bool
		if took, waited = e.overtake(name); !waited {
			return fmt.Sprintf("a commit to a row that an optimistic transaction had read took only %v, and the transaction was aborted", round(took))
		}
	}
	panic(stop{&finding{Warning, fmt.Sprintf("a commit waited %v for a transaction that had only read the row", round(took)),
		"if a candidate dies during a claim, heartbeats and other claims wait for up to ten seconds, until Spanner aborts the candidate's transaction",
		"use leases of 30 s or longer, and report this output"}})
}

// patience is the time limit for a commit that has no reason to wait.
const patience = 2 * time.Second

// overtake reads a row in a transaction and, before that transaction commits, changes the row in a separate commit. It
// returns how long the separate commit took, and whether it had to wait for the transaction. If it did not have to wait,
// overtake also checks that the transaction fails.
func (e *exam) overtake(name string) (took time.Duration, waited bool) {
	var overtaken, err error
	begun := false // the separate commit
	must(retry(func() error {
		_, err = e.Transact(e.ctx, "doctor-optimistic", func(ctx context.Context, r table.Reader) ([]table.Write, error) {
			if _, err := r.Read(ctx, table.Keys{Names: []string{name}}); err != nil {
				return nil, err
			}
			ctx, cancel := context.WithTimeout(ctx, patience)
			defer cancel()
			begun = true
			start := time.Now()
			overtaken = e.spanner.Commit(ctx, "doctor-overtake", []table.Write{{Kind: table.Update, Name: name, Set: now(table.ColHeartbeat)}})
			took = time.Since(start)
			return []table.Write{{Kind: table.Update, Name: name, Set: []table.Cell{{Column: table.ColHeartbeat, Value: nil}}}}, nil
		})
		if begun {
			return nil
		}
		return err
	}))
	code := spanner.ErrCode(overtaken)
	switch {
	case errors.Is(overtaken, context.DeadlineExceeded) || code == codes.DeadlineExceeded || code == codes.Aborted:
		return took, true // a commit that is aborted is repeated until the time limit
	case overtaken != nil:
		must(overtaken)
	case err == nil:
		refute("a transaction was committed although a row that it had read had changed")
	case !errors.Is(err, table.ErrAborted):
		must(err)
	}
	return took, false
}
