package table_test

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spindle-lock/spindle/internal/table"
	"github.com/spindle-lock/spindle/internal/testkit/memstore"
)

// scene is a step that is about to be made for several locks, some of which change before.
type scene struct {
	*testing.T
	store *memstore.Store
	table.Table
	names []string
}

func (s scene) look() []table.Observation {
	s.Helper()
	return look(s.T, s.Table, s.names...)
}

// groupLook is look for locks of a group.
func (s scene) groupLook() (seen []table.Observation) {
	s.Helper()
	r, err := s.LookAtGroup(s.Context(), "orders", table.GroupQuery{Members: true, WithLeases: s.names})
	require.NoError(s, err)
	for _, name := range s.names {
		o := r.Partitions[name]
		if m, is := r.Members[name]; is {
			o = m
		}
		seen = append(seen, o)
	}
	return seen
}

// claim makes me the claimant of all locks under one token.
func (s scene) claim() table.Token {
	s.Helper()
	token, err := s.Claim(s.Context(), "me", s.look()...)
	require.NoError(s, err)
	return token
}

func (s scene) hold() table.Token {
	s.Helper()
	token := s.claim()
	require.NoError(s, s.Confirm(s.Context(), token, table.LeaseRecord{Lease: time.Hour}, s.names...))
	return token
}

// taking returns a function that lets a member take the partition of a lock.
func (s scene) taking(by table.LeaseRef) func(name string) {
	return func(name string) {
		part, _ := table.PartOf(name)
		take(s.T, s.Table, by, time.Hour, part.Partition)
	}
}

// rowsOf returns a lock's rows.
func (s scene) rowsOf(name string) map[string]table.Row {
	rows := s.store.Rows()
	maps.DeleteFunc(rows, func(key string, _ table.Row) bool { _, lock := table.RoleOf(key); return lock != name })
	return rows
}

// setStep is a step that is made for several locks. It returns what changes one of them, and what makes the step.
type setStep struct {
	group string // what the locks are in their group, or ""
	all   bool   // it is made for all locks or for none
	none  error  // its error if it is made for no lock
	begin func(s scene) (change func(name string), act func() (done []string, err error))
}

