package doctor

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"cloud.google.com/go/spanner"
	"google.golang.org/grpc/codes"

	"github.com/spindle-lock/spindle/ddl"
	"github.com/spindle-lock/spindle/internal/table"
)

// The names of the checks.
const (
	checkTable       = "table"
	checkPermissions = "permissions"
	checkReplies     = "replies"
	checkTimestamps  = "commit timestamps"
	checkUpdate      = "key-only update"
	checkRelease     = "release"
	checkFence       = "fence"
	checkOptimistic  = "optimistic"
	checkCycle       = "cycle"
	checkPresent     = "present"
	checkFree        = "free rows"
	checkQueue       = "queue"
	checkStrong      = "strong"
	checkClock       = "clock"
	checkKeys        = "many keys"
	checkGroup       = "group"
	checkRoundTrips  = "round trips"
	checkCleanUp     = "clean-up"
)

var (
	allowed    = []string{checkTable, checkPermissions, checkReplies}
	timed      = append(slices.Clip(allowed), checkTimestamps)
	tellTeam   = "don't use locks on this database, and report this output, because Spanner does not behave as documented"
	unfenced   = "a superseded holder's writes may be committed during its successor's term"
	anOutlaw   = "two processes may hold a lock at the same time"
	noExpiry   = "the lease of a dead holder never expires; locks are safe, but no other process takes over"
	slowOnly   = "locks are safe, but slower than they should be"
	roleAdvice = "grant roles/spanner.databaseUser on the database, or grant SELECT, INSERT, UPDATE and DELETE on the table to the database role"
)

var probes = []probe{
	{name: checkTable, run: (*exam).schema, means: "claims or releases will fail", do: "run spindle init to create a missing table; ddl.Verify lists the changes that an existing table needs"},
	{name: checkPermissions, needs: []string{checkTable}, run: (*exam).permissions, means: "this process can't compete for locks", do: roleAdvice},
	{name: checkReplies, needs: []string{checkTable}, run: func(*exam, context.Context) (string, error) { return "", nil }}, // reported at the end of the run
	{name: checkTimestamps, needs: allowed, run: (*exam).timestamps, means: "tokens may repeat or decrease, and a claimant may not recognize its own claim", do: tellTeam},
	{name: checkUpdate, needs: allowed, run: (*exam).keyOnlyUpdate, means: unfenced, do: tellTeam},
	{name: checkRelease, needs: append(slices.Clip(allowed), checkUpdate), run: (*exam).lateRelease, means: "a duplicate release that is committed late may free a lock that a different process holds", do: tellTeam},
	{name: checkOptimistic, needs: allowed, run: (*exam).optimistic, means: anOutlaw, do: tellTeam},
	{name: checkFence, needs: append(slices.Clip(timed), checkUpdate, checkOptimistic), run: (*exam).race, means: unfenced, do: tellTeam},
	{name: checkCycle, needs: append(slices.Clip(timed), checkUpdate, checkRelease, checkOptimistic), run: (*exam).cycle, means: "locks don't work here", do: tellTeam},
	{name: checkPresent, needs: timed, run: (*exam).present, means: noExpiry, do: tellTeam},
	{name: checkFree, needs: append(slices.Clip(timed), checkUpdate, checkRelease, checkOptimistic, checkPresent), run: (*exam).freeRows, means: anOutlaw, do: tellTeam},
	{name: checkQueue, needs: append(slices.Clip(allowed), checkPresent), run: (*exam).queue, means: "locks are safe, but processes that wait for a lock from package lock may acquire it in any order", do: tellTeam},
	{name: checkStrong, needs: timed, run: (*exam).strong, means: "a superseded holder may not notice that its token is invalid, and may continue until the fence refuses its writes", do: tellTeam},
	{name: checkClock, needs: []string{checkTable, checkPermissions, checkPresent}, run: (*exam).clockRate, means: "if the clock of a lock's holder runs too slow, its HasLock may still return true after another process has acquired the lock; fenced writes are not affected", do: "fix this machine's clock; check its time source, and if this is a virtual machine, check the host as well"},
	{name: checkKeys, needs: allowed, run: (*exam).manyKeys, means: "a member may not see all members and partitions of its group, so don't use groups; locks are not affected", do: tellTeam},
	{name: checkGroup, needs: append(slices.Clip(timed), checkUpdate, checkRelease, checkOptimistic), run: (*exam).group, means: "two members of a group may work on the same partition until the fence refuses the writes of one of them", do: tellTeam},
	{name: checkRoundTrips, needs: append(slices.Clip(allowed), checkOptimistic), run: (*exam).measure, means: "the shortest lease that this database allows could not be determined", do: "run doctor again"},
}

