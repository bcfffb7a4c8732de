package table_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spindle-lock/spindle/internal/table"
	"github.com/spindle-lock/spindle/internal/testkit/memstore"
)

// between changes the table after a transaction has read it.
type between struct {
	*memstore.Store
	change func()
	runs   int
}

func (b *between) Transact(ctx context.Context, step string, fn func(context.Context, table.Reader) ([]table.Write, error)) (time.Time, error) {
	b.runs++
	return b.Store.Transact(ctx, step, func(ctx context.Context, r table.Reader) ([]table.Write, error) {
		writes, err := fn(ctx, r)
		b.change()
		return writes, err
	})
}

func TestAClaimThatIsAbortedHasBeenOvertaken(t *testing.T) {
	ctx := t.Context()
	store := &memstore.Store{}
	overtaken := &between{Store: store}
	mine := table.Table{Store: overtaken}
	seen, err := mine.LookAtLeases(ctx, time.Now(), "m")
	require.NoError(t, err)
	overtaken.change = func() {
		_, err := table.Table{Store: store}.Claim(ctx, "another", seen...)
		require.NoError(t, err)
	}
	_, err = mine.Claim(ctx, "me", seen...)
	assert.ErrorIs(t, err, table.ErrChanged)
	assert.ErrorIs(t, err, table.ErrAborted)
	assert.Equal(t, 1, overtaken.runs, "a claim is never run again: what it observed is void")
	assert.Equal(t, "another", store.Rows()["m"].Writer)
}

// A claim commits exactly if the lock is as it was observed, and leaves no other lease row. It is confirmed once.
func TestAClaimIsRefusedWhateverHasChangedSinceTheLook(t *testing.T) {
	ctx := t.Context()
	remove := func(key string) table.Write { return table.Write{Kind: table.Delete, Name: key} }
	for _, before := range []string{"free", "released", "held"} {
		for what, change := range map[string]func(tab table.Table, token table.Token) error{
			"nothing":   nil,
			"claimed":   func(tab table.Table, _ table.Token) error { return claimAnew(ctx, tab, "another", false) },
			"confirmed": func(tab table.Table, _ table.Token) error { return claimAnew(ctx, tab, "another", true) },
			"its row is gone after that": func(tab table.Table, _ table.Token) error {
				return errors.Join(claimAnew(ctx, tab, "another", true), tab.Store.Commit(ctx, "operator", []table.Write{remove("m")}))
			},
			"released after that": func(tab table.Table, _ table.Token) error { return claimAndRelease(ctx, tab) },
			"a heartbeat":         func(tab table.Table, token table.Token) error { return tab.Heartbeat(ctx, token, "m") },
			"a release":           func(tab table.Table, token table.Token) error { return tab.Release(ctx, token, "m") },
			"its row is gone": func(tab table.Table, _ table.Token) error {
				return tab.Store.Commit(ctx, "operator", []table.Write{remove("m")})
			},
		} {
			store := &memstore.Store{}
			tab := table.Table{Store: store}
			switch before {
			case "released":
				require.NoError(t, claimAndRelease(ctx, tab))
			case "held":
				require.NoError(t, claimAnew(ctx, tab, "holder", true))
			}
			seen, err := tab.LookAtLeases(ctx, time.Now(), "m")
			require.NoError(t, err)
			if change != nil && change(tab, seen[0].Token) != nil {
				continue // only a lock that is held has heartbeats, and so on
			}
			now, err := tab.LookAtLeases(ctx, time.Now(), "m")
			require.NoError(t, err)
			now[0].At = seen[0].At
			token, err := tab.Claim(ctx, "me", seen...)
			if changed := !assert.ObjectsAreEqual(seen, now); changed {
				assert.ErrorIs(t, err, table.ErrChanged, "%s, then %s", before, what)
				continue
			}
			require.NoError(t, err, "%s, then %s", before, what)
			assert.Len(t, store.Rows(), 1)
			assert.ErrorIs(t, tab.Confirm(ctx, token-1, table.LeaseRecord{Lease: time.Minute}, "m"), table.ErrSuperseded)
			require.NoError(t, tab.Confirm(ctx, token, table.LeaseRecord{Lease: time.Minute}, "m"))
			assert.ErrorIs(t, tab.Confirm(ctx, token, table.LeaseRecord{Lease: time.Minute}, "m"), table.ErrSuperseded)
		}
	}
}

// claimAnew claims m, even if another candidate holds it.
func claimAnew(ctx context.Context, tab table.Table, id string, confirm bool) error {
	seen, err := tab.LookAtLeases(ctx, time.Now(), "m")
	if err != nil {
		return err
	}
	token, err := tab.Claim(ctx, id, seen...)
	if err != nil || !confirm {
		return err
	}
	return tab.Confirm(ctx, token, table.LeaseRecord{Lease: time.Minute}, "m")
}

func claimAndRelease(ctx context.Context, tab table.Table) error {
	if err := claimAnew(ctx, tab, "another", true); err != nil {
		return err
	}
	seen, err := tab.Observe(ctx, "m")
	if err != nil {
		return err
	}
	return tab.Release(ctx, seen[0].Token, "m")
}

// held returns a table in which m is held, after replacing text in its lease row.
func held(t *testing.T, says string) (table.Table, *memstore.Store, table.Token) {
	store := &memstore.Store{}
	tab := table.Table{Store: store}
	seen, err := tab.LookAtLeases(t.Context(), time.Now(), "m")
	require.NoError(t, err)
	token, err := tab.Claim(t.Context(), "holder", seen...)
	require.NoError(t, err)
	require.NoError(t, tab.Confirm(t.Context(), token, table.LeaseRecord{Lease: time.Minute}, "m"))
	require.NoError(t, store.Commit(t.Context(), "operator", []table.Write{
		{Kind: table.Update, Name: table.LeaseKey("m", token), Set: []table.Cell{{Column: table.ColWriter, Value: says}}}}))
	return tab, store, token
}

