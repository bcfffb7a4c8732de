package doctor

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"cloud.google.com/go/spanner"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/spindle-lock/spindle/internal/table"
	"github.com/spindle-lock/spindle/internal/testkit/memstore"
)

// lie is what a table in memory does instead of what it is told. Each function can be nil.
type lie struct {
	read   func(step string, keys table.Keys, rows []table.Row, at time.Time) ([]table.Row, error)
	commit func(step string, writes []table.Write, do func(...table.Write) error) error // also of a transaction
	trip   func(step string)                                                            // before each request
}

// liar is a table in memory that breaks one thing that Spanner promises.
type liar struct {
	*memstore.Store
	lie
}

func (l liar) goes(step string) {
	if l.trip != nil {
		l.trip(step)
	}
}

func (l liar) Read(ctx context.Context, step string, bound table.Bound, keys table.Keys) ([]table.Row, time.Time, error) {
	l.goes(step)
	rows, at, err := l.Store.Read(ctx, step, bound, keys)
	if err == nil && l.read != nil {
		rows, err = l.read(step, keys, rows, at)
	}
	return rows, at, err
}

func (l liar) commits(step string, writes []table.Write, do func(...table.Write) error) error {
	l.goes(step)
	if l.commit != nil {
		return l.commit(step, writes, do)
	}
	return do(writes...)
}

func (l liar) Commit(ctx context.Context, step string, writes []table.Write) error {
	return l.commits(step, writes, func(writes ...table.Write) error { return l.Store.Commit(ctx, step, writes) })
}

func (l liar) Transact(ctx context.Context, step string, fn func(context.Context, table.Reader) ([]table.Write, error)) (at time.Time, err error) {
	txn := l.Begin()
	writes, err := fn(ctx, txn)
	if err != nil {
		return time.Time{}, err
	}
	err = l.commits(step, writes, func(writes ...table.Write) error { at, err = txn.Commit(step, writes); return err })
	return at, err
}

// examOf returns a run on a table in memory.
func examOf(ctx context.Context, l lie) (*exam, *memstore.Store) {
	e, store := newExam(ctx, nil, "locktable"), &memstore.Store{}
	e.Via = func(ctx context.Context, step string, call func(context.Context, table.Store) error) error {
		return e.do(ctx, step, func(ctx context.Context, _ table.Store) error { return call(ctx, liar{store, l}) })
	}
	return e, store
}

func probeOf(name string) probe {
	return probes[slices.IndexFunc(probes, func(p probe) bool { return p.name == name })]
}

func answer(code codes.Code, text string) error {
	return spanner.ToSpannerError(status.Error(code, text))
}

var (
	errMissingRow = fmt.Errorf("%w: %w", table.ErrMissing, answer(codes.NotFound, "Row [m_1] in table locktable is missing. Row cannot be updated."))
	errUnknownRow = fmt.Errorf("%w: %w", table.ErrNotFound, answer(codes.NotFound, "not found"))
	errLostTxn    = fmt.Errorf("%w: %w", table.ErrNotFound, answer(codes.NotFound, "Transaction not found: 7"))
	impossible    = answer(codes.FailedPrecondition, "that is never possible")
	unavailable   = answer(codes.Unavailable, "not now")
)

// refusing answers all commits of one step, from the given one on, with an error, and applies none of them.
func refusing(step string, from int, err error) lie {
	n := 0
	return lie{commit: func(s string, writes []table.Write, do func(...table.Write) error) error {
		if s == step {
			if n++; n >= from {
				return err
			}
		}
		return do(writes...)
	}}
}

// changing replaces the writes of one step.
func changing(step string, change func([]table.Write) []table.Write) lie {
	return lie{commit: func(s string, writes []table.Write, do func(...table.Write) error) error {
		if s == step {
			writes = change(slices.Clone(writes))
		}
		return do(writes...)
	}}
}

// torn applies only the other writes of a commit that it refuses because a row to be updated is missing.
func torn(step string) lie {
	return lie{commit: func(s string, writes []table.Write, do func(...table.Write) error) error {
		err := do(writes...)
		if s == step && errors.Is(err, table.ErrMissing) {
			_ = do(withoutFence(writes)...)
		}
		return err
	}}
}