func (e *exam) schema(ctx context.Context) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*attempt)
	defer cancel()
	err := ddl.Verify(ctx, e.spanner.DB, e.spanner.Table)
	var wrong *ddl.SchemaError
	switch {
	case errors.As(err, &wrong):
		return "", broken("%s", strings.Join(wrong.Problems, "; "))
	case isDenied(err):
		return "", &finding{NotChecked, "this process is not allowed to read the schema: " + oneLine(err), "locks are not affected, because a candidate does not need this permission",
			"grant roles/spanner.databaseReader, or ask a user with that role to run spindle init"}
	}
	return "the table's schema is correct", err
}

// permissions performs each kind of step that a candidate performs, and checks only whether it is allowed.
func (e *exam) permissions(ctx context.Context) (string, error) {
	name := e.base + "/permissions"
	const read, begin, insert, update, remove = "doctor-read", "doctor-transaction", "doctor-insert", "doctor-update", "doctor-delete"
	commit := func(step string, kind table.Kind, set ...table.Cell) error {
		return e.Commit(ctx, step, []table.Write{{Kind: kind, Name: name, Set: set}})
	}
	heartbeat := table.Cell{Column: table.ColHeartbeat, Value: table.Now}
	_, _, errRead := e.Read(ctx, read, table.Present, table.Keys{Names: []string{name}})
	errs := []error{
		errRead,
		commit(insert, table.Insert, heartbeat, table.Cell{Column: table.ColToken, Value: table.Now}),
		commit(update, table.Update, heartbeat),
		commit(update, table.Update), // a fence
		commit(remove, table.Delete),
	}
	errs = append(errs, again(func() error {
		_, err := e.Transact(ctx, begin, func(ctx context.Context, r table.Reader) ([]table.Write, error) {
			_, err := r.Read(ctx, table.Keys{Names: []string{name}})
			return []table.Write{{Kind: table.Delete, Name: name}}, err
		})
		return err
	}))
	if missing := lacks(e.denied, map[string]string{
		read:   "spanner.databases.read (SELECT, for a database role)",
		begin:  "spanner.databases.beginOrRollbackReadWriteTransaction",
		insert: "spanner.databases.write (INSERT, for a database role)",
		update: "spanner.databases.write (UPDATE, for a database role)",
		remove: "spanner.databases.write (DELETE, for a database role)",
	}); missing != nil {
		return "", broken("missing: %s; Spanner's error: %s", strings.Join(missing, ", "), e.denied[0].message)
	}
	if i := slices.IndexFunc(errs, passing); i >= 0 {
		return "", errs[i]
	}
	return "reads, blind commits and transactions are allowed", nil
}

// timestamps alternates blind commits with transactions.
func (e *exam) timestamps(ctx context.Context) (string, error) {
	const n = 10
	name := e.base + "/timestamps"
	if err := e.write(ctx, table.Insert, name, ""); err != nil {
		return "", err
	}
	var last time.Time
	for i := range n {
		at, err := e.apply(ctx, "doctor-timestamps", i%2 == 0, spanner.Update(e.spanner.Table, []string{table.ColName, table.ColToken}, []any{name, spanner.CommitTimestamp}))
		if err != nil {
			return "", err
		}
		row, err := e.row(ctx, name)
		if err == nil {
			err = follows(last, at, row.Token)
		}
		if err != nil {
			return "", err
		}
		last = at
	}
	return fmt.Sprintf("the timestamps of %d consecutive commits increased, were in whole microseconds, and matched the stored values", n), nil
}

