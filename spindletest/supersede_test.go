package spindletest

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/spindle-lock/spindle/internal/options"
	"github.com/spindle-lock/spindle/internal/table"
	"github.com/spindle-lock/spindle/internal/testkit/fleet"
	"github.com/spindle-lock/spindle/internal/testkit/memstore"
)

// A step that is refused fails the test at once, with the reason. One that only fails at times is repeated for a minute.
func TestWhatRefusesToBeSupersededIsSaidAtOnce(t *testing.T) {
	for _, what := range []func(testing.TB, *memstore.Link){
		func(tb testing.TB, l *memstore.Link) { supersede(tb, l, "job") },
		func(tb testing.TB, l *memstore.Link) { supersedePartition(tb, l, "orders", "7") },
	} {
		var steps []string
		what(t, refusing(func(step string) error { steps = append(steps, step); return nil }))
		assert.Len(t, steps, 3)
		for _, refused := range steps {
			for code, takes := range map[codes.Code]time.Duration{codes.PermissionDenied: 0, codes.Aborted: cleanupTimeout} {
				synctest.Test(t, func(t *testing.T) {
					began := time.Now()
					said := Failure(t, func(tb testing.TB) {
						what(tb, refusing(fleet.Refusing(refused, status.Error(code, "not for you"))))
					})
					assert.Contains(t, said, "not for you", "%s: %v", refused, code)
					assert.InDelta(t, takes.Seconds(), time.Since(began).Seconds(), 0.2, "%s: %v", refused, code)
				})
			}
		}
	}
}

func refusing(f func(step string) error) *memstore.Link {
	link := &memstore.Link{Store: &memstore.Store{}}
	link.Refuse(f)
	return link
}

// Who supersedes has the lock for one lease, unless the test releases it before. A later release leaves the rows as those of a holder that
// is gone, because the test is about that.
func TestALateReleaseChangesNothing(t *testing.T) {
	for name, take := range map[string]func(testing.TB, *memstore.Store) func(){
		"job":                func(tb testing.TB, s *memstore.Store) func() { return supersede(tb, s, "job") },
		"orders/partition/7": func(tb testing.TB, s *memstore.Store) func() { return supersedePartition(tb, s, "orders", "7") },
	} {
		for _, after := range []time.Duration{0, options.DefaultLease - 1, options.DefaultLease + time.Second} {
			synctest.Test(t, func(t *testing.T) {
				store := &memstore.Store{}
				release := take(t, store)
				time.Sleep(after)
				release()
				assert.Equal(t, after < options.DefaultLease, store.Rows()[name].Heartbeat.IsZero(), "%s after %v", name, after)
			})
		}
	}
}

// A lock whose lease row can't be read keeps its holder, and the failure says why. A newer version may hold the lock by rules
// that this one does not know.
func TestALockThatCanNotBeReadIsNotSuperseded(t *testing.T) {
	for name, take := range map[string]func(testing.TB, *memstore.Store){
		"job":                func(tb testing.TB, s *memstore.Store) { supersede(tb, s, "job") },
		"orders/partition/7": func(tb testing.TB, s *memstore.Store) { supersedePartition(tb, s, "orders", "7") },
	} {
		synctest.Test(t, func(t *testing.T) {
			store := &memstore.Store{}
			take(t, store)
			key := table.LeaseKey(name, table.TokenAt(store.Rows()[name].Token))
			newer := table.Write{Kind: table.Update, Name: key, Set: []table.Cell{{Column: table.ColWriter, Value: `{"v":2,"lease":10}`}}}
			require.NoError(t, store.Commit(t.Context(), "operator", []table.Write{newer}))
			before := store.Rows()
			assert.Contains(t, Failure(t, func(tb testing.TB) { take(tb, store) }), "update this program", name)
			assert.Equal(t, before, store.Rows(), name)
		})
	}
}