func isFence(w table.Write) bool { return w.Kind == table.Update && w.Set == nil }

func withoutFence(writes []table.Write) []table.Write {
	return slices.DeleteFunc(slices.Clone(writes), isFence)
}

// claimingFree calls instead for each commit that claims through a free row. The commit is made if instead calls do.
func claimingFree(instead func(do func() error) error) lie {
	return lie{commit: func(step string, writes []table.Write, do func(...table.Write) error) error {
		if step == "claim" && isFence(writes[0]) {
			return instead(func() error { return do(writes...) })
		}
		return do(writes...)
	}}
}

// reading replaces the rows that one step reads, if the name of one of its keys or ranges contains the text.
func reading(step, about string, change func([]table.Row) []table.Row) lie {
	return lie{read: func(s string, keys table.Keys, rows []table.Row, _ time.Time) ([]table.Row, error) {
		is := func(name string) bool { return strings.Contains(name, about) }
		if s == step && (slices.ContainsFunc(keys.Names, is) || slices.ContainsFunc(keys.Ranges, func(r table.Range) bool { return is(r.From) })) {
			rows = change(slices.Clone(rows))
		}
		return rows, nil
	}}
}

func nothing([]table.Row) []table.Row { return nil }

// unreleased hides free rows for some time after the first read of them.
func unreleased(hidden time.Duration) lie {
	var since time.Time
	return lie{read: func(_ string, _ table.Keys, rows []table.Row, at time.Time) ([]table.Row, error) {
		free := func(r table.Row) bool { return strings.Contains(r.Writer, `"free":true`) }
		if since.IsZero() && slices.ContainsFunc(rows, free) {
			since = at
		}
		if at.Sub(since) < hidden {
			rows = slices.DeleteFunc(slices.Clone(rows), free)
		}
		return rows, nil
	}}
}

// cell replaces one column of an update that sets more than the key.
func cell(column string, value any) func([]table.Write) []table.Write {
	return func(writes []table.Write) []table.Write {
		for i, w := range writes {
			if at := slices.IndexFunc(w.Set, func(c table.Cell) bool { return c.Column == column }); w.Kind == table.Update && at >= 0 {
				writes[i].Set = slices.Clone(w.Set)
				writes[i].Set[at].Value = value
			}
		}
		return writes
	}
}

// without leaves the writes of a kind out.
func without(kind table.Kind) func([]table.Write) []table.Write {
	return func(writes []table.Write) []table.Write {
		return slices.DeleteFunc(writes, func(w table.Write) bool {
			return w.Kind == kind && !isFence(w)
		})
	}
}

