package operator_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spindle-lock/spindle/internal/operator"
	"github.com/spindle-lock/spindle/internal/table"
	"github.com/spindle-lock/spindle/internal/testkit/memstore"
)

// randomLocks makes locks in all states, some of them with waiters, records of completed keys, and records of breaks.
func randomLocks(t *testing.T, tab table.Table, random *rand.Rand, n int) (names []string) {
	write := func(kind table.Kind, key, text string) {
		require.NoError(t, tab.Store.Commit(t.Context(), "by hand", []table.Write{{Kind: kind, Name: key, Set: []table.Cell{{Column: table.ColHeartbeat, Value: table.Now}, {Column: table.ColWriter, Value: text}}}}))
	}
	for i := range n {
		name := fmt.Sprintf("%c%03d", 'a'+random.IntN(3), i)
		names = append(names, name)
		switch done := table.DoneRow(name); random.IntN(5) {
		case 0:
			require.NoError(t, tab.Finish(t.Context(), hold(t, tab, name, time.Hour), 0, name, table.Due{Key: "7"}, "a"))
			drop(t, tab, name)
		case 1:
			write(table.Insert, done, "?")
		}
		lease := []time.Duration{time.Second, time.Hour}[random.IntN(2)]
		switch random.IntN(9) {
		case 0:
			require.NoError(t, tab.Release(t.Context(), hold(t, tab, name, lease), name))
		case 1:
			require.NoError(t, tab.ReleaseFree(t.Context(), hold(t, tab, name, lease), lease, name))
		case 2:
			hold(t, tab, name, lease)
		case 3:
			require.NoError(t, tab.Announce(t.Context(), hold(t, tab, name, lease), name))
		case 4:
			claim(t, tab, name)
		case 5:
			hold(t, tab, name, lease)
			drop(t, tab, name)
		case 6:
			write(table.Update, table.LeaseKey(name, hold(t, tab, name, lease)), "?")
		case 7:
			require.NoError(t, tab.Break(t.Context(), hold(t, tab, name, lease), name))
		}
		for w := range random.IntN(3) {
			wait(t, tab, name, fmt.Sprint(w))
		}
	}
	slices.Sort(names)
	return names
}

// groupLocks makes members and partitions of the group "orders" in their states.
func groupLocks(t *testing.T, tab table.Table) (names []string) {
	alive, dead, erased := join(t, tab, 0, "alive", time.Hour), join(t, tab, 1, "dead", time.Second), join(t, tab, 2, "erased", time.Hour)
	part := func(partition string) string { return table.PartitionName("orders", partition) }
	take(t, tab, dead, time.Second, "of-dead")
	take(t, tab, erased, time.Hour, "of-erased")
	drop(t, tab, erased.Name, erased.Key())
	token := take(t, tab, alive, time.Hour, "held", "paused", "given", "orphan")
	require.NoError(t, tab.ReleasePartitions(t.Context(), table.LeaseRef{Name: part("paused"), Token: token}, table.LeaseRef{Name: part("given"), Token: token}))
	_, err := tab.MarkPaused(t.Context(), alive, func(table.LeaseRef) bool { return false }, part("paused"))
	require.NoError(t, err)
	drop(t, tab, part("orphan"))
	for _, partition := range []string{"held", "of-dead", "of-erased", "paused", "given", "orphan", "wanted", "absent"} {
		names = append(names, part(partition))
	}
	wait(t, tab, part("held"), "w")
	wait(t, tab, part("wanted"), "w")
	return append(names, alive.Name, dead.Name)
}

// shows is what a listing shows of a lock.
func shows(l operator.Listing) string {
	s := fmt.Sprint(l.Name, " ", l.State(), " ", l.Kind(), " ", l.Holder(), " ", l.Token, " ", l.Done.Key, " ", l.Undone != nil)
	for _, w := range l.Waiters {
		s += " " + w.ID
	}
	return s
}