var setSteps = map[string]setStep{
	"Claim of held locks": {"", true, table.ErrChanged, func(s scene) (func(string), func() ([]string, error)) {
		token := s.hold()
		seen := s.look()
		return func(name string) { require.NoError(s, s.Heartbeat(s.Context(), token, name)) },
			func() ([]string, error) { _, err := s.Claim(s.Context(), "other", seen...); return nil, err }
	}},
	"Claim of locks that get and lose a row": {"", true, table.ErrChanged, func(s scene) (func(string), func() ([]string, error)) {
		seen := s.look()
		return func(name string) { hold(s.T, s.Table, name, time.Hour); drop(s.T, s.Table, name) },
			func() ([]string, error) { _, err := s.Claim(s.Context(), "other", seen...); return nil, err }
	}},
	"Confirm": {"", true, table.ErrSuperseded, func(s scene) (func(string), func() ([]string, error)) {
		token := s.claim()
		return func(name string) { require.NoError(s, s.Withdraw(s.Context(), token, name)) },
			func() ([]string, error) {
				return nil, s.Confirm(s.Context(), token, table.LeaseRecord{Lease: time.Hour}, s.names...)
			}
	}},
	"Heartbeat": {"", true, table.ErrSuperseded, func(s scene) (func(string), func() ([]string, error)) {
		token := s.hold()
		return func(name string) { require.NoError(s, s.Release(s.Context(), token, name)) },
			func() ([]string, error) { return nil, s.Heartbeat(s.Context(), token, s.names...) }
	}},
	"Release": {"", true, table.ErrSuperseded, func(s scene) (func(string), func() ([]string, error)) {
		token := s.hold()
		return func(name string) { hold(s.T, s.Table, name, time.Hour) },
			func() ([]string, error) { return nil, s.Release(s.Context(), token, s.names...) }
	}},
	"ReleaseFree": {"", true, table.ErrSuperseded, func(s scene) (func(string), func() ([]string, error)) {
		token := s.hold()
		return func(name string) { hold(s.T, s.Table, name, time.Hour) },
			func() ([]string, error) { return nil, s.ReleaseFree(s.Context(), token, time.Hour, s.names...) }
	}},
	"ClaimFree": {"", true, table.ErrMissing, func(s scene) (func(string), func() ([]string, error)) {
		require.NoError(s, s.ReleaseFree(s.Context(), s.hold(), time.Hour, s.names...))
		claim, ok := table.NewFreeClaim("other", table.LeaseRecord{Lease: time.Hour, Nonce: "n"}, s.look()...)
		require.True(s, ok)
		return func(name string) { hold(s.T, s.Table, name, time.Hour) },
			func() ([]string, error) { return nil, s.ClaimFree(s.Context(), claim) }
	}},
	"Withdraw": {"", false, table.ErrSuperseded, func(s scene) (func(string), func() ([]string, error)) {
		token := s.hold()
		return func(name string) { require.NoError(s, s.Release(s.Context(), token, name)) },
			func() ([]string, error) { return nil, s.Withdraw(s.Context(), token, s.names...) }
	}},
	"Disown": {"", false, table.ErrChanged, func(s scene) (func(string), func() ([]string, error)) {
		token := s.claim()
		seen := s.look()
		return func(name string) {
				require.NoError(s, s.Confirm(s.Context(), token, table.LeaseRecord{Lease: time.Hour}, name))
			},
			func() ([]string, error) { return nil, s.Disown(s.Context(), "me", seen...) }
	}},
	"Prune": {"", false, nil, func(s scene) (func(string), func() ([]string, error)) {
		require.NoError(s, s.ReleaseFree(s.Context(), s.hold(), time.Hour, s.names...))
		seen := s.look()
		return func(name string) { hold(s.T, s.Table, name, time.Hour) },
			func() ([]string, error) {
				n, err := s.Prune(s.Context(), seen...)
				return make([]string, n), err
			}
	}},
	"EvictMembers": {"member", false, table.ErrChanged, func(s scene) (func(string), func() ([]string, error)) {
		token := s.hold()
		seen := s.groupLook()
		return func(name string) { require.NoError(s, s.Heartbeat(s.Context(), token, name)) },
			func() ([]string, error) { return s.EvictMembers(s.Context(), seen...) }
	}},
	"ClaimPartitions": {"partition", false, table.ErrChanged, func(s scene) (func(string), func() ([]string, error)) {
		me, other := join(s.T, s.Table, 7, "me", time.Hour), join(s.T, s.Table, 8, "other", time.Hour)
		seen := s.groupLook()
		return func(name string) {
				s.taking(other)(name)
				drop(s.T, s.Table, name)
			},
			func() ([]string, error) {
				_, done, err := s.ClaimPartitions(s.Context(), me, seen...)
				return done, err
			}
	}},
	"ConfirmPartitions": {"partition", false, table.ErrSuperseded, func(s scene) (func(string), func() ([]string, error)) {
		me, other := join(s.T, s.Table, 7, "me", time.Hour), join(s.T, s.Table, 8, "other", time.Hour)
		token, _, err := s.ClaimPartitions(s.Context(), me, s.groupLook()...)
		require.NoError(s, err)
		return s.taking(other),
			func() ([]string, error) {
				return s.ConfirmPartitions(s.Context(), me, table.LeaseRecord{Lease: time.Hour}, token, s.names...)
			}
	}},
	"ReconcilePartitions": {"partition", false, table.ErrChanged, func(s scene) (func(string), func() ([]string, error)) {
		me, other := join(s.T, s.Table, 7, "me", time.Hour), join(s.T, s.Table, 8, "other", time.Hour)
		_, _, err := s.ClaimPartitions(s.Context(), me, s.groupLook()...)
		require.NoError(s, err)
		seen := s.groupLook()
		return s.taking(other),
			func() ([]string, error) { return nil, s.ReconcilePartitions(s.Context(), me, seen...) }
	}},
	"ReleasePartitions": {"partition", true, table.ErrMissing, func(s scene) (func(string), func() ([]string, error)) {
		me, other := join(s.T, s.Table, 7, "me", time.Hour), join(s.T, s.Table, 8, "other", time.Hour)
		var refs []table.LeaseRef
		for _, name := range s.names {
			part, _ := table.PartOf(name)
			refs = append(refs, table.LeaseRef{Name: name, Token: take(s.T, s.Table, me, time.Hour, part.Partition)})
		}
		return s.taking(other),
			func() ([]string, error) { return nil, s.ReleasePartitions(s.Context(), refs...) }
	}},
}

