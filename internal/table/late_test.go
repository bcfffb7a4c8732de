package table_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spindle-lock/spindle/internal/table"
	"github.com/spindle-lock/spindle/internal/testkit/memstore"
)

// A member reconciles a partition whose lock row was deleted by hand. It leaves the lease rows of other members, which
// may still act on the partition, so their fences still hold.
func TestAMemberFreesNothingOfAnother(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &memstore.Store{}
		tab, name := table.Table{Store: store}, table.PartitionName("orders", "p")
		own, other := join(t, tab, 0, "own", time.Minute), join(t, tab, 1, "other", time.Minute)
		orphan := func(m table.LeaseRef) string {
			token := take(t, tab, m, time.Minute, "p")
			drop(t, tab, name)
			return table.LeaseKey(name, token)
		}
		mine := orphan(own)
		row := store.Rows()[mine]
		drop(t, tab, mine)
		theirs := orphan(other)
		require.NoError(t, store.Commit(t.Context(), "operator", []table.Write{{Kind: table.Insert, Name: mine, Set: []table.Cell{
			{Column: table.ColHeartbeat, Value: row.Heartbeat}, {Column: table.ColToken, Value: row.Token}, {Column: table.ColWriter, Value: row.Writer}}}}))
		r, err := tab.LookAtGroup(t.Context(), "orders", table.GroupQuery{WithLeases: []string{name}})
		require.NoError(t, err)
		require.Len(t, r.Partitions[name].OrphanLeases, 2)
		require.NoError(t, tab.ReconcilePartitions(t.Context(), own, r.Partitions[name]))
		assert.NotContains(t, store.Rows(), mine)
		assert.Contains(t, store.Rows(), theirs)

		drop(t, tab, theirs)
		held := take(t, tab, other, time.Minute, "p")
		r, err = tab.LookAtGroup(t.Context(), "orders", table.GroupQuery{WithLeases: []string{name}})
		require.NoError(t, err)
		require.ErrorIs(t, tab.ReconcilePartitions(t.Context(), own, r.Partitions[name]), table.ErrChanged)
		assert.Contains(t, store.Rows(), table.LeaseKey(name, held))
	})
}

// A transaction reads the lease rows of terms that began up to an hour after the look. A later claim fails, because it
// could otherwise overlook the holder of a lock whose row was deleted by hand.
func TestAClaimLongAfterItsLookGivesNothing(t *testing.T) {
	const name = "orders/partition/p"
	for how, attempt := range map[string]func(t *testing.T, tab table.Table, m table.LeaseRef, o table.Observation) error{
		"Claim": func(t *testing.T, tab table.Table, _ table.LeaseRef, o table.Observation) error {
			_, err := tab.Claim(t.Context(), "me", o)
			return err
		},
		"ClaimPartitions": func(t *testing.T, tab table.Table, m table.LeaseRef, o table.Observation) error {
			_, _, err := tab.ClaimPartitions(t.Context(), m, o)
			return err
		},
	} {
		for after, free := range map[time.Duration]bool{55 * time.Minute: true, 2 * time.Hour: false} {
			synctest.Test(t, func(t *testing.T) {
				tab := table.Table{Store: &memstore.Store{}}
				own, other := join(t, tab, 0, "own", 24*time.Hour), join(t, tab, 1, "other", 24*time.Hour)
				look := func() table.Observation {
					seen, err := tab.LookAtLeases(t.Context(), time.Now(), name)
					require.NoError(t, err)
					return seen[0]
				}
				seen := look()
				time.Sleep(after)
				if free {
					assert.NoError(t, attempt(t, tab, own, seen), "%s after %v", how, after)
					drop(t, tab, name)
					seen = look()
					time.Sleep(after)
				}
				take(t, tab, other, 24*time.Hour, "p")
				drop(t, tab, name)
				if err := attempt(t, tab, own, seen); free {
					assert.ErrorIs(t, err, table.ErrChanged, "%s after %v, and another has it", how, after)
				} else {
					assert.ErrorContains(t, err, "it must be withdrawn", "%s after %v: another may have it, and the claim was committed", how, after)
				}
			})
		}
	}
}

// A member whose heartbeat was committed after the look is not evicted, but the other expired members are.
func TestAMemberThatWasHeardFromIsNotEvicted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tab := table.Table{Store: &memstore.Store{}}
		dead, alive := join(t, tab, 0, "dead", time.Second), join(t, tab, 1, "alive", time.Second)
		time.Sleep(2 * time.Second)
		s, err := tab.LookAtGroup(t.Context(), "orders", table.GroupQuery{Members: true})
		require.NoError(t, err)
		require.NoError(t, tab.Heartbeat(t.Context(), alive.Token, alive.Name))
		freed, err := tab.EvictMembers(t.Context(), s.Members[alive.Name], s.Members[dead.Name])
		require.NoError(t, err)
		assert.Equal(t, []string{dead.Name}, freed)
		require.NoError(t, tab.Heartbeat(t.Context(), alive.Token, alive.Name))
		require.ErrorIs(t, tab.Heartbeat(t.Context(), dead.Token, dead.Name), table.ErrSuperseded)
		_, err = tab.EvictMembers(t.Context(), s.Members[alive.Name])
		assert.ErrorIs(t, err, table.ErrChanged)
	})
}

