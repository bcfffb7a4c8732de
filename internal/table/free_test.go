package table_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spindle-lock/spindle/internal/operator"
	"github.com/spindle-lock/spindle/internal/table"
	"github.com/spindle-lock/spindle/internal/testkit/memstore"
)

const freeLease = 10 * time.Second

// ground is a table with locks that were released with free rows.
type ground struct {
	testing.TB
	store *memstore.Store
	table.Table
}

func released(t testing.TB, names ...string) ground {
	store := &memstore.Store{}
	g := ground{t, store, table.Table{Store: store}}
	for _, name := range names {
		token, err := g.Claim(t.Context(), "first", g.look(name)...)
		require.NoError(t, err)
		require.NoError(t, g.Confirm(t.Context(), token, table.LeaseRecord{Lease: freeLease}, name))
		require.NoError(t, g.ReleaseFree(t.Context(), token, freeLease, name))
	}
	return g
}

// claim returns a claim based on what the table shows now.
func (g ground) claim(nonce string, names ...string) table.FreeClaim {
	g.Helper()
	claim, ok := table.NewFreeClaim(nonce, table.LeaseRecord{Lease: freeLease, Nonce: nonce}, g.look(names...)...)
	require.True(g, ok)
	return claim
}

func (g ground) look(names ...string) []table.Observation {
	g.Helper()
	return look(g, g.Table, names...)
}

func (g ground) outcome(c table.FreeClaim) table.Outcome {
	g.Helper()
	outcome, err := g.Outcome(g.Context(), c)
	require.NoError(g, err)
	return outcome
}

// rowsOf returns the number of lease rows and free rows of a lock.
func (g ground) rowsOf(name string) (n int) {
	for key := range g.store.Rows() {
		if len(key) == len(table.LeaseKey(name, 0)) && key[:len(name)+1] == name+"_" {
			n++
		}
	}
	return n
}

func TestAReleasedLockIsClaimedByOneCommit(t *testing.T) {
	g := released(t, "a", "b")
	before := g.look("a", "b")
	claim := g.claim("me", "a", "b")
	require.NoError(t, g.ClaimFree(t.Context(), claim))
	for i, o := range g.look("a", "b") {
		assert.True(t, o.Confirmed(), "its heartbeat is later than its token")
		assert.Equal(t, claim.Token, o.Token)
		assert.Greater(t, o.Token, before[i].Token, "tokens grow")
		assert.Less(t, o.Token, table.TokenAt(o.Heartbeat), "and are older than their commit")
		require.NotNil(t, o.LeaseRecord)
		assert.Equal(t, freeLease, o.LeaseRecord.Lease)
		assert.Equal(t, 1, g.rowsOf(o.Name), "the free row is consumed")
	}
	require.NoError(t, g.Heartbeat(t.Context(), claim.Token, "a", "b"))
	require.NoError(t, g.ReleaseFree(t.Context(), claim.Token, freeLease, "a", "b"))
	for _, o := range g.look("a", "b") {
		assert.Equal(t, claim.Token+1, o.Token)
		assert.False(t, o.Freed.IsZero())
		assert.Equal(t, 1, g.rowsOf(o.Name))
	}
}

// All claimants that look at the same instant choose the same token, and one of them wins. The others must not mistake
// its lease row for their own.
func TestOneOfThoseThatChooseTheSameTokenWins(t *testing.T) {
	g := released(t, "a")
	seen := g.look("a")
	var claims []table.FreeClaim
	for i := range 3 {
		claim, ok := table.NewFreeClaim("id", table.LeaseRecord{Lease: freeLease, Nonce: fmt.Sprint(i)}, seen...)
		require.True(t, ok)
		claims = append(claims, claim)
		assert.Equal(t, table.Open, g.outcome(claim))
	}
	require.Equal(t, claims[0].Token, claims[1].Token)
	require.NoError(t, g.ClaimFree(t.Context(), claims[1]))
	for i, claim := range claims {
		require.ErrorIs(t, g.ClaimFree(t.Context(), claim), table.ErrMissing, "a free row is used once, also by the same claim")
		assert.Equal(t, i == 1, g.outcome(claim) == table.Won)
		assert.Equal(t, i != 1, g.outcome(claim) == table.Lost)
	}
}

