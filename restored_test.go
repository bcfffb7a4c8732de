//go:build unix

package spindle_test

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"cloud.google.com/go/spanner"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spindle-lock/spindle"
	"github.com/spindle-lock/spindle/group"
	"github.com/spindle-lock/spindle/lock"
	"github.com/spindle-lock/spindle/spindletest"
)

// The tests in this file set the lock table back to an earlier state, as an import of old rows does. The rows that a
// restored database contains are the same. docs/runbook.md#a-database-restored-from-a-backup says what to do, and what
// holds if the rows change under running processes.

// backup is the rows of a lock table at one time, in the order of their names.
type backup []*spanner.Mutation

func backUp(t testing.TB, db *spindletest.Database) (b backup) {
	t.Helper()
	columns := []string{"name", "heartbeat", "token", "writer"}
	err := db.Client.Single().Read(t.Context(), db.Table, spanner.AllKeys(), columns).Do(func(r *spanner.Row) error {
		var name string
		var heartbeat, token spanner.NullTime
		var writer spanner.NullString
		if err := r.Columns(&name, &heartbeat, &token, &writer); err != nil {
			return err
		}
		b = append(b, spanner.InsertOrUpdate(db.Table, columns, []any{name, heartbeat, token, writer}))
		return nil
	})
	require.NoError(t, err)
	require.NotEmpty(t, b)
	return b
}

// restore replaces all rows of the table by the rows of the backup.
func (b backup) restore(t testing.TB, db *spindletest.Database) {
	t.Helper()
	all := append([]*spanner.Mutation{spanner.Delete(db.Table, spanner.AllKeys())}, b...)
	_, err := db.Client.Apply(t.Context(), all, spanner.ApplyAtLeastOnce())
	require.NoError(t, err)
}

// fenced checks that a write under an old token is refused.
func fenced(t testing.TB, l *standing, token spindle.Token) {
	t.Helper()
	_, err := l.Apply(t.Context(), token, write(-1))
	assert.ErrorIs(t, err, spindle.ErrFenced)
}

// unhurried is a lease that no term of these tests loses, however slow the machine is. No test waits for it to pass: it
// is longer than patience, so a test fails if something happens only after it.
const unhurried = 10 * time.Minute

// twoTerms are a term that is in a backup, and a term that began after it.
type twoTerms struct {
	rows                  backup
	first, second         *standing
	inBackup, afterBackup spindle.Token
}

// aroundABackup makes a backup under the first term, stops its leader, and starts the leader of the second term.
func aroundABackup(t testing.TB, db *spindletest.Database) (terms twoTerms) {
	t.Helper()
	terms.first = stand(t, connect(t, db), db, spindle.WithLease(2*lease))
	eventually(t, "election", terms.first.has)
	terms.inBackup = terms.first.token()
	terms.rows = backUp(t, db)
	ended(t, terms.first)
	terms.second = stand(t, connect(t, db), db, spindle.WithLease(2*lease))
	eventually(t, "a later term", terms.second.has)
	terms.afterBackup = terms.second.token()
	return terms
}

// ended ends the process of l. A busy machine may release a lock with a short lease too late. It then expires.
func ended(t testing.TB, l *standing) {
	t.Helper()
	if err := l.stop(); err != nil {
		require.ErrorContains(t, err, "left to expire")
	}
}

// The guarantee of the runbook's procedure: all processes are stopped before the old rows come back, and started after
// it. No lease of the past is waited for, the tokens grow, and every earlier term is over.
func TestARestoredTableHasALeaderAtOnceAndEveryEarlierTermIsOver(t *testing.T) {
	onTheEmulator(t)
	db := spindletest.New(t, spindletest.WithDDL(registerDDL))
	terms := aroundABackup(t, db)
	ended(t, terms.second)
	time.Sleep(2 * lease) // a backup is older than a lease

	terms.rows.restore(t, db)
	fenced(t, terms.second, terms.afterBackup)
	long := spindle.WithLease(unhurried)
	a, b := stand(t, connect(t, db), db, long), stand(t, connect(t, db), db, long)
	eventually(t, "a leader, for whom no lease has to pass", func() bool { return a.has() || b.has() })
	leader := a
	if b.has() {
		leader = b
	}
	oneHolder(t, a, b)
	assert.Greater(t, leader.token(), terms.afterBackup)
	fenced(t, terms.first, terms.inBackup)
	fenced(t, terms.second, terms.afterBackup)
	_, err := leader.Apply(t.Context(), leader.token(), write(1))
	assert.NoError(t, err)
}