// Whichever list a lock is in, it is there with the same state, record and waiters as alone, even if it is only there
// because it is named, and no list leaves out a lock that it promises to have. The operator's own clock does not matter.
func TestListsAgreeOnEveryLock(t *testing.T) {
	for seed := range 8 {
		synctest.Test(t, func(t *testing.T) {
			random := rand.New(rand.NewPCG(uint64(seed), 0))
			store := &memstore.Store{Ahead: func() time.Duration { return time.Duration(seed%3-1) * 100 * time.Hour }}
			tab := table.Table{Store: store}
			n := 40
			if seed == 0 {
				n = 800 // more than are read again in one request
			}
			names := append(append(randomLocks(t, tab, random, n), "absent"), groupLocks(t, tab)...)
			slices.Sort(names)
			time.Sleep(time.Minute)
			rows := map[string]bool{}
			for key := range store.Rows() {
				if role, lock := table.RoleOf(key); role != table.OfTicket {
					rows[lock] = true
				}
			}
			var each []operator.Listing
			for _, name := range names {
				one, err := operator.ListOne(t.Context(), tab, name)
				require.NoError(t, err)
				require.Equal(t, name, one.Name)
				each = append(each, one)
			}
			lines := func(found []operator.Listing) (all []string) {
				for _, l := range found {
					all = append(all, shows(l))
				}
				return all
			}
			for _, prefix := range []string{"", "b", "a00", "orders/partition/p", "orders/m"} {
				for _, all := range []bool{true, false} {
					var named []string
					for _, name := range names {
						if random.IntN(4) == 0 {
							named = append(named, name)
						}
					}
					var plain, with []string
					for _, one := range each {
						idle := (one.State() == operator.Released || one.State() == operator.Free) && !one.IsPart()
						done := one.Done.Key != "" || one.Undone != nil
						begins := strings.HasPrefix(one.Name, prefix)
						shown := begins && (rows[one.Name] && (all || !idle) || len(one.Waiters) > 0)
						if shown {
							plain = append(plain, shows(one))
						}
						switch {
						case shown || slices.Contains(named, one.Name):
							with = append(with, shows(one))
						case begins && done:
							free := one
							free.Observation = table.Observation{Name: one.Name}
							with = append(with, shows(free))
						}
					}
					slices.Sort(with)
					found, _, err := operator.List(t.Context(), tab, prefix, all)
					require.NoError(t, err)
					assert.Equal(t, plain, lines(found), "seed %d, prefix %q, all: %v", seed, prefix, all)
					found, _, err = operator.ListWith(t.Context(), tab, prefix, all, named...)
					require.NoError(t, err)
					got := lines(found)
					slices.Sort(got)
					assert.Equal(t, with, got, "seed %d, prefix %q, all: %v, with %v", seed, prefix, all, named)
				}
			}
		})
	}
}

// An operator who interrupts a command waits for none of its requests, and no request that fails is taken for an empty
// table.
func TestEveryRequestOfAnOperatorFailsWithItsCommand(t *testing.T) {
	commands := map[string]func(ctx context.Context, tab table.Table) error{
		"List": func(ctx context.Context, tab table.Table) error {
			_, _, err := operator.List(ctx, tab, "a", false)
			return err
		},
		"ListWith": func(ctx context.Context, tab table.Table) error {
			_, _, err := operator.ListWith(ctx, tab, "", false, "quiet")
			return err
		},
		"ListOne": func(ctx context.Context, tab table.Table) error {
			_, err := operator.ListOne(ctx, tab, "a")
			return err
		},
		"ListGroup": func(ctx context.Context, tab table.Table) error {
			_, _, err := operator.ListGroup(ctx, tab, "orders")
			return err
		},
		"Prunable": func(ctx context.Context, tab table.Table) (failed error) {
			for _, err := range operator.Prunable(ctx, tab, operator.Ages{}) {
				failed = errors.Join(failed, err)
			}
			return failed
		},
		"StaleTickets": func(ctx context.Context, tab table.Table) (failed error) {
			for _, err := range operator.StaleTickets(ctx, tab) {
				failed = errors.Join(failed, err)
			}
			return failed
		},
	}
	outage := errors.New("not now")
	for what, command := range commands {
		for _, stuck := range []bool{true, false} {
			for n, over := 1, false; !over; n++ {
				synctest.Test(t, func(t *testing.T) {
					store := &memstore.Store{}
					tab := table.Table{Store: store}
					for _, name := range []string{"quiet", "a"} {
						release(t, tab, name)
						wait(t, tab, name, "w")
					}
					sent := 0
					ctx, cancel := context.WithTimeout(t.Context(), time.Second)
					defer cancel()
					start := time.Now()
					err := command(ctx, table.Table{Store: table.Via(func(ctx context.Context, _ string, call func(context.Context, table.Store) error) error {
						if sent++; sent != n {
							return call(ctx, store)
						}
						if !stuck {
							return outage
						}
						select {
						case <-ctx.Done():
							return outage
						case <-time.After(time.Hour):
							return errors.New("nobody has ended the request")
						}
					})})
					if over = sent < n; over {
						assert.NoError(t, err, what)
						return
					}
					assert.ErrorIs(t, err, outage, "%s, request %d", what, n)
					assert.LessOrEqual(t, time.Since(start), time.Second)
				})
			}
		}
	}
}