// A doctor that finds less than it says would let locks be used where they are not safe. Each case breaks one thing that a
// check relies on, and the check must find out, and say what it found.
func TestACheckFindsWhateverIsBroken(t *testing.T) {
	for _, c := range []struct {
		probe, name string
		lie         lie
		want        Verdict
		says        string
	}{
		{checkUpdate, "a row is not read", reading("doctor-read", "/update", nothing), Failed, "a strong read did not return row"},
		{checkUpdate, "a key-only update changes a row", changing("doctor-update", func(writes []table.Write) []table.Write {
			if isFence(writes[0]) {
				writes[0].Set = now(table.ColHeartbeat)
			}
			return writes
		}), Failed, "an update that sets only the key changed a row"},
		{checkUpdate, "a missing row is ignored", changing("doctor-update", func(writes []table.Write) []table.Write {
			return slices.DeleteFunc(writes, func(w table.Write) bool { return strings.HasSuffix(w.Name, "/missing") })
		}), Failed, "an update of a row that does not exist was committed"},
		{checkUpdate, "a refused commit is applied in part", torn("doctor-update"), Failed, "a refused commit changed a row"},
		{checkUpdate, "a refusal that does not name a row", refusing("doctor-update", 2, errUnknownRow), Warning, "does not indicate that a row is missing: something was not found"},
		{checkUpdate, "a refusal for another reason", refusing("doctor-update", 2, impossible), Failed, "that is never possible"},
		{checkUpdate, "a refusal of an update that is right", refusing("doctor-update", 1, errMissingRow), Failed, "is missing"},
		{checkUpdate, "an outage", refusing("doctor-update", 2, unavailable), NotChecked, "not now"},

		{checkRelease, "a missing lease row is ignored", changing("release", withoutFence), Failed, "a release was committed although its lease row does not exist"},
		{checkRelease, "a refused release is applied in part", torn("release"), Failed, "a refused release changed the lock row"},
		{checkRelease, "a refusal for another reason", refusing("release", 1, impossible), Failed, "that is never possible"},
		{checkRelease, "an outage", refusing("release", 1, unavailable), NotChecked, "not now"},

		{"cycle", "a holder's heartbeat is refused", refusing("heartbeat", 1, errMissingRow), Failed, "heartbeat: the token was superseded"},
		{"cycle", "a late heartbeat is accepted", changing("heartbeat", withoutFence), Failed, "a superseded holder's heartbeat should have failed"},
		{"cycle", "a late release is accepted", changing("release", withoutFence), Failed, "a superseded holder's release should have failed"},
		{"cycle", "a claim leaves the lease row", changing("claim", without(table.Delete)), Failed, "a superseded holder's"},
		{"cycle", "a lease row is not found", reading("valid", "/cycle", nothing), Failed, "a holder's token is not valid"},
		{"cycle", "a release is refused", refusing("release", 2, impossible), Failed, "release: "},
		{"cycle", "a release leaves the lock row", changing("release", without(table.Update)), Failed, "a released lock is still taken"},
		{"cycle", "a release leaves the lease row", changing("release", without(table.Delete)), Failed, "a released lock is still taken"},
		{"cycle", "a claim is refused", refusing("claim", 1, impossible), Failed, "claim: spanner: code = \"FailedPrecondition\""},
		{"cycle", "a confirmation is refused", refusing("confirm", 2, impossible), Failed, "confirm: "},
		{"cycle", "every claim is aborted", refusing("claim", 1, table.ErrAborted), NotChecked, "claim: "},

		{"free rows", "the release is refused", refusing("release", 1, impossible), Failed, "never possible"},
		{"free rows", "the last release is refused", refusing("release", 2, impossible), Failed, "never possible"},
		{"free rows", "a release is visible late", unreleased(4 * time.Second), OK, "was claimed in one commit"},
		{"free rows", "a release is not visible", unreleased(time.Hour), NotChecked, "a release was still not visible to reads after five seconds"},
		{"free rows", "a claim is answered twice", claimingFree(func(do func() error) error { _ = do(); return do() }), OK, "a duplicate of that commit was refused"},
		{"free rows", "the refusal of a duplicate does not name a row", claimingFree(func(do func() error) error {
			err := do()
			if errors.Is(err, table.ErrMissing) {
				return errUnknownRow
			}
			return err
		}), OK, "a duplicate of that commit was refused"},
		{"free rows", "a claim is refused for its time", claimingFree(func(func() error) error { return impossible }), Warning, "a timestamp in the past is refused"},
		{"free rows", "a claim is refused for another reason", claimingFree(func(func() error) error { return answer(codes.InvalidArgument, "not like that") }), Failed, "claim: "},
		{"free rows", "a claim is never applied", claimingFree(func(func() error) error { return errMissingRow }), Failed, "did not find the claim's nonce"},
		{"free rows", "a claim can be repeated", claimingFree(func(do func() error) error { _ = do(); return nil }), Failed, "a claim whose free row is missing should have failed with NOT_FOUND; its error was: <nil>"},
		{"free rows", "a token is another", changing("claim", func(writes []table.Write) []table.Write {
			if isFence(writes[0]) {
				return cell(table.ColToken, time.Unix(1000, 0))(writes)
			}
			return writes
		}), Failed, "after a claim, the lock row has heartbeat"},
		{"free rows", "a heartbeat is as old as its token", changing("claim", func(writes []table.Write) []table.Write {
			if isFence(writes[0]) {
				return cell(table.ColHeartbeat, writes[len(writes)-1].Set[1].Value)(writes)
			}
			return writes
		}), Failed, "after a claim, the lock row has heartbeat"},

		{"queue", "no ticket can be written", refusing("queue", 1, impossible), Failed, "never possible"},
		{"queue", "no ticket can be deleted", refusing("queue", 2, impossible), Failed, "never possible"},
		{"queue", "the last tickets are returned first", lie{read: func(_ string, keys table.Keys, rows []table.Row, _ time.Time) ([]table.Row, error) {
			return rows[len(rows)/2:], nil
		}}, Warning, "position 1 of the queue has the wrong ticket"},
		{"queue", "a ticket is another's", reading("doctor-read", table.TicketPrefix, func(rows []table.Row) []table.Row {
			rows[4].Writer = `{"id":"other"}`
			return rows
		}), Warning, `position 5 of the queue has the wrong ticket, with ID "other" and time 5`},
		{"queue", "too few tickets", reading("doctor-read", table.TicketPrefix, func(rows []table.Row) []table.Row { return rows[:31] }), Warning, "returned 31 of 40 tickets"},
		{"queue", "no tickets", reading("doctor-read", table.TicketPrefix, nothing), Warning, "returned 0 of 40 tickets"},

		{"group", "a member's confirmation is refused", refusing("confirm-partitions", 1, errMissingRow), Failed, "a confirmation was refused although the member's lease row exists"},
		{"group", "a late confirmation is accepted", changing("confirm-partitions", withoutFence), Failed, "a partition was confirmed for a member that had left the group"},
		{"group", "a refused confirmation is applied in part", torn("confirm-partitions"), Failed, "a refused confirmation changed the partition"},
		{"group", "a confirmation is refused for another reason", refusing("confirm-partitions", 2, impossible), Failed, "never possible"},
		{"group", "a late confirmation is refused for another reason", refusing("confirm-partitions", 2, unavailable), NotChecked, "not now"},
		{"group", "a refusal that does not name a row", refusing("confirm-partitions", 2, errUnknownRow), OK, ""},
		{"group", "the transaction of a late confirmation is lost", refusing("confirm-partitions", 2, errLostTxn), NotChecked, "Transaction not found"},
		{"group", "a partition can't be claimed", refusing("claim-partitions", 2, impossible), Failed, "claim: "},
		{"group", "a partition can't be released", refusing("release-partitions", 1, impossible), Failed, "release: spanner: code = \"FailedPrecondition\""},
		{"group", "the member can't join", refusing("confirm", 1, impossible), NotChecked, "the check could not be prepared: confirm: "},
		{"group", "the member can't leave", refusing("release", 1, impossible), NotChecked, "the check could not be prepared: "},

		{"many keys", "a row is left out", reading("doctor-read", "/keys/", func(rows []table.Row) []table.Row { return rows[1:] }), Failed, "returned 19 rows, 19 of the 20 rows that exist"},
		{"many keys", "a row is returned twice", reading("doctor-read", "/keys/", func(rows []table.Row) []table.Row { return append(rows, rows[3]) }), Failed, "returned 21 rows, 20 of"},
		{"many keys", "a row too many is returned", reading("doctor-read", "/keys/", func(rows []table.Row) []table.Row { return append(rows, table.Row{Name: "m"}) }), Failed, "returned 21 rows, 20 of"},
		{"many keys", "a row is returned for another", reading("doctor-read", "/keys/", func(rows []table.Row) []table.Row { rows[3].Name = "m"; return rows }), Failed, "returned 20 rows, 19 of"},
		{"many keys", "a row is returned twice instead of another", reading("doctor-read", "/keys/", func(rows []table.Row) []table.Row { rows[3] = rows[4]; return rows }), Failed, "returned 20 rows, 19 of"},
		{"many keys", "no row can be written", refusing("doctor", 1, impossible), Failed, "never possible"},

		{"round trips", "a transaction is aborted", refusing("doctor", 7, table.ErrAborted), OK, "of 30"},
		{"round trips", "a commit is refused", refusing("doctor", 8, impossible), Failed, "never possible"},
		{"round trips", "a transaction is refused", refusing("doctor", 9, impossible), Failed, "never possible"},
		{"round trips", "an outage", refusing("doctor", 8, unavailable), NotChecked, "not now"},
	} {
		t.Run(c.probe+": "+c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				e, store := examOf(t.Context(), c.lie)
				found := e.check(probeOf(c.probe))
				assert.Equal(t, c.want, found.Verdict, found.Found)
				assert.Contains(t, found.Found, c.says)
				if c.want == Failed || c.want == Warning {
					assert.NotEmpty(t, found.Means)
					assert.NotEmpty(t, found.Do)
				}
				for name := range store.Rows() {
					assert.True(t, beginsWith(name, e.base), name)
				}
			})
		})
	}
}

