package operator_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spindle-lock/spindle/internal/operator"
	"github.com/spindle-lock/spindle/internal/table"
	"github.com/spindle-lock/spindle/internal/testkit/memstore"
)

func release(t *testing.T, tab table.Table, name string) {
	t.Helper()
	require.NoError(t, tab.Release(t.Context(), hold(t, tab, name, time.Hour), name))
}

// prune deletes the locks with these ages, and returns their names.
func prune(t *testing.T, tab table.Table, ages operator.Ages) (names []string) {
	t.Helper()
	for seen, err := range operator.Prunable(t.Context(), tab, ages) {
		require.NoError(t, err)
		n, err := tab.Prune(t.Context(), seen...)
		require.NoError(t, err)
		require.Len(t, seen, n)
		for _, o := range seen {
			names = append(names, o.Name)
		}
	}
	return names
}

// The age is the time since the release, however long the term was, and only the rows of released locks are deleted.
func TestOnlyLocksThatWereReleasedLongAgoArePruned(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &memstore.Store{}
		tab := table.Table{Store: store}
		release(t, tab, "old")
		require.NoError(t, tab.ReleaseFree(t.Context(), hold(t, tab, "mutex", time.Hour), time.Hour, "mutex"))
		require.NoError(t, store.Commit(t.Context(), "by hand", []table.Write{{Kind: table.Put, Name: "nightly!done", Set: []table.Cell{{Column: table.ColToken, Value: table.Now}}}}))
		release(t, tab, "withdrawn")
		withdrawn := claim(t, tab, "withdrawn")
		long, quick := hold(t, tab, "long", time.Hour), hold(t, tab, "quick", time.Hour)
		hold(t, tab, "held", 24*time.Hour)
		hold(t, tab, "expired", time.Second)
		claim(t, tab, "bare")
		release(t, tab, "odd") // and a lease row is added by hand, as to the next one
		release(t, tab, "own")
		for _, key := range []string{table.LeaseKey("odd", 17), table.LeaseKey("own", table.TokenAt(store.Rows()["own"].Token))} {
			require.NoError(t, store.Commit(t.Context(), "test", []table.Write{{Kind: table.Insert, Name: key,
				Set: []table.Cell{{Column: table.ColHeartbeat, Value: table.Now}, {Column: table.ColWriter, Value: `{"lease":"1s"}`}}}}))
		}
		time.Sleep(time.Hour - time.Second)
		assert.Empty(t, prune(t, tab, operator.Ages{Released: time.Hour}))
		time.Sleep(time.Second + time.Millisecond)
		require.NoError(t, tab.Withdraw(t.Context(), withdrawn, "withdrawn"))
		require.NoError(t, tab.Release(t.Context(), long, "long"))
		require.NoError(t, tab.ReleaseFree(t.Context(), quick, time.Hour, "quick"))
		before := store.Rows()

		assert.Equal(t, []string{"mutex", "old"}, prune(t, tab, operator.Ages{Released: time.Hour}))
		for name := range before {
			if _, lock := table.RoleOf(name); lock == "mutex" || lock == "old" {
				delete(before, name)
			}
		}
		assert.Equal(t, before, store.Rows())

		time.Sleep(time.Hour + time.Millisecond)
		assert.Equal(t, []string{"long", "quick", "withdrawn"}, prune(t, tab, operator.Ages{Released: time.Hour}))
	})
}

// contended aborts each transaction that touches the lock "busy".
type contended struct{ table.Store }

func (c contended) Transact(ctx context.Context, step string, fn func(context.Context, table.Reader) ([]table.Write, error)) (time.Time, error) {
	return c.Store.Transact(ctx, step, func(ctx context.Context, r table.Reader) ([]table.Write, error) {
		writes, err := fn(ctx, r)
		for _, w := range writes {
			if w.Name == "busy" {
				return nil, table.ErrAborted
			}
		}
		return writes, err
	})
}

// A lock that other candidates compete for does not prevent the rest of its batch from being pruned.
func TestPruneGoesOnBesideALockThatIsContended(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &memstore.Store{}
		tab := table.Table{Store: store}
		for i := range 20 {
			release(t, tab, fmt.Sprint(i))
		}
		release(t, tab, "busy")
		for seen, err := range operator.Prunable(t.Context(), table.Table{Store: contended{store}}, operator.Ages{}) {
			require.NoError(t, err)
			n, err := table.Table{Store: contended{store}}.Prune(t.Context(), seen...)
			require.NoError(t, err)
			assert.Equal(t, 20, n)
		}
		assert.Len(t, store.Rows(), 1)
	})
}