// follows checks that the timestamp returned by a commit is later than the previous one and equal to the stored one.
func follows(last, at, stored time.Time) error {
	switch {
	case !stored.Equal(at):
		return broken("a commit returned the timestamp %v but stored %v", at.UTC(), stored.UTC())
	case at.Nanosecond()%1000 != 0:
		return broken("the timestamp of a commit, %v, is not in whole microseconds", at.UTC())
	case !at.After(last):
		return broken("a commit after %v has the timestamp %v", last.UTC(), at.UTC())
	}
	return nil
}

func (e *exam) keyOnlyUpdate(ctx context.Context) (string, error) {
	name := e.base + "/update"
	if err := e.write(ctx, table.Insert, name, "before"); err != nil {
		return "", err
	}
	before, err := e.row(ctx, name)
	if err != nil {
		return "", err
	}
	unchanged := func(after string) error {
		if row, err := e.row(ctx, name); err != nil || row != before {
			return errors.Join(err, broken("%s changed a row", after))
		}
		return nil
	}
	if err := e.Commit(ctx, "doctor-update", []table.Write{{Kind: table.Update, Name: name}}); err != nil {
		return "", err
	}
	if err := unchanged("an update that sets only the key"); err != nil {
		return "", err
	}
	err = e.Commit(ctx, "doctor-update", []table.Write{
		{Kind: table.Update, Name: name, Set: []table.Cell{{Column: table.ColWriter, Value: "after"}}},
		{Kind: table.Update, Name: name + "/missing"}})
	switch {
	case err == nil:
		return "", broken("an update of a row that does not exist was committed")
	case errors.Is(err, table.ErrMissing):
		return "a key-only update changes nothing if the row exists, and fails the whole commit if the row is missing", unchanged("a refused commit")
	case spanner.ErrCode(err) == codes.NotFound:
		return "", &finding{Warning, "Spanner's error does not indicate that a row is missing: " + oneLine(err), slowOnly + ", because a holder has to read its lease row to find out whether it was superseded",
			"report this output"}
	}
	return "", err
}

// never is a token that no holder is ever given.
const never table.Token = 1

// lateRelease sends a release for a term that has ended, to imitate a duplicate that arrives late.
func (e *exam) lateRelease(ctx context.Context) (string, error) {
	name := e.base + "/release"
	if err := e.write(ctx, table.Insert, name, "other holder"); err != nil {
		return "", err
	}
	before, err := e.row(ctx, name)
	if err != nil {
		return "", err
	}
	switch err := e.table.Release(ctx, never, name); {
	case err == nil:
		return "", broken("a release was committed although its lease row does not exist")
	case !errors.Is(err, table.ErrSuperseded):
		return "", err
	}
	after, err := e.row(ctx, name)
	if err == nil && after != before {
		err = broken("a refused release changed the lock row")
	}
	return "a release fails and changes nothing if its lease row is missing", err
}

// optimistic changes a row that an open transaction has read, and checks that this commit does not have to wait for the
// transaction. It makes up to five attempts, because on the emulator, four out of five such commits wait.
func (e *exam) optimistic(ctx context.Context) (string, error) {
	name := e.base + "/optimistic"
	if err := e.write(ctx, table.Insert, name, ""); err != nil {
		return "", err
	}
	for n := 1; ; n++ {
		took, waited, err := e.overtake(ctx, name)
		switch {
		case err != nil:
			return "", err
		case !waited:
			return fmt.Sprintf("a commit took %v although an optimistic transaction had read the same row, and the transaction was aborted", round(took)), nil
		case n == 5:
			return "", &finding{Warning, fmt.Sprintf("a commit waited %v for a transaction that had only read", round(took)),
				"if a candidate dies during a claim, other heartbeats and claims wait for ten seconds, until Spanner aborts the candidate's transaction",
				"use leases of 30 s or longer, and report this output"}
		}
	}
}