// What each check does on a table that keeps all promises is right, and costs no attention.
func TestNothingIsFoundWhereNothingIsBroken(t *testing.T) {
	for _, name := range []string{checkPermissions, checkUpdate, checkRelease, "cycle", "free rows", "queue", "clock", "many keys", "group", "round trips"} {
		synctest.Test(t, func(t *testing.T) {
			e, store := examOf(t.Context(), lie{})
			found := e.check(probeOf(name))
			assert.Equal(t, OK, found.Verdict, "%s: %s", name, found.Found)
			assert.NotEmpty(t, found.Found)
			assert.Empty(t, found.Means+found.Do)
			assert.NoError(t, e.gap)
			for name := range store.Rows() {
				assert.False(t, table.IsTicket(name), "a ticket is deleted at once")
			}
		})
	}
}

// An outage says nothing about an assumption. Whichever request of a check it hits, and whether or not the request has been
// applied, the check neither fails nor warns: otherwise, an operator would stop using a database that keeps all promises.
func TestAnOutageIsNotTakenForABrokenPromise(t *testing.T) {
	for _, name := range []string{checkPermissions, checkUpdate, checkRelease, "cycle", "free rows", "queue", "clock", "many keys", "group", "round trips"} {
		for _, applied := range []bool{false, true} {
			for n, over := 1, false; !over; n++ {
				synctest.Test(t, func(t *testing.T) {
					sent := 0
					e, _ := examOf(t.Context(), lie{read: func(_ string, _ table.Keys, rows []table.Row, _ time.Time) ([]table.Row, error) {
						if sent++; sent == n {
							return nil, unavailable
						}
						return rows, nil
					}, commit: func(_ string, writes []table.Write, do func(...table.Write) error) error {
						if sent++; sent != n {
							return do(writes...)
						}
						if applied {
							_ = do(writes...)
						}
						return unavailable
					}})
					found := e.check(probeOf(name))
					if over = sent < n; over {
						assert.Equal(t, OK, found.Verdict, found.Found)
						return
					}
					assert.Equal(t, NotChecked, found.Verdict, "%s, request %d, applied: %v: %s", name, n, applied, found.Found)
					assert.ErrorIs(t, e.gap, unavailable)
				})
			}
		}
	}
}