// The rows of a dead holder are deleted a long time after its lease has expired, and no other rows are deleted with
// them.
func TestOnlyLocksThatExpiredLongAgoArePruned(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &memstore.Store{}
		tab := table.Table{Store: store}
		says := func(row, text string) {
			t.Helper()
			require.NoError(t, store.Commit(t.Context(), "by hand", []table.Write{{Kind: table.Put, Name: row, Set: []table.Cell{{Column: table.ColWriter, Value: text}}}}))
		}
		hold(t, tab, "a/brief", time.Second)
		day := hold(t, tab, "a/day", 24*time.Hour)
		claim(t, tab, "a/bare")
		noLease := hold(t, tab, "a/no-lease-row", time.Second)
		require.NoError(t, store.Commit(t.Context(), "by hand", []table.Write{{Kind: table.Delete, Name: table.LeaseKey("a/no-lease-row", noLease)}}))
		hold(t, tab, "done", time.Second)
		says("done!done", `{"done":"1"}`)
		says(table.LeaseKey("garbled", hold(t, tab, "garbled", time.Second)), "?")
		says(table.LeaseKey("newer", hold(t, tab, "newer", time.Second)), `{"v":2,"lease":"1s"}`)
		hold(t, tab, "loose", time.Second)
		says(table.LeaseKey("loose", 17), `{"lease":"1s"}`)
		orphan := hold(t, tab, "orphan", time.Second)
		require.NoError(t, store.Commit(t.Context(), "by hand", []table.Write{{Kind: table.Delete, Name: "orphan"}}))
		hold(t, tab, table.SlotName("g", 0), time.Second)
		hold(t, tab, table.PartitionName("g", "p"), time.Second)
		alive := hold(t, tab, "alive", time.Second)

		ages := operator.Ages{Released: time.Hour, Expired: 24 * time.Hour}
		time.Sleep(24*time.Hour - time.Millisecond)
		assert.Empty(t, prune(t, tab, ages))
		require.NoError(t, tab.Heartbeat(t.Context(), alive, "alive"))
		time.Sleep(time.Second + 2*time.Millisecond)
		assert.Empty(t, prune(t, tab, operator.Ages{Released: time.Hour}), "only if that is asked for")
		assert.Equal(t, []string{"a/bare", "a/brief", "a/no-lease-row", "done"}, prune(t, tab, ages))
		assert.Contains(t, store.Rows(), "a/day", "its lease has just ended")
		time.Sleep(24*time.Hour - time.Second)
		assert.Equal(t, []string{"a/day"}, prune(t, tab, ages), "its lease ended a day ago")
		assert.NotContains(t, store.Rows(), table.LeaseKey("a/day", day))
		time.Sleep(time.Second)
		assert.Equal(t, []string{"alive"}, prune(t, tab, ages))

		time.Sleep(1000 * time.Hour)
		assert.Empty(t, prune(t, tab, ages))
		rows := store.Rows()
		for _, name := range []string{"done!done", "garbled", "newer", "loose", table.LeaseKey("loose", 17), table.LeaseKey("orphan", orphan), table.SlotName("g", 0), table.PartitionName("g", "p")} {
			assert.Contains(t, rows, name)
		}
		assert.Len(t, rows, 1+2+2+3+1+2+2)
	})
}

// A holder that was silent for all that time finds no rows of its term, whatever it sends and whenever it sent it.
func TestATermThatIsPrunedIsOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &memstore.Store{}
		tab := table.Table{Store: store}
		held, claimed := hold(t, tab, "held", time.Second), claim(t, tab, "claimed")
		time.Sleep(25 * time.Hour)
		seen, err := tab.Observe(t.Context(), "held")
		require.NoError(t, err)
		require.Len(t, prune(t, tab, operator.Ages{Expired: 24 * time.Hour}), 2)
		require.Empty(t, store.Rows())
		for step, late := range map[string]func() error{
			"heartbeat": func() error { return tab.Heartbeat(t.Context(), held, "held") },
			"release":   func() error { return tab.Release(t.Context(), held, "held") },
			"finish":    func() error { return tab.Finish(t.Context(), held, 0, "held", table.Due{Key: "42"}, "me") },
			"announce":  func() error { return tab.Announce(t.Context(), held, "held") },
			"ask":       func() error { return tab.Ask(t.Context(), table.ByOperator, "held", held) },
			"confirm": func() error {
				return tab.Confirm(t.Context(), claimed, table.LeaseRecord{Lease: time.Second}, "claimed")
			},
			"withdraw": func() error { return tab.Withdraw(t.Context(), claimed, "claimed") },
		} {
			assert.ErrorIs(t, late(), table.ErrSuperseded, step)
		}
		_, err = tab.Claim(t.Context(), "late", seen...)
		assert.ErrorIs(t, err, table.ErrChanged, "a claim of what was seen before")
		require.Empty(t, store.Rows())
		assert.Greater(t, hold(t, tab, "held", time.Second), held)
	})
}