func TestHoldersAreThoseThatAreMeant(t *testing.T) {
	ctx := t.Context()
	tab, store, _ := held(t, "{")
	all := table.Range{From: "a", To: "z"}
	holders, err := tab.Holders(ctx, all, func(name string) bool { return name == "other" })
	require.NoError(t, err, "what another lock's row says does not matter")
	assert.Empty(t, holders)
	_, err = tab.Holders(ctx, all, func(name string) bool { return name == "m" })
	assert.Error(t, err)
	assert.False(t, errors.Is(err, table.ErrMissing))
	assert.Len(t, store.Rows(), 2)
}

// later is a table that is read at a later time than this machine's clock shows.
type later struct {
	table.Store
	by time.Duration
}

func (s later) Read(ctx context.Context, step string, bound table.Bound, keys table.Keys) ([]table.Row, time.Time, error) {
	rows, at, err := s.Store.Read(ctx, step, bound, keys)
	return rows, at.Add(s.by), err
}

// Whether a lease has expired is judged by Spanner's clock: a semaphore whose machine has a wrong clock would overlook holders.
func TestHoldersAreJudgedBySpannersClock(t *testing.T) {
	_, store, _ := held(t, `{"lease":"1m"}`)
	for by, want := range map[time.Duration]int{-time.Hour: 1, 0: 1, 59 * time.Second: 1, 61 * time.Second: 0} {
		holders, err := table.Table{Store: later{store, by}}.Holders(t.Context(), table.Range{From: "a", To: "z"}, func(string) bool { return true })
		require.NoError(t, err)
		assert.Len(t, holders, want, by)
	}
}

// While a holder is leaving, the holder is shown, and not the successor that it names. Without the lease row, no holder is shown.
func TestAHolderThatLeavesIsTheHolderUntilItHasLeft(t *testing.T) {
	ctx, tab := t.Context(), table.Table{Store: &memstore.Store{}}
	token, err := tab.Claim(ctx, "a", look(t, tab, "m")...)
	require.NoError(t, err)
	require.NoError(t, tab.Confirm(ctx, token, table.LeaseRecord{ID: "a", Lease: time.Minute}, "m"))
	shows := func(when, without string) {
		t.Helper()
		seen, err := tab.Observe(ctx, "m")
		require.NoError(t, err)
		assert.Equal(t, without, seen[0].Holder(), when)
		assert.Equal(t, "a", look(t, tab, "m")[0].Holder(), when)
	}
	shows("held", "a")
	require.NoError(t, tab.Announce(ctx, token, "m"))
	shows("announced", "")
	require.NoError(t, tab.Succeed(ctx, "b", "m", token))
	shows("b is named", "")
}

func TestOnlyAnOwnBareClaimIsDisowned(t *testing.T) {
	ctx, store := t.Context(), &memstore.Store{}
	tab := table.Table{Store: store}
	claim := func(id string) table.Observation {
		seen, err := tab.LookAtLeases(ctx, time.Now(), "mylock")
		require.NoError(t, err)
		_, err = tab.Claim(ctx, id, seen...)
		require.NoError(t, err)
		seen, err = tab.Observe(ctx, "mylock")
		require.NoError(t, err)
		return seen[0]
	}
	bare := claim("a")
	require.ErrorIs(t, tab.Disown(ctx, "b", bare), table.ErrChanged, "another's claim")
	require.NoError(t, tab.Disown(ctx, "a", bare))
	row := store.Rows()["mylock"]
	assert.Zero(t, row.Heartbeat, "it is free at once")
	assert.Equal(t, "a", row.Writer, "and was not released by the last holder")
	require.ErrorIs(t, tab.Disown(ctx, "a", bare), table.ErrChanged, "it is disowned already")

	later := claim("a")
	require.ErrorIs(t, tab.Disown(ctx, "a", bare), table.ErrChanged, "another claim")
	require.NoError(t, tab.Confirm(ctx, later.Token, table.LeaseRecord{Lease: time.Second}, "mylock"))
	require.ErrorIs(t, tab.Disown(ctx, "a", later), table.ErrChanged, "it was confirmed, by a process that knows of it")
	require.ErrorIs(t, tab.Withdraw(ctx, bare.Token, "mylock"), table.ErrSuperseded, "a withdrawal is of its own claim, too")
	valid, err := tab.Valid(ctx, later.Token, "mylock")
	require.NoError(t, err)
	assert.True(t, valid)
}

// A set is claimed and confirmed as a whole. If one lock has changed, the others stay as they are.
func TestOfASetNothingIsTakenIfOneLockIsGone(t *testing.T) {
	ctx := t.Context()
	store := &memstore.Store{}
	tab := table.Table{Store: store}
	seen, err := tab.LookAtLeases(ctx, time.Now(), "m", "n")
	require.NoError(t, err)
	_, err = tab.Claim(ctx, "another", seen[1])
	require.NoError(t, err)
	_, err = tab.Claim(ctx, "me", seen...)
	assert.ErrorIs(t, err, table.ErrChanged)
	assert.NotContains(t, store.Rows(), "m")

	token, err := tab.Claim(ctx, "me", seen[0])
	require.NoError(t, err)
	assert.ErrorIs(t, tab.Confirm(ctx, token, table.LeaseRecord{Lease: time.Second}, "m", "n"), table.ErrSuperseded)
	assert.NotContains(t, store.Rows(), table.LeaseKey("m", token))
}