// After any step that changes the state of a released lock, a claim of the earlier state fails, however late it
// arrives.
func TestALateClaimComesToNothing(t *testing.T) {
	ctx := context.Background()
	for name, leave := range map[string]func(g ground, o table.Observation) error{
		"claimed by a transaction": func(g ground, o table.Observation) error {
			_, err := g.Claim(ctx, "elector", o)
			return err
		},
		"claimed by its free row, and released": func(g ground, o table.Observation) error {
			claim := g.claim("other", "a")
			if err := g.ClaimFree(ctx, claim); err != nil {
				return err
			}
			return g.ReleaseFree(ctx, claim.Token, freeLease, "a")
		},
		"retracted": func(g ground, o table.Observation) error { return g.Retract(ctx, g.claim("other", "a")) },
		"pruned": func(g ground, o table.Observation) error {
			_, err := g.Prune(ctx, o)
			return err
		},
		"deleted by hand, and claimed by a transaction": func(g ground, _ table.Observation) error {
			if err := g.store.Commit(ctx, "operator", []table.Write{{Kind: table.Delete, Name: "a"}}); err != nil {
				return err
			}
			_, err := g.Claim(ctx, "elector", g.look("a")...)
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			g := released(t, "a")
			claim := g.claim("late", "a")
			require.NoError(t, leave(g, g.look("a")[0]))
			assert.Equal(t, table.Lost, g.outcome(claim))
			before := g.store.Rows()
			require.ErrorIs(t, g.ClaimFree(ctx, claim), table.ErrMissing)
			require.ErrorIs(t, g.Retract(ctx, claim), table.ErrChanged)
			assert.Equal(t, before, g.store.Rows())
			assert.LessOrEqual(t, g.rowsOf("a"), 1)
		})
	}
}

func TestARetractedClaimLeavesTheLockFreeSinceItWasReleased(t *testing.T) {
	g := released(t, "a", "b")
	before := g.look("a", "b")
	claim := g.claim("me", "a", "b")
	require.NoError(t, g.Retract(t.Context(), claim))
	after := g.look("a", "b")
	assert.Equal(t, before[0].Freed, after[0].Freed)
	assert.Equal(t, before[0].Token+1, after[0].Token)
	assert.Equal(t, before[1].Token, after[1].Token, "one of them is enough")
	require.NoError(t, g.ClaimFree(t.Context(), g.claim("other", "a", "b")))
}

// Rows that were made by hand do not block a lock for long.
func TestARowMadeByHandDoesNotStopAReleasedLock(t *testing.T) {
	ctx := context.Background()
	orphan := func(g ground, token table.Token) {
		require.NoError(g, g.store.Commit(ctx, "operator", []table.Write{{Kind: table.Insert, Name: table.LeaseKey("a", token), Set: []table.Cell{{Column: table.ColWriter, Value: "by hand"}}}}))
	}
	t.Run("where the claim would have its lease row", func(t *testing.T) {
		g := released(t, "a")
		claim := g.claim("me", "a")
		orphan(g, claim.Token)
		require.ErrorIs(t, g.ClaimFree(ctx, claim), table.ErrExists)
		assert.Equal(t, table.Lost, g.outcome(claim), "another look finds another token")
	})
	t.Run("where a retracted claim would leave its free row", func(t *testing.T) {
		g := released(t, "a")
		claim := g.claim("me", "a")
		orphan(g, g.look("a")[0].Token+1)
		require.NoError(t, g.Retract(ctx, claim))
		assert.Equal(t, table.Lost, g.outcome(claim))
		assert.Zero(t, g.look("a")[0].Heartbeat)
	})
	t.Run("where a release would leave its free row", func(t *testing.T) {
		g := released(t, "a")
		claim := g.claim("me", "a")
		require.NoError(t, g.ClaimFree(ctx, claim))
		orphan(g, claim.Token+1)
		require.NoError(t, g.ReleaseFree(ctx, claim.Token, freeLease, "a"))
		assert.Zero(t, g.look("a")[0].Heartbeat)
	})
}