// oneHolder checks for a lease that a and b do not have the lock at the same time.
func oneHolder(t testing.TB, a, b *standing) {
	t.Helper()
	for until := time.Now().Add(lease); time.Now().Before(until); time.Sleep(time.Millisecond) {
		token := a.token()
		require.False(t, token != 0 && b.has() && a.token() == token, "two holders")
	}
}

// A term that was valid in the backup is valid again. If its process has not ended, its fenced writes commit until the
// next claim. This is why the runbook deletes the rows of leases.
func TestATermOfTheBackupIsValidAgainUntilTheNextClaimOrUntilItsRowIsDeleted(t *testing.T) {
	onTheEmulator(t)
	db := spindletest.New(t, spindletest.WithDDL(registerDDL))
	old := stand(t, connect(t, db), db, spindle.WithLease(unhurried))
	eventually(t, "election", old.has)
	token := old.token()
	rows := backUp(t, db)
	require.NoError(t, old.stop())
	fenced(t, old, token)

	rows.restore(t, db)
	_, err := old.Apply(t.Context(), token, write(1))
	require.NoError(t, err)

	deleted, err := db.Client.PartitionedUpdate(t.Context(), spanner.NewStatement(
		"DELETE FROM "+db.Table+" WHERE name NOT LIKE '%!done'"))
	require.NoError(t, err)
	assert.EqualValues(t, 2, deleted)
	fenced(t, old, token)
	next := stand(t, connect(t, db), db, spindle.WithLease(unhurried))
	eventually(t, "the next term, for which no lease has to pass", next.has)
	assert.Greater(t, next.token(), token)
}

// If old rows come back under running processes, two processes can have the lock until the old holder's next heartbeat
// is refused, or until its deadline. Then there is one holder again. A term of after the backup writes nothing from the
// restore on.
func TestOldRowsThatComeBackUnderAHolderEndItsTerm(t *testing.T) {
	onTheEmulator(t)
	db := spindletest.New(t, spindletest.WithDDL(registerDDL))
	terms := aroundABackup(t, db)
	other := stand(t, connect(t, db), db)
	eventually(t, "a follower", func() bool { return other.saw(spindle.LeaderSeen) })
	time.Sleep(2 * lease) // a backup is older than a lease

	terms.rows.restore(t, db)
	fenced(t, terms.second, terms.afterBackup)
	var both time.Time // since when two processes have the lock
	stepsDown(t, lease, func() bool {
		if both.IsZero() && other.has() {
			both = time.Now()
		}
		return terms.second.token() == terms.afterBackup
	})
	if !both.IsZero() {
		t.Logf("two holders for %.2f leases", time.Since(both).Seconds()/lease.Seconds())
	}
	oneHolder(t, terms.second, other)
	eventually(t, "a later term", func() bool { return max(terms.second.token(), other.token()) > terms.afterBackup })
	fenced(t, terms.first, terms.inBackup)
	fenced(t, terms.second, terms.afterBackup)
	_, err := db.Client.Single().ReadRow(t.Context(), "register", spanner.Key{1}, []string{"value"})
	assert.ErrorIs(t, err, spanner.ErrRowNotFound, "nothing was written through the fence")
}

// A mutex chooses its token itself if the last holder released it. The token is larger than any of before the restore,
// if the last claim before the restore is a second old.
func TestTheTokensOfAMutexGrowAcrossARestore(t *testing.T) {
	onTheEmulator(t)
	db := spindletest.New(t, spindletest.WithDDL(registerDDL))
	m := lock.New(db.Client, db.Table, "invoices", spindle.WithLease(unhurried))
	require.NoError(t, m.Lock(t.Context()))
	require.NoError(t, m.Unlock(t.Context()))
	rows := backUp(t, db)
	require.NoError(t, m.Lock(t.Context()))
	last := m.Token()
	require.NoError(t, m.Unlock(t.Context()))
	time.Sleep(1100 * time.Millisecond) // more than the second

	rows.restore(t, db)
	next := lock.New(db.Client, db.Table, "invoices", spindle.WithLease(unhurried))
	require.NoError(t, next.Lock(t.Context()))
	assert.Greater(t, next.Token(), last)
	_, err := next.Apply(t.Context(), write(1))
	assert.NoError(t, err)
	require.NoError(t, next.Unlock(t.Context()))
}

