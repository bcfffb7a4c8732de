package table_test

import (
	"context"
	"errors"
	"fmt"
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

// vague is a table that does not say which row is missing, and aborts a prune of several locks.
type vague struct{ table.Store }

func (v vague) Commit(ctx context.Context, step string, writes []table.Write) error {
	err := v.Store.Commit(ctx, step, writes)
	if errors.Is(err, table.ErrMissing) {
		err = fmt.Errorf("%w: %w", table.ErrNotFound, spanner.ToSpannerError(status.Error(codes.NotFound, "not found")))
	}
	return err
}

func (v vague) Transact(ctx context.Context, step string, fn func(context.Context, table.Reader) ([]table.Write, error)) (time.Time, error) {
	return v.Store.Transact(ctx, step, func(ctx context.Context, r table.Reader) ([]table.Write, error) {
		writes, err := fn(ctx, r)
		if step == "prune" && len(writes) > 4 {
			return nil, table.ErrAborted
		}
		return writes, err
	})
}

// someStep is a step, on a table in which it has something to do, and the error with which it ends.
type someStep struct {
	do   func(ctx context.Context, tab table.Table) error
	ends error
}

// everyStep makes all steps of the protocol, each on a table of its own.
func everyStep(t *testing.T, store table.Store) map[string]someStep {
	tab := table.Table{Store: store}
	token, gone := hold(t, tab, "held", time.Hour), hold(t, tab, "gone", time.Hour)
	require.NoError(t, tab.Release(t.Context(), gone, "gone"))
	look := func(names ...string) []table.Observation { return look(t, tab, names...) }
	claimed, err := tab.Claim(t.Context(), "me", look("claimed")...)
	require.NoError(t, err)
	require.NoError(t, tab.ReleaseFree(t.Context(), hold(t, tab, "free", time.Hour), time.Hour, "free"))
	free, ok := table.NewFreeClaim("me", table.LeaseRecord{Lease: time.Hour, Nonce: "n"}, look("free")...)
	require.True(t, ok)
	taken := hold(t, tab, "odd", time.Hour) // its free row's key is in use
	require.NoError(t, store.Commit(t.Context(), "by hand", []table.Write{{Kind: table.Insert, Name: table.LeaseKey("odd", taken+1)}}))
	member := join(t, tab, 0, "member", time.Hour)
	partition := table.PartitionName("orders", "p")
	held := take(t, tab, member, time.Hour, "p")
	plain := func(do func(ctx context.Context, tab table.Table) error) someStep { return someStep{do: do} }
	var tickets []table.Write
	for _, queue := range []string{"a", "b", "d", "e"} {
		for i := range 200 {
			tickets = append(tickets, table.Ticket{Queue: queue, Time: table.Token(i), Nonce: "n"}.Put())
		}
	}
	require.NoError(t, tab.Queue(t.Context(), tickets...))
	return map[string]someStep{
		"Observe": plain(func(ctx context.Context, tab table.Table) error { _, err := tab.Observe(ctx, "held"); return err }),
		"Observe beside long queues": plain(func(ctx context.Context, tab table.Table) error {
			b := table.Beside{Queues: []table.Range{table.Waiting("a", ""), table.Waiting("b", ""), table.Waiting("c", ""), table.Waiting("d", ""), table.Waiting("e", "")}}
			_, err := tab.Beside(&b).Observe(ctx, "held")
			assert.Equal(t, err == nil, !b.At.IsZero())
			return err
		}),
		"Follow": plain(func(ctx context.Context, tab table.Table) error {
			_, err := tab.Follow(ctx, time.Now(), []table.Token{token}, "held")
			return err
		}),
		"Inspect": plain(func(ctx context.Context, tab table.Table) error {
			_, err := tab.Inspect(ctx, table.Observation{Name: "held", Token: token})
			return err
		}),
		"LookAtLeases by a slow clock": plain(func(ctx context.Context, tab table.Table) error {
			_, err := tab.LookAtLeases(ctx, time.Now().Add(-24*time.Hour), "held")
			return err
		}),
		"LookAtGroup": plain(func(ctx context.Context, tab table.Table) error {
			_, err := tab.LookAtGroup(ctx, "orders", table.GroupQuery{All: true})
			return err
		}),
		"Holders": plain(func(ctx context.Context, tab table.Table) error {
			_, err := tab.Holders(ctx, table.Range{From: "a", To: "z"}, func(string) bool { return false })
			return err
		}),
		"Done": plain(func(ctx context.Context, tab table.Table) error {
			_, _, err := tab.Done(ctx, table.Strong, "held")
			return err
		}),
		"Valid": plain(func(ctx context.Context, tab table.Table) error { _, err := tab.Valid(ctx, token, "held"); return err }),
		"Asked": plain(func(ctx context.Context, tab table.Table) error {
			_, _, err := tab.Asked(ctx, "held", token)
			return err
		}),
		"Asked of a term that has ended": {func(ctx context.Context, tab table.Table) error {
			_, _, err := tab.Asked(ctx, "gone", gone)
			return err
		}, table.ErrSuperseded},
		"Outcome": plain(func(ctx context.Context, tab table.Table) error { _, err := tab.Outcome(ctx, free); return err }),
		"GivenBack": plain(func(ctx context.Context, tab table.Table) error {
			_, err := tab.GivenBack(ctx, gone, "me", "gone")
			return err
		}),
		"Claim": plain(func(ctx context.Context, tab table.Table) error {
			_, err := tab.Claim(ctx, "me", look("gone")...)
			return err
		}),
		"Confirm": plain(func(ctx context.Context, tab table.Table) error {
			return tab.Confirm(ctx, claimed, table.LeaseRecord{Lease: time.Hour}, "claimed")
		}),
		"Withdraw":  plain(func(ctx context.Context, tab table.Table) error { return tab.Withdraw(ctx, claimed, "claimed") }),
		"Disown":    plain(func(ctx context.Context, tab table.Table) error { return tab.Disown(ctx, "me", look("claimed")...) }),
		"ClaimFree": plain(func(ctx context.Context, tab table.Table) error { return tab.ClaimFree(ctx, free) }),
		"Retract":   plain(func(ctx context.Context, tab table.Table) error { return tab.Retract(ctx, free) }),
		"Heartbeat": plain(func(ctx context.Context, tab table.Table) error { return tab.Heartbeat(ctx, token, "held") }),
		"Announce":  plain(func(ctx context.Context, tab table.Table) error { return tab.Announce(ctx, token, "held") }),
		"Succeed":   plain(func(ctx context.Context, tab table.Table) error { return tab.Succeed(ctx, "me", "held", token) }),
		"Ask":       plain(func(ctx context.Context, tab table.Table) error { return tab.Ask(ctx, table.ByOperator, "held", token) }),
		"Weigh": plain(func(ctx context.Context, tab table.Table) error {
			return tab.Weigh(ctx, look(member.Name)[0], 2)
		}),
		"Release": plain(func(ctx context.Context, tab table.Table) error { return tab.Release(ctx, token, "held") }),
		"ReleaseFree without a free row": plain(func(ctx context.Context, tab table.Table) error {
			return tab.ReleaseFree(ctx, taken, time.Hour, "odd")
		}),
		"Finish": plain(func(ctx context.Context, tab table.Table) error {
			return tab.Finish(ctx, taken, time.Hour, "odd", table.Due{Key: "1"}, "me")
		}),
		"Break":            plain(func(ctx context.Context, tab table.Table) error { return tab.Break(ctx, token, "held") }),
		"a late Heartbeat": {func(ctx context.Context, tab table.Table) error { return tab.Heartbeat(ctx, gone, "gone") }, table.ErrSuperseded},
		"a late Release":   {func(ctx context.Context, tab table.Table) error { return tab.Release(ctx, gone, "gone") }, table.ErrSuperseded},
		"Prune": plain(func(ctx context.Context, tab table.Table) error {
			_, err := tab.Prune(ctx, look("gone", "free")...)
			return err
		}),
		"Queue": plain(func(ctx context.Context, tab table.Table) error { return tab.Queue(ctx, tickets[0]) }),
		"EvictMembers": plain(func(ctx context.Context, tab table.Table) error {
			_, err := tab.EvictMembers(ctx, look(member.Name)...)
			return err
		}),
		"ClaimPartitions": plain(func(ctx context.Context, tab table.Table) error {
			_, _, err := tab.ClaimPartitions(ctx, member, look("gone")...)
			return err
		}),
		"ConfirmPartitions": plain(func(ctx context.Context, tab table.Table) error {
			_, err := tab.ConfirmPartitions(ctx, member, table.LeaseRecord{Lease: time.Hour}, claimed, "claimed")
			return err
		}),
		"ReleasePartitions": plain(func(ctx context.Context, tab table.Table) error {
			return tab.ReleasePartitions(ctx, table.LeaseRef{Name: partition, Token: held})
		}),
		"MarkPaused": plain(func(ctx context.Context, tab table.Table) error {
			_, err := tab.MarkPaused(ctx, member, func(table.LeaseRef) bool { return true }, partition)
			return err
		}),
		"ReconcilePartitions": plain(func(ctx context.Context, tab table.Table) error {
			r, err := (table.Table{Store: store}).LookAtGroup(t.Context(), "orders", table.GroupQuery{WithLeases: []string{partition}})
			require.NoError(t, err)
			return tab.ReconcilePartitions(ctx, member, r.Partitions[partition])
		}),
		"PublishPlan": plain(func(ctx context.Context, tab table.Table) error {
			_, err := tab.PublishPlan(ctx, "orders", 0, "me", "{}")
			return err
		}),
	}
}

// eachRequest runs every step once for each of its requests. The function fail makes a request fail if nth returns true for it, and
// check makes the step and gets its error. Without a failure, eachRequest expects that the step ends as it should.
func eachRequest(t *testing.T, fail func(link *memstore.Link, nth func() bool), check func(t *testing.T, do func(context.Context) error)) {
	var names []string
	synctest.Test(t, func(t *testing.T) {
		for name := range everyStep(t, &memstore.Store{}) {
			names = append(names, name)
		}
	})
	most := map[string]int{}
	for _, name := range names {
		for n, over := 1, false; !over; n++ {
			t.Run(fmt.Sprintf("%s, request %d", name, n), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					store := &memstore.Store{}
					step, link, sent := everyStep(t, store)[name], &memstore.Link{Store: vague{store}}, 0
					time.Sleep(time.Second)
					fail(link, func() bool { sent++; return sent == n })
					if n > 20 {
						t.Fatal("the step does not end")
					}
					check(t, func(ctx context.Context) error {
						err := step.do(ctx, table.Table{Store: link})
						if over = sent < n; over {
							most[name] = sent
							assert.ErrorIs(t, err, step.ends)
							return nil
						}
						assert.Error(t, err)
						return err
					})
				})
			})
		}
	}
	for name, n := range map[string]int{"Observe beside long queues": 8, "LookAtLeases by a slow clock": 2, "ReleaseFree without a free row": 2, "Finish": 2, "a late Heartbeat": 2, "Prune": 3} {
		assert.GreaterOrEqual(t, most[name], n, name)
	}
}