// The end of a run says nothing about an assumption either, whatever its cause is, and during whichever request it comes: a run that took
// too long has not shown that the database is unfit for locks. The run itself returns the cause.
func TestTheEndOfARunIsNotTakenForABrokenPromise(t *testing.T) {
	for _, cause := range []error{errors.New("the checks took longer than 3m0s"), answer(codes.FailedPrecondition, "the caller's own")} {
		for n, over := 1, false; !over; n += 1 + n/8 {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancelCause(t.Context())
				defer cancel(nil)
				sent := 0
				ends := func() {
					if sent++; sent == n {
						cancel(cause)
					}
				}
				e, _ := examOf(ctx, lie{read: func(_ string, _ table.Keys, rows []table.Row, _ time.Time) ([]table.Row, error) {
					ends()
					return rows, nil
				}, commit: func(_ string, writes []table.Write, do func(...table.Write) error) error {
					ends()
					return do(writes...)
				}})
				for _, name := range []string{checkPermissions, checkUpdate, checkRelease, "cycle", "free rows", "queue", "clock", "many keys", "group", "round trips"} {
					found := e.check(probeOf(name))
					assert.Contains(t, []Verdict{OK, NotChecked}, found.Verdict, "%s, the run ended at request %d: %s", name, n, found.Found)
				}
				over = sent < n
			})
		}
	}
}