// A key that was done after the backup is done again, unless it is recorded by a run of nothing first.
func TestWorkThatWasDoneAfterTheBackupRunsAgainUnlessItIsRecordedFirst(t *testing.T) {
	onTheEmulator(t)
	db := spindletest.New(t, spindletest.WithDDL(registerDDL))
	var runs []string
	do := func(key string, work bool) bool {
		ran, err := lock.NewOnce(db.Client, db.Table, "monthly", spindle.WithLease(unhurried)).Do(t.Context(), lock.KeyOf(key), func(_ context.Context, r lock.Run) error {
			if work {
				runs = append(runs, r.Key())
			}
			return nil
		})
		require.NoError(t, err)
		return ran
	}
	require.True(t, do("2026-09", true))
	rows := backUp(t, db)
	require.True(t, do("2026-10", true))
	require.False(t, do("2026-10", true))

	rows.restore(t, db)
	require.True(t, do("2026-10", true), "the table does not know that it was done")
	assert.Equal(t, []string{"2026-09", "2026-10", "2026-10"}, runs)

	rows.restore(t, db)
	require.True(t, do("2026-10", false))
	require.False(t, do("2026-10", true))
	assert.Len(t, runs, 3)
}

// tokensOf returns the tokens of the partitions that members have, and whether each of n partitions is at one of them.
func tokensOf(n int, members ...*group.Group) (map[string]spindle.Token, bool) {
	tokens := map[string]spindle.Token{}
	held := 0
	for _, m := range members {
		for _, p := range m.Held() {
			held++
			tokens[p.Name()] = p.Token()
		}
	}
	return tokens, held == n && len(tokens) == n
}

// A group whose rows are set back under its members has each partition at one member again, under a larger token, and
// no write of a term of after the backup commits.
func TestAGroupIsWholeAgainAfterItsRowsWereSetBack(t *testing.T) {
	const partitions = 8
	onTheEmulator(t)
	db := spindletest.New(t, spindletest.WithDDL(registerDDL))
	member := func(id string) (*group.Group, func()) {
		g := group.New(connect(t, db), db.Table, "orders", group.Numbered(partitions), spindle.WithID(id), spindle.WithLease(5*lease),
			spindle.WithLogger(slog.New(slog.DiscardHandler)))
		ctx, cancel := context.WithCancel(context.Background())
		done := make(chan error, 1)
		require.NoError(t, g.Run(ctx, done))
		stopped := false
		stop := func() {
			if cancel(); !stopped {
				stopped = true
				if err := <-done; err != nil {
					assert.ErrorContains(t, err, "left to expire", "a busy machine can be too slow to release")
				}
			}
		}
		t.Cleanup(stop)
		return g, stop
	}
	a, stopA := member("a")
	b, _ := member("b")
	eventually(t, "shares", func() bool { return len(a.Held()) == partitions/2 && len(b.Held()) == partitions/2 })
	rows := backUp(t, db)
	inBackup, _ := tokensOf(partitions, a, b)
	stopped := a.Held()
	stopA()
	c, _ := member("c")
	eventually(t, "shares again", func() bool { return len(b.Held()) == partitions/2 && len(c.Held()) == partitions/2 })
	before, _ := tokensOf(partitions, b, c)
	afterBackup := c.Held()

	rows.restore(t, db)
	for _, p := range afterBackup {
		_, err := p.Apply(t.Context(), write(-1))
		assert.ErrorIs(t, err, spindle.ErrFenced, "partition %s", p.Name())
	}
	eventually(t, "all partitions, in later terms unless the backup has the same term", func() bool {
		now, ok := tokensOf(partitions, b, c)
		for name, token := range before {
			ok = ok && (now[name] > token || now[name] == inBackup[name])
		}
		return ok
	})
	for _, p := range stopped {
		_, err := p.Apply(t.Context(), write(-1))
		assert.ErrorIs(t, err, spindle.ErrFenced, "partition %s", p.Name())
	}
	for until := time.Now().Add(2 * lease); time.Now().Before(until); time.Sleep(10 * time.Millisecond) {
		for _, p := range b.Held() {
			if has, _ := c.Has(p.Name()); has {
				_, token := b.Has(p.Name())
				require.NotEqual(t, p.Token(), token, "partition %s has two holders", p.Name())
			}
		}
	}
}