// Nothing changes the partitions of a member whose lease row is gone, whatever it still has in flight: they belong to others, which
// may already act on them.
func TestAMemberThatIsGoneConfirmsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &memstore.Store{}
		tab, name := table.Table{Store: store}, table.PartitionName("orders", "p")
		own := join(t, tab, 0, "own", time.Minute)
		take(t, tab, own, time.Minute, "other")
		seen, err := tab.LookAtLeases(t.Context(), time.Now(), name)
		require.NoError(t, err)
		token, _, err := tab.ClaimPartitions(t.Context(), own, seen[0])
		require.NoError(t, err)
		drop(t, tab, own.Key())
		before := store.Rows()
		_, err = tab.ConfirmPartitions(t.Context(), own, table.LeaseRecord{Lease: time.Minute}, token, name)
		assert.ErrorIs(t, err, table.ErrMissing)
		assert.Equal(t, before, store.Rows())
	})
}

// Whatever is written under a token takes effect only while every lock is held under it, however the term of one of them has ended.
// A store that does not say which row is missing makes no difference, and what it can't find while all are held ends no term.
func TestNothingIsWrittenUnderATokenThatIsOver(t *testing.T) {
	for end, over := range map[string]func(s scene, token table.Token){
		"":         func(scene, table.Token) {},
		"released": func(s scene, token table.Token) { require.NoError(s, s.Release(s.Context(), token, s.names...)) },
		"released with a free row": func(s scene, token table.Token) {
			require.NoError(s, s.ReleaseFree(s.Context(), token, time.Hour, s.names...))
		},
		"broken":                   func(s scene, token table.Token) { require.NoError(s, s.Break(s.Context(), token, s.names[0])) },
		"claimed":                  func(s scene, _ table.Token) { s.claim() },
		"confirmed again":          func(s scene, _ table.Token) { s.hold() },
		"pruned":                   func(s scene, _ table.Token) { _, err := s.Prune(s.Context(), s.look()...); require.NoError(s, err) },
		"its lease row is deleted": func(s scene, token table.Token) { drop(s.T, s.Table, table.LeaseKey(s.names[0], token)) },
	} {
		for what, act := range map[string]func(ctx context.Context, tab table.Table, token table.Token) error{
			"Heartbeat": func(ctx context.Context, tab table.Table, token table.Token) error {
				return tab.Heartbeat(ctx, token, "a", "b")
			},
			"Announce": func(ctx context.Context, tab table.Table, token table.Token) error {
				return tab.Announce(ctx, token, "a", "b")
			},
			"Release": func(ctx context.Context, tab table.Table, token table.Token) error {
				return tab.Release(ctx, token, "a", "b")
			},
			"ReleaseFree": func(ctx context.Context, tab table.Table, token table.Token) error {
				return tab.ReleaseFree(ctx, token, time.Hour, "a", "b")
			},
			"Finish": func(ctx context.Context, tab table.Table, token table.Token) error {
				return tab.Finish(ctx, token, time.Hour, "b", table.Due{Key: "7"}, "me")
			},
			"Record": func(ctx context.Context, tab table.Table, token table.Token) error {
				err := tab.Store.Commit(ctx, "record", table.Record("b", token, table.Due{Key: "7"}, "me"))
				if errors.Is(err, table.ErrMissing) || errors.Is(err, table.ErrNotFound) {
					return table.ErrSuperseded
				}
				return err
			},
			"Break": func(ctx context.Context, tab table.Table, token table.Token) error { return tab.Break(ctx, token, "b") },
			"Succeed": func(ctx context.Context, tab table.Table, token table.Token) error {
				return tab.Succeed(ctx, "me", "b", token)
			},
			"Ask": func(ctx context.Context, tab table.Table, token table.Token) error {
				return tab.Ask(ctx, table.ByOperator, "b", token)
			},
			"Asked": func(ctx context.Context, tab table.Table, token table.Token) error {
				_, _, err := tab.Asked(ctx, "b", token)
				return err
			},
			"Weigh": func(ctx context.Context, tab table.Table, token table.Token) error {
				return tab.Weigh(ctx, table.Observation{Name: "b", Token: token, LeaseRecord: &table.LeaseRecord{Lease: time.Hour}}, 3)
			},
		} {
			for _, unnamed := range []bool{false, true} {
				synctest.Test(t, func(t *testing.T) {
					store := &memstore.Store{}
					s := scene{t, store, table.Table{Store: store}, []string{"a", "b"}}
					token := s.hold()
					s.names = []string{"b"}
					over(s, token)
					before, tab := store.Rows(), s.Table
					if unnamed {
						tab.Store = vague{store}
					}
					if end != "" {
						assert.ErrorIs(t, act(t.Context(), tab, token), table.ErrSuperseded, "%s of a lock that is %s", what, end)
						assert.Equal(t, before, store.Rows(), "%s of a lock that is %s", what, end)
						return
					}
					lost := fmt.Errorf("%w: the session", table.ErrNotFound)
					tab.Store = &memstore.Link{Store: store}
					tab.Store.(*memstore.Link).Refuse(func(step string) error {
						if step == "valid" || step == "asked" {
							return nil
						}
						return lost
					})
					if what != "Record" {
						assert.NotErrorIs(t, act(t.Context(), tab, token), table.ErrSuperseded, what)
					}
				})
			}
		}
	}
}