// overtake starts a transaction that reads a row. Before the transaction commits, overtake changes the row in a
// separate commit. It returns how long that commit took, and whether it had to wait for the transaction. It returns an
// error if the transaction commits even though the row has changed.
func (e *exam) overtake(ctx context.Context, name string) (took time.Duration, waited bool, err error) {
	var overtaken error
	_, err = e.Transact(ctx, "doctor-optimistic", func(ctx context.Context, r table.Reader) ([]table.Write, error) {
		if _, err := r.Read(ctx, table.Keys{Names: []string{name}}); err != nil {
			return nil, err
		}
		ctx, cancel := context.WithTimeout(ctx, patience)
		defer cancel()
		start := time.Now()
		overtaken = e.spanner.Commit(ctx, "doctor-overtake", []table.Write{{Kind: table.Update, Name: name, Set: []table.Cell{{Column: table.ColHeartbeat, Value: table.Now}}}})
		took = time.Since(start)
		return []table.Write{{Kind: table.Update, Name: name, Set: []table.Cell{{Column: table.ColHeartbeat, Value: nil}}}}, nil
	})
	switch {
	case errors.Is(overtaken, context.DeadlineExceeded) || spanner.ErrCode(overtaken) == codes.DeadlineExceeded:
		return took, true, nil
	case overtaken != nil:
		return took, false, overtaken
	case err == nil:
		return took, false, broken("a transaction was committed although a row that it had read had changed")
	case !errors.Is(err, table.ErrAborted):
		return took, false, err
	}
	return took, false, nil
}

// patience is the time limit for a commit that has no reason to wait.
const patience = 2 * time.Second

// cycle takes a lock through its whole life, with the same steps that locks use.
func (e *exam) cycle(ctx context.Context) (string, error) {
	name := e.base + "/cycle"
	first, err := e.elect(ctx, "first", name)
	if err != nil {
		return "", err
	}
	if err := e.table.Heartbeat(ctx, first, name); err != nil {
		return "", fmt.Errorf("heartbeat: %w", err)
	}
	second, err := e.elect(ctx, "second", name)
	if err != nil {
		return "", err
	}
	if err := larger(first, second); err != nil {
		return "", err
	}
	for step, err := range map[string]error{"heartbeat": e.table.Heartbeat(ctx, first, name), "release": e.table.Release(ctx, first, name)} {
		if !errors.Is(err, table.ErrSuperseded) {
			return "", broken("a superseded holder's %s should have failed with ErrSuperseded, but got: %v", step, err)
		}
	}
	switch valid, err := e.table.Valid(ctx, second, name); {
	case err != nil:
		return "", err
	case !valid:
		return "", broken("a holder's token is not valid")
	}
	if err := e.table.Release(ctx, second, name); err != nil {
		return "", fmt.Errorf("release: %w", err)
	}
	seen, err := e.table.LookAtLeases(ctx, time.Now(), name)
	if err == nil && (!seen[0].Heartbeat.IsZero() || len(seen[0].OrphanLeases) > 0) {
		err = broken("a released lock is still taken")
	}
	return "a lock was claimed, confirmed, extended, superseded and released", err
}

// larger checks that the second of two consecutive terms has the larger token.
func larger(first, second table.Token) error {
	if second <= first {
		return broken("the token of the second term, %d, is not larger than the token of the first, %d", second, first)
	}
	return nil
}

// elect makes id the holder of a lock, even if it is held.
func (e *exam) elect(ctx context.Context, id, name string) (table.Token, error) {
	token, err := e.claim(ctx, id, name)
	if err != nil {
		return 0, err
	}
	confirm := func() error { return e.table.Confirm(ctx, token, table.LeaseRecord{Lease: limit}, name) }
	if err := again(confirm); err != nil {
		return 0, fmt.Errorf("confirm: %w", err)
	}
	return token, nil
}

func (e *exam) claim(ctx context.Context, id, name string) (token table.Token, err error) {
	err = again(func() error {
		seen, err := e.table.Observe(ctx, name)
		if err != nil {
			return fmt.Errorf("observe: %w", err)
		}
		if token, err = e.table.Claim(ctx, id, seen...); err != nil {
			return fmt.Errorf("claim: %w", err)
		}
		return nil
	})
	return token, err
}

// again retries a step that failed because of a concurrent transaction. This happens on the emulator, which runs only
// one transaction at a time, and aborts or loses the others.
func again(try func() error) (err error) {
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