// A step for several locks is made either for all of them or for those that did not change meanwhile. Whichever locks
// these are, their changes stay: another candidate may hold them by now.
func TestAStepForSeveralLocksLeavesThoseThatChanged(t *testing.T) {
	for what, step := range setSteps {
		for changed := range 1 << 3 {
			t.Run(fmt.Sprintf("%s, %03b changed", what, changed), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					store := &memstore.Store{}
					s := scene{t, store, table.Table{Store: store}, []string{"b", "c", "a"}}
					for i, name := range s.names {
						switch step.group {
						case "member":
							s.names[i] = table.SlotName("orders", i)
						case "partition":
							s.names[i] = table.PartitionName("orders", name)
						}
					}
					change, act := step.begin(s)
					time.Sleep(time.Second)
					var unchanged []string
					before := map[string]map[string]table.Row{}
					for i, name := range s.names {
						if changed>>i&1 == 1 {
							change(name)
						} else {
							unchanged = append(unchanged, name)
						}
					}
					for _, name := range s.names {
						before[name] = s.rowsOf(name)
					}
					time.Sleep(time.Second)
					done, err := act()
					if step.all && changed != 0 || len(unchanged) == 0 {
						assert.ErrorIs(t, err, step.none)
						unchanged = nil
					} else {
						assert.NoError(t, err)
					}
					switch {
					case done != nil && what == "Prune":
						assert.Len(t, done, len(unchanged))
					case len(done) > 0:
						assert.Equal(t, unchanged, done)
					}
					for _, name := range s.names {
						assert.Equal(t, slices.Contains(unchanged, name), !maps.Equal(before[name], s.rowsOf(name)), name)
					}
				})
			})
		}
	}
}

// A claim ends every earlier term of its locks, also those of lease rows that a manual change has separated from their
// lock row. Otherwise, the fence of such a term would accept writes during the next one.
func TestAClaimLeavesNoLeaseRowOfAnEarlierTerm(t *testing.T) {
	for what, claim := range map[string]func(s scene, seen []table.Observation) error{
		"Claim": func(s scene, seen []table.Observation) error {
			_, err := s.Claim(s.Context(), "me", seen...)
			return err
		},
		"ClaimPartitions": func(s scene, seen []table.Observation) error {
			_, _, err := s.ClaimPartitions(s.Context(), table.LeaseRef{Name: table.SlotName("orders", 7), Token: 7}, seen...)
			return err
		},
		"EvictMembers": func(s scene, seen []table.Observation) error {
			_, err := s.EvictMembers(s.Context(), seen...)
			return err
		},
	} {
		for orphans := range 4 {
			for _, row := range []string{"no", "a torn", "an own"} {
				if row == "no" && what == "EvictMembers" {
					continue // a slot without a row has no member
				}
				synctest.Test(t, func(t *testing.T) {
					store := &memstore.Store{}
					s := scene{t, store, table.Table{Store: store}, []string{"a", "b"}}
					for _, name := range append(s.names, "other") {
						for i := range orphans {
							require.NoError(t, store.Commit(t.Context(), "by hand", []table.Write{{Kind: table.Insert, Name: table.LeaseKey(name, table.Token(i+17)), Set: []table.Cell{
								{Column: table.ColHeartbeat, Value: table.Now}, {Column: table.ColWriter, Value: `{"lease":"1s"}`}}}}))
						}
						if row == "no" {
							continue
						}
						require.NoError(t, store.Commit(t.Context(), "by hand", []table.Write{{Kind: table.Insert, Name: name, Set: []table.Cell{
							{Column: table.ColHeartbeat, Value: table.Now}, {Column: table.ColToken, Value: time.UnixMicro(3)}}}}))
						if row == "an own" && orphans == 0 {
							require.NoError(t, store.Commit(t.Context(), "by hand", []table.Write{{Kind: table.Insert, Name: table.LeaseKey(name, 3), Set: []table.Cell{{Column: table.ColWriter, Value: `{"lease":"1s"}`}}}}))
						}
					}
					other := s.rowsOf("other")
					time.Sleep(time.Minute)
					require.NoError(t, claim(s, s.look()), "%s, %d orphans, %s lock row", what, orphans, row)
					for _, name := range s.names {
						assert.Len(t, s.rowsOf(name), 1, "%s, %d orphans, %s lock row", what, orphans, row)
						assert.Contains(t, s.rowsOf(name), name)
					}
					assert.True(t, maps.Equal(other, s.rowsOf("other")), "another lock has its own rows")
				})
			}
		}
	}
}