// Locks that can't be claimed through free rows are claimed by a transaction.
func TestOnlyLocksWithFreeRowsAreClaimedWithout(t *testing.T) {
	g := released(t, "a", "b")
	claim, ok := table.NewFreeClaim("id", table.LeaseRecord{Lease: freeLease, Nonce: "1"}, append(g.look("a"), g.look("absent")...)...)
	assert.False(t, ok, "a lock that has no row: %v", claim)

	token := table.TokenAt(time.Now().Add(time.Hour))
	require.NoError(t, g.store.Commit(t.Context(), "operator", []table.Write{
		{Kind: table.Insert, Name: table.LeaseKey("b", token), Set: []table.Cell{{Column: table.ColHeartbeat, Value: table.Now}, {Column: table.ColWriter, Value: `{"lease":"10s","free":true}`}}},
		{Kind: table.Update, Name: "b", Set: []table.Cell{{Column: table.ColToken, Value: token.Time()}}}}))
	claim, ok = table.NewFreeClaim("id", table.LeaseRecord{Lease: freeLease, Nonce: "1"}, g.look("b")...)
	assert.False(t, ok, "a token of the future: %v", claim)

	claimed := g.claim("me", "a")
	require.NoError(t, g.ClaimFree(t.Context(), claimed))
	_, ok = table.NewFreeClaim("id", table.LeaseRecord{Lease: freeLease, Nonce: "1"}, g.look("a")...)
	assert.False(t, ok, "a lock that is held")
	require.NoError(t, g.Release(t.Context(), claimed.Token, "a"))
	_, ok = table.NewFreeClaim("id", table.LeaseRecord{Lease: freeLease, Nonce: "1"}, g.look("a")...)
	assert.False(t, ok, "a lock that was released without a free row")
}

// A claim of several locks is open while all their free rows are there, and lost once one of them is gone, whichever it is. It is won
// as long as one of the locks has the claim's own lease row, even if another lock's lease row was deleted.
func TestTheOutcomeOfAClaimOfSeveralLocksIsThatOfAll(t *testing.T) {
	ctx := t.Context()
	names := []string{"a", "b", "c"}
	for how, change := range map[string]func(g ground, name string){
		"claimed":   func(g ground, name string) { _, err := g.Claim(ctx, "other", g.look(name)...); require.NoError(g, err) },
		"held":      func(g ground, name string) { require.NoError(g, g.ClaimFree(ctx, g.claim("other", name))) },
		"retracted": func(g ground, name string) { require.NoError(g, g.Retract(ctx, g.claim("other", name))) },
		"pruned":    func(g ground, name string) { _, err := g.Prune(ctx, g.look(name)...); require.NoError(g, err) },
	} {
		for changed := range 1 << len(names) {
			g := released(t, names...)
			claim := g.claim("me", names...)
			for i, name := range names {
				if changed>>i&1 == 1 {
					change(g, name)
				}
			}
			if changed != 0 {
				assert.Equal(t, table.Lost, g.outcome(claim), "%03b are %s", changed, how)
				continue
			}
			assert.Equal(t, table.Open, g.outcome(claim))
			require.NoError(t, g.ClaimFree(ctx, claim))
			for gone := range 1 << len(names) {
				rows, kept := g.store.Rows(), table.Table{Store: &memstore.Store{}}
				for key, row := range rows {
					if _, lock := table.RoleOf(key); gone>>slices.Index(names, lock)&1 == 0 {
						require.NoError(t, kept.Store.Commit(ctx, "copy", []table.Write{{Kind: table.Insert, Name: key, Set: []table.Cell{
							{Column: table.ColHeartbeat, Value: row.Heartbeat}, {Column: table.ColToken, Value: row.Token}, {Column: table.ColWriter, Value: row.Writer}}}}))
					}
				}
				outcome, err := kept.Outcome(ctx, claim)
				require.NoError(t, err)
				assert.Equal(t, gone == 1<<len(names)-1, outcome != table.Won, "%03b are gone", gone)
			}
		}
	}
}