// A holder whose heartbeat, or a claimant whose confirmation, is committed just before the prune keeps its rows.
func TestPruneLeavesALockThatComesBackMeanwhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &memstore.Store{}
		tab := table.Table{Store: store}
		beats, confirmed, taken := hold(t, tab, "beats", time.Second), claim(t, tab, "confirmed"), hold(t, tab, "taken", time.Second)
		hold(t, tab, "silent", time.Second)
		time.Sleep(25 * time.Hour)
		for seen, err := range operator.Prunable(t.Context(), tab, operator.Ages{Expired: 24 * time.Hour}) {
			require.NoError(t, err)
			require.Len(t, seen, 4)
			require.NoError(t, tab.Heartbeat(t.Context(), beats, "beats"))
			require.NoError(t, tab.Confirm(t.Context(), confirmed, table.LeaseRecord{Lease: time.Second}, "confirmed"))
			require.Greater(t, hold(t, tab, "taken", time.Second), taken)
			before := store.Rows()
			n, err := tab.Prune(t.Context(), seen...)
			require.NoError(t, err)
			assert.Equal(t, 1, n)
			after := store.Rows()
			assert.Len(t, after, len(before)-2)
			for name, row := range after {
				assert.Equal(t, before[name], row)
			}
			assert.NotContains(t, after, "silent")
			n, err = tab.Prune(t.Context(), seen...)
			require.NoError(t, err)
			assert.Zero(t, n)
		}
	})
}

func TestPruneRefusesAgesThatAreNotSafe(t *testing.T) {
	assert.NoError(t, operator.Ages{}.Check())
	assert.NoError(t, operator.Ages{Expired: 24 * time.Hour}.Check())
	assert.ErrorContains(t, operator.Ages{Expired: 24*time.Hour - 1}.Check(), "at least 24h0m0s, the longest lease")
	assert.ErrorContains(t, operator.Ages{Expired: -1}.Check(), "at least 24h0m0s")
	assert.ErrorContains(t, operator.Ages{Released: -1}.Check(), "must not be negative")
}

// The holder of a lock that an operator has released can ask, within its lease, who released it. If both that row and
// the lock were deleted, the holder would take the next claim as proof that it released the lock itself.
func TestALockThatWasBrokenIsPrunedAfterTheLongestLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tab := table.Table{Store: &memstore.Store{}}
		token := hold(t, tab, "lock", time.Hour)
		require.NoError(t, tab.Break(t.Context(), token, "lock"))
		time.Sleep(time.Minute)
		assert.Empty(t, prune(t, tab, operator.Ages{}))
		claim(t, tab, "lock")
		own, err := tab.GivenBack(t.Context(), token, "", "lock")
		require.NoError(t, err)
		assert.False(t, own, "an operator released it")

		release(t, tab, "lock")
		time.Sleep(table.MaxLease)
		assert.Equal(t, []string{"lock"}, prune(t, tab, operator.Ages{}))
	})
}

// A caller can stop between two batches, and nothing is read after an error.
func TestPruneGoesOnlyAsFarAsItsCaller(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &memstore.Store{}
		for i := range 500 {
			release(t, table.Table{Store: store}, fmt.Sprint("lock", i))
		}
		time.Sleep(time.Hour)
		link := &memstore.Link{Store: store}
		tab := table.Table{Store: link}
		next, stop := iter.Pull2(operator.Prunable(t.Context(), tab, operator.Ages{}))
		seen, err, _ := next()
		require.NoError(t, err)
		require.NotEmpty(t, seen)
		stop()
		assert.Equal(t, 2, link.Counts()["prune"], "all rows, and the first batch")

		reads, failed := 0, errors.New("no")
		link.Refuse(func(string) error {
			if reads++; reads > 1 {
				return failed
			}
			return nil
		})
		var errs []error
		for _, err := range operator.Prunable(t.Context(), tab, operator.Ages{}) {
			errs = append(errs, err)
		}
		assert.Equal(t, []error{failed}, errs)
	})
}