// Whatever is not allowed is named, each once, and nothing else is.
func TestEachMissingPermissionIsNamed(t *testing.T) {
	names := []string{"spanner.databases.read (SELECT, for a database role)", "spanner.databases.write (INSERT, for a database role)",
		"spanner.databases.write (UPDATE, for a database role)", "spanner.databases.write (UPDATE, for a database role)",
		"spanner.databases.write (DELETE, for a database role)", "spanner.databases.beginOrRollbackReadWriteTransaction"}
	for set := range 1 << len(names) {
		for _, rest := range []error{nil, unavailable} { // what is allowed may fail for other reasons
			synctest.Test(t, func(t *testing.T) {
				ask := func(step int) error {
					if set>>step&1 == 1 {
						return answer(codes.PermissionDenied, "no")
					}
					return rest
				}
				e, _ := examOf(t.Context(), lie{
					read: func(_ string, _ table.Keys, rows []table.Row, _ time.Time) ([]table.Row, error) { return rows, ask(0) },
					commit: func(step string, writes []table.Write, do func(...table.Write) error) error {
						kind := map[table.Kind]int{table.Insert: 1, table.Update: 2, table.Delete: 4}[writes[0].Kind]
						switch {
						case step == "doctor-transaction":
							kind = 5
						case isFence(writes[0]):
							kind = 3
						}
						if err := ask(kind); err != nil {
							return err
						}
						return do(writes...)
					}})
				missing := map[string]bool{}
				for i, name := range names {
					if set>>i&1 == 1 {
						missing[name] = true
					}
				}
				found := e.check(probeOf(checkPermissions))
				assert.Equal(t, set>>1&1 == 0 && rest == nil, e.inserted, "%b", set)
				switch {
				case len(missing) > 0:
					assert.Equal(t, Failed, found.Verdict)
					assert.Contains(t, found.Found, "missing: "+strings.Join(slices.Sorted(maps.Keys(missing)), ", ")+"; Spanner's error: ")
				case rest != nil:
					assert.Equal(t, NotChecked, found.Verdict)
					assert.ErrorIs(t, e.gap, rest)
				default:
					assert.Equal(t, OK, found.Verdict)
				}
				e.made[checkPermissions] = found
				assert.Equal(t, found.Verdict == OK, e.check(probeOf(checkReplies)).Verdict == OK, "whether replies are as they should be is not known without any")
			})
		}
	}
}

// The lease that the doctor recommends depends on which kind of request takes how long, even if one of them is aborted or
// the network is so slow that it sends only a few.
func TestEachKindOfRequestIsMeasuredByItself(t *testing.T) {
	for _, c := range []struct {
		read, commit, transaction time.Duration
		n                         int
	}{
		{1 * time.Millisecond, 2 * time.Millisecond, 3 * time.Millisecond, 30}, {3 * time.Millisecond, 2 * time.Millisecond, 1 * time.Millisecond, 30},
		{100 * time.Millisecond, 150 * time.Millisecond, 250 * time.Millisecond, 20}, {time.Second, 2 * time.Second, 4 * time.Second, 5},
	} {
		synctest.Test(t, func(t *testing.T) {
			sent := -3
			e, _ := examOf(t.Context(), lie{trip: func(string) {
				if sent++; sent >= 0 { // the first two insert the row and read it
					time.Sleep([]time.Duration{c.read, c.commit, c.transaction}[sent%3])
				}
			}})
			require.Equal(t, OK, e.check(probeOf("round trips")).Verdict)
			trip := func(took time.Duration) RoundTrip { return RoundTrip{P50: took, P99: took, N: c.n} }
			assert.Equal(t, RoundTrips{Read: trip(c.read), Commit: trip(c.commit), Transaction: trip(c.transaction)}, *e.roundTrips)
		})
	}
}