// A process that uses the steps of an election sees the same as without free rows.
func TestAFreeRowIsNoHolder(t *testing.T) {
	g := released(t, "a")
	listed, err := operator.ListOne(t.Context(), g.Table, "a")
	require.NoError(t, err)
	assert.Equal(t, operator.Released, listed.State())
	busy, _, err := operator.List(t.Context(), g.Table, "", false)
	require.NoError(t, err)
	assert.Empty(t, busy, "nobody holds it, and nothing is wrong")
	for _, row := range g.store.Rows() {
		assert.True(t, table.Keys{All: true, Busy: true}.Skips(row), "no row is kept of idle locks: %v", row)
	}

	require.NoError(t, g.store.Commit(t.Context(), "operator", []table.Write{{Kind: table.Delete, Name: "a"}}))
	seen := g.look("a")
	assert.Empty(t, seen[0].OrphanLeases)
	assert.Len(t, seen[0].Orphans, 1)
	listed, err = operator.ListOne(t.Context(), g.Table, "a")
	require.NoError(t, err)
	assert.Equal(t, operator.Free, listed.State())
	_, err = g.Claim(t.Context(), "elector", seen...)
	require.NoError(t, err)
	assert.Zero(t, g.rowsOf("a"))
}

// A claim through free rows chooses a token that is larger than all earlier ones of its locks, and a second in the past
// unless a lock was released more recently. Spanner refuses tokens of the future, and a token that is not larger might
// be that of a holder.
func TestAChosenTokenIsLargerThanAllAndAsOldAsPossible(t *testing.T) {
	at := time.Date(2026, 11, 29, 8, 0, 0, 0, time.UTC)
	ages := []time.Duration{time.Hour, time.Second + 2*time.Microsecond, time.Second + time.Microsecond, time.Second, time.Second - time.Microsecond, 2 * time.Microsecond, time.Microsecond, 0, -time.Microsecond, -time.Hour}
	free := func(age time.Duration) table.Observation {
		return table.Observation{Name: "m", At: at, Exists: true, Token: table.TokenAt(at.Add(-age)), Freed: at.Add(-time.Minute)}
	}
	record := table.LeaseRecord{Lease: freeLease, Nonce: "n"}
	for _, first := range ages {
		for _, second := range ages {
			claim, ok := table.NewFreeClaim("me", record, free(first), free(second))
			youngest := min(first, second)
			assert.Equal(t, youngest > 0, ok, "%v, %v", first, second)
			if ok {
				assert.Equal(t, table.TokenAt(at.Add(-min(youngest-time.Microsecond, time.Second))), claim.Token, "%v, %v", first, second)
				assert.Equal(t, []string{"m", "m"}, claim.Names())
			}
		}
	}
	held := free(time.Hour)
	held.Freed = time.Time{}
	for what, seen := range map[string][]table.Observation{"no lock": {}, "a held one": {held}, "a held one before": {held, free(time.Hour)}, "a held one behind": {free(time.Hour), held}} {
		claim, ok := table.NewFreeClaim("me", record, seen...)
		assert.False(t, ok, what)
		assert.Empty(t, claim, what)
	}
	_, ok := table.NewFreeClaim("me", table.LeaseRecord{Lease: freeLease}, free(time.Hour))
	assert.False(t, ok, "without a nonce, another's lease row would be taken for its own")
}