// An outage says nothing about a lock. If it were taken for an answer, a holder would give up a lock that it holds, or a
// candidate would claim a lock that is held.
func TestAnOutageIsNeverTakenForAnAnswer(t *testing.T) {
	outage := spanner.ToSpannerError(status.Error(codes.Unavailable, "not now"))
	fail := func(link *memstore.Link, nth func() bool) {
		link.Refuse(func(string) error {
			if nth() {
				return outage
			}
			return nil
		})
	}
	eachRequest(t, fail, func(t *testing.T, do func(context.Context) error) {
		if err := do(t.Context()); err != nil {
			assert.True(t, errors.Is(err, outage) || errors.Is(err, table.ErrNotFound), "%v", err)
			for _, answer := range []error{table.ErrSuperseded, table.ErrChanged, table.ErrMissing, table.ErrExists, table.ErrAborted} {
				assert.NotErrorIs(t, err, answer)
			}
		}
	})
}

// A caller that gives up, for example because its term is over, does not wait for any request of its step.
func TestEveryRequestEndsWithItsCaller(t *testing.T) {
	fail := func(link *memstore.Link, nth func() bool) { link.Lose(func(string) bool { return nth() }, nil) }
	eachRequest(t, fail, func(t *testing.T, do func(context.Context) error) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		start := time.Now()
		if err := do(ctx); err != nil {
			assert.Equal(t, time.Second, time.Since(start))
		}
	})
}

// A transaction that was aborted has changed nothing, and its step says so: what it was to free or to mark is not done.
func TestAStepThatWasAbortedSaysSo(t *testing.T) {
	for _, name := range []string{"Claim", "ClaimPartitions", "Confirm", "ConfirmPartitions", "Withdraw", "Disown", "EvictMembers", "MarkPaused", "ReconcilePartitions", "PublishPlan"} {
		synctest.Test(t, func(t *testing.T) {
			store := &memstore.Store{}
			step := everyStep(t, store)[name]
			time.Sleep(time.Second)
			before := store.Rows()
			other := &between{Store: store, change: func() {
				for _, row := range before {
					require.NoError(t, store.Commit(t.Context(), "other", []table.Write{{Kind: table.Put, Name: row.Name, Set: []table.Cell{{Column: table.ColHeartbeat, Value: table.Now}}}}))
				}
				require.NoError(t, store.Commit(t.Context(), "other", []table.Write{{Kind: table.Put, Name: table.GroupPrefix("orders") + "!plan"}}))
			}}
			err := step.do(t.Context(), table.Table{Store: other})
			assert.ErrorIs(t, err, table.ErrAborted, name)
			assert.Equal(t, 1, other.runs, name)
		})
	}
}