// The clock is compared for as long as the round trips require, and the verdict is right at every rate.
func TestTheClockIsComparedForAsLongAsItTakes(t *testing.T) {
	always := func(trip time.Duration) func(time.Duration) time.Duration {
		return func(time.Duration) time.Duration { return trip }
	}
	// between is the length of a round trip that is long only from the first time to the second.
	between := func(from, to, trip time.Duration) func(time.Duration) time.Duration {
		return func(passed time.Duration) time.Duration {
			if passed < from || passed > to {
				return 0
			}
			return trip
		}
	}
	for _, c := range []struct {
		drift float64 // of Spanner's clock
		trip  func(passed time.Duration) time.Duration
		want  Verdict
		over  time.Duration
	}{
		{0, always(0), OK, time.Second}, {0.005, always(0), OK, time.Second}, {-0.005, always(0), OK, time.Second},
		{0.05, always(0), Failed, time.Second}, {-0.05, always(0), Warning, time.Second},
		{0, always(10 * time.Millisecond), OK, 2 * time.Second}, {0.05, always(10 * time.Millisecond), Failed, 2 * time.Second},
		{0, always(400 * time.Millisecond), Note, longestComparison}, {-0.1, always(400 * time.Millisecond), Warning, longestComparison},
		{0, between(0, 0, 500*time.Millisecond), OK, time.Second}, // only the first request is slow
		{0, between(500*time.Millisecond, 10*time.Second, 100*time.Millisecond), OK, longestComparison},
		{0.05, between(500*time.Millisecond, 10*time.Second, 200*time.Millisecond), Failed, longestComparison},
	} {
		synctest.Test(t, func(t *testing.T) {
			start := time.Now()
			e, store := examOf(t.Context(), lie{trip: func(string) { time.Sleep(c.trip(time.Since(start)) / 2) },
				read: func(_ string, _ table.Keys, rows []table.Row, _ time.Time) ([]table.Row, error) {
					time.Sleep(c.trip(time.Since(start)) / 2)
					return rows, nil
				}})
			store.Ahead = func() time.Duration {
				return time.Hour + time.Duration(c.drift*float64(time.Since(start)))
			}
			found := e.check(probeOf("clock"))
			assert.Equal(t, c.want, found.Verdict, "%+v: %s", c, found.Found)
			assert.InEpsilon(t, float64(c.over), float64(e.clock.Over), 0.25, "%+v: %s", c, found.Found)
			off := time.Hour + time.Duration(c.drift*float64(time.Since(start)))
			assert.InDelta(t, off.Seconds(), e.clock.Offset.Seconds(), 0.001+5*math.Abs(c.drift)*c.trip(time.Hour).Seconds(), "%+v: %s", c, found.Found)
			assert.LessOrEqual(t, math.Abs(e.clock.Drift-c.drift), e.clock.Within+1e-6)
		})
	}
}

// A transaction that is aborted before the commit that should overtake it shows nothing, so the check is not made. It must not be said to
// have succeeded.
func TestATransactionThatIsNotOvertakenProvesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, _ := examOf(t.Context(), lie{})
		do := e.Via
		e.Via = func(ctx context.Context, step string, call func(context.Context, table.Store) error) error {
			if step == "doctor-optimistic" {
				return table.ErrAborted
			}
			return do(ctx, step, call)
		}
		found := e.check(probeOf("optimistic"))
		assert.Equal(t, NotChecked, found.Verdict, found.Found)
		assert.ErrorIs(t, e.gap, table.ErrAborted)
	})
}

// Reads that lag behind the latest commits for a moment do no harm, so no check fails because of them.
func TestReadsThatLagAreAwaited(t *testing.T) {
	for name, step := range map[string]string{"cycle": "observe", "many keys": "doctor-read"} {
		synctest.Test(t, func(t *testing.T) {
			e, _ := examOf(t.Context(), lagging(step, time.Second))
			found := e.check(probeOf(name))
			assert.Equal(t, OK, found.Verdict, "%s: %s", name, found.Found)
		})
	}
}