// A holder whose token is no longer valid reports a lost lock unless it released each of its locks itself. Whoever
// holds the lock now, what counts is how the term ended.
func TestOnlyOwnReleasesAreTakenForSuch(t *testing.T) {
	ctx := t.Context()
	type end struct {
		own  bool // as the holder with the id is told
		anon bool // as a holder without an id is told
		how  func(tab table.Table, name string, token table.Token)
	}
	claim := func(id string, tab table.Table, name string) table.Token {
		token, err := tab.Claim(ctx, id, look(t, tab, name)...)
		require.NoError(t, err)
		return token
	}
	confirm := func(tab table.Table, name string, token table.Token) {
		require.NoError(t, tab.Confirm(ctx, token, table.LeaseRecord{Lease: time.Hour}, name))
	}
	release := func(tab table.Table, name string, token table.Token) {
		require.NoError(t, tab.Release(ctx, token, name))
	}
	breaks := func(tab table.Table, name string, token table.Token) { require.NoError(t, tab.Break(ctx, token, name)) }
	ends := map[string]end{
		"none":     {false, false, func(table.Table, string, table.Token) {}},
		"released": {true, true, release},
		"released with a free row": {true, true, func(tab table.Table, name string, token table.Token) {
			require.NoError(t, tab.ReleaseFree(ctx, token, time.Hour, name))
		}},
		"released, and claimed by another": {true, true, func(tab table.Table, name string, token table.Token) {
			release(tab, name, token)
			confirm(tab, name, claim("other", tab, name))
		}},
		"released, and then another's term was broken": {false, false, func(tab table.Table, name string, token table.Token) {
			release(tab, name, token)
			next := claim("other", tab, name)
			confirm(tab, name, next)
			breaks(tab, name, next)
		}},
		"broken": {false, false, breaks},
		"broken, and claimed by another": {false, false, func(tab table.Table, name string, token table.Token) {
			breaks(tab, name, token)
			confirm(tab, name, claim("other", tab, name))
		}},
		"reclaimed": {false, true, func(tab table.Table, name string, token table.Token) { claim("me", tab, name) }},
		"reclaimed and confirmed": {false, true, func(tab table.Table, name string, token table.Token) {
			confirm(tab, name, claim("me", tab, name))
		}},
		"released, reclaimed and released": {true, true, func(tab table.Table, name string, token table.Token) {
			release(tab, name, token)
			next := claim("me", tab, name)
			confirm(tab, name, next)
			release(tab, name, next)
		}},
		"reclaimed and withdrawn": {true, true, func(tab table.Table, name string, token table.Token) {
			require.NoError(t, tab.Withdraw(ctx, claim("me", tab, name), name))
		}},
		"deleted by hand": {false, false, func(tab table.Table, name string, token table.Token) {
			drop(t, tab, name, table.LeaseKey(name, token))
		}},
	}
	for first, a := range ends {
		for second, b := range ends {
			tab := table.Table{Store: &memstore.Store{}}
			for _, name := range []string{"a", "b"} { // an earlier term was broken
				token := claim("me", tab, name)
				confirm(tab, name, token)
				breaks(tab, name, token)
			}
			token, err := tab.Claim(ctx, "me", look(t, tab, "a", "b")...)
			require.NoError(t, err)
			require.NoError(t, tab.Confirm(ctx, token, table.LeaseRecord{Lease: time.Hour}, "a", "b"))
			a.how(tab, "a", token)
			b.how(tab, "b", token)
			own, err := tab.GivenBack(ctx, token, "me", "a", "b")
			require.NoError(t, err)
			assert.Equal(t, a.own && b.own, own, "%s; %s", first, second)
			anon, err := tab.GivenBack(ctx, token, "", "a", "b")
			require.NoError(t, err)
			assert.Equal(t, a.anon && b.anon, anon, "%s; %s: without an id", first, second)
		}
	}
}