// Prune finds each lock once, whichever rows are the last of a page, and however many pages have nothing to prune.
func TestPruneReadsEveryPage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tab := table.Table{Store: &memstore.Store{}}
		names := []string{"a", "a_1", "b", "c", "z"}
		for _, name := range names {
			release(t, tab, name)
		}
		for i := range 8 {
			hold(t, tab, fmt.Sprint("held-", i), time.Hour)
		}
		for rows := 1; rows <= 4; rows++ {
			operator.PagesOf(t, rows)
			var found []string
			for seen, err := range operator.Prunable(t.Context(), tab, operator.Ages{}) {
				require.NoError(t, err)
				for _, o := range seen {
					found = append(found, o.Name)
				}
			}
			assert.Equal(t, names, found, "%d rows in a page", rows)
		}
	})
}

// Between its two reads, a lock that is old enough to be pruned can be claimed again. It is then in use.
func TestWhatIsInUseAgainIsNotPruned(t *testing.T) {
	for what, change := range map[string]func(t *testing.T, tab table.Table){
		"claimed":        func(t *testing.T, tab table.Table) { claim(t, tab, "l") },
		"held":           func(t *testing.T, tab table.Table) { hold(t, tab, "l", time.Hour) },
		"held and lost":  func(t *testing.T, tab table.Table) { drop(t, tab, table.LeaseKey("l", hold(t, tab, "l", time.Hour))) },
		"released again": func(t *testing.T, tab table.Table) { release(t, tab, "l") },
		"released, with row": func(t *testing.T, tab table.Table) {
			require.NoError(t, tab.ReleaseFree(t.Context(), hold(t, tab, "l", time.Hour), time.Hour, "l"))
		},
		"broken": func(t *testing.T, tab table.Table) {
			require.NoError(t, tab.Break(t.Context(), hold(t, tab, "l", time.Hour), "l"))
		},
		"its row was deleted": func(t *testing.T, tab table.Table) { drop(t, tab, "l") },
	} {
		synctest.Test(t, func(t *testing.T) {
			store := &memstore.Store{}
			tab := table.Table{Store: store}
			release(t, tab, "k")
			release(t, tab, "l")
			time.Sleep(100 * time.Hour)
			reads := 0
			var found []string
			for seen, err := range operator.Prunable(t.Context(), table.Table{Store: table.Via(func(ctx context.Context, _ string, call func(context.Context, table.Store) error) error {
				if reads++; reads == 2 {
					change(t, tab)
				}
				return call(ctx, store)
			})}, operator.Ages{Released: time.Hour, Expired: 48 * time.Hour}) {
				require.NoError(t, err)
				for _, o := range seen {
					found = append(found, o.Name)
				}
			}
			assert.Equal(t, []string{"k"}, found, what)
		})
	}
}

// Prune says how many locks it has deleted, also if it then fails or finds locks that others compete for, and leaves no row of these:
// whoever adds the numbers up after an error counts each lock once.
func TestPruneCountsWhatItHasDeleted(t *testing.T) {
	const n = 5
	failed := errors.New("no")
	for busy := range 1 << n {
		for fails := range 5 { // at this transaction; 0: never
			synctest.Test(t, func(t *testing.T) {
				store := &memstore.Store{}
				tab := table.Table{Store: store}
				var names []string
				for i := range n {
					names = append(names, fmt.Sprint(i))
					require.NoError(t, tab.Break(t.Context(), hold(t, tab, names[i], time.Hour), names[i]))
				}
				seen, err := tab.LookAtLeases(t.Context(), time.Now(), names...)
				require.NoError(t, err)
				sent := 0
				link := &memstore.Link{Store: competed{store, busy}}
				link.Refuse(func(string) error {
					if sent++; sent == fails {
						return failed
					}
					return nil
				})
				pruned, err := table.Table{Store: link}.Prune(t.Context(), seen...)
				assert.Equal(t, fails > 0 && sent >= fails, errors.Is(err, failed), "%v", err)
				left := store.Rows()
				assert.Len(t, left, 2*(n-pruned), "%05b are competed for, failure %d", busy, fails)
				for i, name := range names {
					_, kept := left[name]
					assert.True(t, kept || busy>>i&1 == 0, name)
					assert.True(t, !kept || busy>>i&1 == 1 || err != nil, name)
				}
			})
		}
	}
}

// competed aborts each transaction that writes a lock whose bit is set.
type competed struct {
	table.Store
	busy int
}

func (c competed) Transact(ctx context.Context, step string, fn func(context.Context, table.Reader) ([]table.Write, error)) (time.Time, error) {
	return c.Store.Transact(ctx, step, func(ctx context.Context, r table.Reader) ([]table.Write, error) {
		writes, err := fn(ctx, r)
		for _, w := range writes {
			if len(w.Name) == 1 && c.busy>>(w.Name[0]-'0')&1 == 1 {
				return nil, table.ErrAborted
			}
		}
		return writes, err
	})
}