// lagging shows what the reads of a step have found only after the given time.
func lagging(step string, by time.Duration) lie {
	var shown []table.Row
	var since time.Time // when rows that are not shown yet were first found; zero: there are none
	return lie{read: func(s string, _ table.Keys, rows []table.Row, _ time.Time) ([]table.Row, error) {
		switch {
		case s != step:
			return rows, nil
		case slices.Equal(rows, shown):
		case since.IsZero():
			since = time.Now()
		case time.Since(since) >= by:
			shown, since = rows, time.Time{}
		}
		return shown, nil
	}}
}

// A commit that is visible late is awaited for five seconds, and not after the run has ended.
func TestWhatIsVisibleLateIsAwaited(t *testing.T) {
	for _, c := range []struct {
		after, ends time.Duration
		want        bool
		took        time.Duration
	}{
		{0, time.Hour, true, 0}, {time.Second, time.Hour, true, time.Second}, {4900 * time.Millisecond, time.Hour, true, 4900 * time.Millisecond},
		{time.Minute, time.Hour, false, 5100 * time.Millisecond}, {time.Minute, time.Second, false, 1000 * time.Millisecond},
	} {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), c.ends)
			defer cancel()
			e, _ := examOf(ctx, lie{})
			start := time.Now()
			assert.Equal(t, c.want, e.await(func() bool { return time.Since(start) >= c.after }), "%+v", c)
			assert.InDelta(t, c.took.Seconds(), time.Since(start).Seconds(), 0.11, "%+v", c)
		})
	}
}

// A step that a concurrent transaction has stopped says nothing, so it is tried again. Nothing else is.
func TestOnlyAStepThatWasOvertakenIsTriedAgain(t *testing.T) {
	for _, c := range []struct {
		err  error
		over bool
	}{
		{nil, false}, {table.ErrAborted, true}, {errLostTxn, true},
		{answer(codes.FailedPrecondition, "Cannot commit a transaction after it has been rolled back"), true},
		{answer(codes.FailedPrecondition, "Invalid transaction ID"), true},
		{answer(codes.InvalidArgument, "Invalid transaction ID"), false}, {answer(codes.Unavailable, "transaction"), false},
		{errMissingRow, false}, {errUnknownRow, false}, {impossible, false}, {errors.New("transaction"), false},
	} {
		assert.Equal(t, c.over, overrun(c.err), "%v", c.err)
		n := 0
		assert.Equal(t, c.err, retry(func() error { n++; return c.err }))
		assert.Equal(t, map[bool]int{false: 1, true: 20}[c.over], n, "%v", c.err)
		n = 0
		require.NoError(t, retry(func() error {
			if n++; n < 20 && c.over {
				return c.err
			}
			return nil
		}))
	}
}

// A request in progress is left to finish, so that it is not applied after the cleanup, but no longer than a few seconds.
// After the end of the run, no further request begins.
func TestARequestOutlivesItsRunButNotItsTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		r := newRecorder(ctx, table.Spanner{})
		start := time.Now()
		err := r.do(ctx, "step", func(ctx context.Context, _ table.Store) error {
			cancel()
			<-ctx.Done()
			return ctx.Err()
		})
		assert.ErrorIs(t, err, context.DeadlineExceeded)
		assert.Equal(t, attempt, time.Since(start))
		assert.ErrorIs(t, r.do(t.Context(), "step", func(context.Context, table.Store) error { panic("a request after the end") }), context.Canceled)
	})
	r := newRecorder(t.Context(), table.Spanner{})
	for _, err := range []error{nil, table.ErrNoTimestamp, answer(codes.PermissionDenied, "no"), fmt.Errorf("wrapped: %w", table.ErrNoTimestamp), unavailable, errMissingRow} {
		assert.Equal(t, err, r.do(t.Context(), "step", func(context.Context, table.Store) error { return err }))
	}
	assert.Equal(t, [2]int{2, 1}, [2]int{r.unanswered, r.denied})
}
