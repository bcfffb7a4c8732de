package elect

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/spindle-lock/spindle/internal/table"
	"github.com/spindle-lock/spindle/internal/testkit/memstore"
)

// quick returns a candidate that uses free rows, on a link of its own.
func quick(id string, store table.Store) (*Candidate, *memstore.Link) {
	link := &memstore.Link{Store: store}
	c := candidate(id, link, "lock")
	c.FreeRows = true
	return c, link
}

// given returns a table with a lock that was released with a free row.
func given(t *testing.T) *memstore.Store {
	store := &memstore.Store{}
	c, _ := quick("first", store)
	step := c.Try(t.Context(), All, lease/3)
	require.NotNil(t, step.Term)
	require.NoError(t, step.Term.Release(t.Context(), errors.New("given back")))
	return store
}

// isFree checks that the lock can be claimed by its free row, and that no other trace of it is left.
func isFree(t *testing.T, store *memstore.Store) {
	t.Helper()
	row := store.Rows()["lock"]
	assert.Zero(t, row.Heartbeat)
	assert.Len(t, store.Rows(), 2)
	assert.Contains(t, store.Rows()[table.LeaseKey("lock", table.TokenAt(row.Token))].Writer, `"free":true`)
}

// A waiter finds the release and the free row in one look, and takes the lock and gives it back in one request each.
func TestAWaiterTakesAReleasedLockInTwoRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := given(t)
		holder, _ := quick("holder", store)
		waiter, link := quick("waiter", store)
		for range 3 {
			held := holder.Try(t.Context(), All, lease/3)
			require.NotNil(t, held.Term)
			require.Nil(t, waiter.Try(t.Context(), All, lease/3).Term)
			require.NoError(t, held.Term.Release(t.Context(), errors.New("given back")))
			link.Counts()
			step := waiter.Try(t.Context(), All, lease/3)
			require.NotNil(t, step.Term)
			require.NoError(t, step.Term.Release(t.Context(), errors.New("given back")))
			assert.Equal(t, map[string]int{"observe": 1, "claim": 1, "release": 1}, link.Counts())
		}
	})
}

func TestALostMessageOfAClaimCostsNoLease(t *testing.T) {
	for name, fault := range map[string]func(*memstore.Link){
		"request lost": func(l *memstore.Link) { l.Lose(memstore.Once("claim"), nil) },
		"reply lost":   func(l *memstore.Link) { l.Lose(nil, memstore.Once("claim")) },
		"sent again":   func(l *memstore.Link) { l.Again(memstore.Once("claim")) },
		"unavailable": func(l *memstore.Link) {
			once := memstore.Once("claim")
			l.Refuse(func(step string) error {
				if once(step) {
					return status.Error(codes.Unavailable, "try again")
				}
				return nil
			})
		},
		"reply lost, and the first read": func(l *memstore.Link) { l.Lose(memstore.Once("outcome"), memstore.Once("claim")) },
		"answered late": func(l *memstore.Link) {
			once := memstore.Once("claim")
			l.After(func(step string) {
				if once(step) {
					time.Sleep(lease / 5)
				}
			})
		},
		"reply lost, and a heartbeat": func(l *memstore.Link) { l.Lose(memstore.Once("heartbeat"), memstore.Once("claim")) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := given(t)
				c, link := quick("a", store)
				fault(link)
				start := time.Now()
				step := c.Try(t.Context(), All, lease/3)
				require.NotNil(t, step.Term, "%v", step.Err)
				defer step.Term.End(nil)
				assert.Less(t, time.Since(start), lease)
				assert.True(t, step.Term.Held())
				o, err := c.Table.Observe(t.Context(), "lock")
				require.NoError(t, err)
				assert.Equal(t, step.Term.Token(), o[0].Token)
				assert.LessOrEqual(t, time.Now().Add(step.Term.Left()), o[0].Heartbeat.Add(Limit(lease)), "its deadline is before the end of its lease")
			})
		})
	}
}

// For a missing free row, Spanner returns the same error as for a row that does not exist, which is usually a lasting
// error. Here it is not.
func TestAClaimWhoseFreeRowIsGoneIsOnlyLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := given(t)
		a, _ := quick("a", store)
		b, link := quick("b", store)
		seen, err := b.Look(t.Context())
		require.NoError(t, err)
		step := a.Try(t.Context(), All, lease/3)
		require.NotNil(t, step.Term)
		defer step.Term.End(nil)
		link.Refuse(refusingStep("claim", fmt.Errorf("%w: %w", table.ErrMissing, status.Error(codes.NotFound, "Row [lock_0946684800000003] in table locktable is missing. Row cannot be updated."))))
		_, err = b.claim(t.Context(), b.Table, seen...)
		require.True(t, First(err), "%v", err)
	})
}

// Nor does a claim go on after its table was deleted.
func TestAClaimEndsWhereThereIsNoTable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, link := quick("a", given(t))
		seen, err := c.Look(t.Context())
		require.NoError(t, err)
		gone := status.Error(codes.NotFound, "Table not found: locktable")
		link.Refuse(func(step string) error {
			if step == "claim" {
				return status.Error(codes.Unavailable, "the reply was lost")
			}
			return fmt.Errorf("%w: %w", table.ErrMissing, gone)
		})
		_, err = c.claim(t.Context(), c.Table, seen...)
		require.ErrorIs(t, err, gone)
		assert.Equal(t, table.NoTable, table.FaultOf(err))
		assert.Equal(t, map[string]int{"observe": 1, "claim": 1, "outcome": 1}, link.Counts())
	})
}

// If a claim takes its free row, and its reply is lost, the same claim finds no free row when it is sent again. If the
// outcome can't be read until the claim is too old, the error is about that, because a missing row explains nothing.
func TestAnUnknownOutcomeNamesWhatIsInTheWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, link := quick("a", given(t))
		seen, err := c.Look(t.Context())
		require.NoError(t, err)
		link.Again(memstore.Once("claim"))
		link.Refuse(func(step string) error {
			if step == "claim" {
				return nil
			}
			return status.Error(codes.Unavailable, "away")
		})
		_, err = c.claim(t.Context(), c.Table, seen...)
		require.ErrorContains(t, err, "away")
		assert.Equal(t, table.Unreachable, table.FaultOf(err))
		assert.False(t, errors.Is(err, table.ErrMissing))
	})
}

// refusingStep answers one of the steps with an error.
func refusingStep(step string, err error) func(string) error {
	return func(s string) error {
		if s == step {
			return err
		}
		return nil
	}
}

// If two claimants look at the same instant, and so choose the same token, the one whose claim is refused holds
// nothing, and sends nothing under that token. Both can belong to one process: an abandoned claim and the next one.
func TestAClaimThatWasLostIsNotTakenForTheOwn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := given(t)
		a, _ := quick("id", store)
		b, link := quick("id", store)
		seenA, err := a.Look(t.Context())
		require.NoError(t, err)
		seenB, err := b.Look(t.Context())
		require.NoError(t, err)
		seenB[0].At = seenA[0].At
		term, err := a.claim(t.Context(), a.Table, seenA...)
		require.NoError(t, err)
		defer term.End(nil)
		none, err := b.claim(t.Context(), b.Table, seenB...)
		require.Nil(t, none)
		assert.True(t, First(err), "%v", err)
		assert.Equal(t, map[string]int{"observe": 1, "claim": 1, "outcome": 1}, link.Counts())
		seenB, err = b.Look(t.Context())
		require.NoError(t, err)
		assert.Equal(t, term.Token(), seenB[0].Token)
		assert.Greater(t, seenB[0].FreeIn, lease/2, "it is not its own last term")
	})
}

// A claim is not held if it is acknowledged only after its lease has ended.
func TestAClaimThatIsAcknowledgedTooLateIsGivenBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := given(t)
		c, link := quick("a", store)
		once := memstore.Once("claim")
		link.After(func(step string) {
			if once(step) {
				time.Sleep(Limit(lease))
			}
		})
		step := c.Try(t.Context(), All, lease/3)
		assert.Nil(t, step.Term)
		require.ErrorIs(t, step.Err, errLate)
		isFree(t, store)
	})
}

// At whatever time the caller stops waiting, nothing is left of its claim, and requests in progress have no effect. That is so even if
// each request that should see to it is refused once.
func TestAClaimThatIsGivenUpLeavesTheLockFree(t *testing.T) {
	faults := map[string]func(*memstore.Link){
		"requests lost": func(l *memstore.Link) { l.Lose(func(step string) bool { return step == "claim" }, nil) },
		"replies lost, and all reads": func(l *memstore.Link) {
			l.Lose(memstore.Once("outcome"), func(step string) bool { return step == "claim" })
		},
		"requests lost, and a retract": func(l *memstore.Link) {
			l.Lose(func(step string) bool { return step == "claim" }, memstore.Once("retract"))
		},
		"requests lost, and a retract's": func(l *memstore.Link) {
			retract := memstore.Once("retract")
			l.Lose(func(step string) bool { return step == "claim" || retract(step) }, nil)
		},
	}
	for _, applied := range []bool{false, true} {
		for _, refused := range []string{"retract", "outcome", "release", "retract outcome release"} {
			faults[fmt.Sprintf("claims applied: %v, and refused once: %s", applied, refused)] = func(l *memstore.Link) {
				claims, had, givenUp := func(step string) bool { return step == "claim" }, map[string]bool{}, false
				if applied {
					l.Lose(nil, claims)
				} else {
					l.Lose(claims, nil)
				}
				l.Refuse(func(step string) error {
					if givenUp = givenUp || step == "retract"; !givenUp && step != "outcome" || givenUp && (had[step] || !strings.Contains(refused, step)) {
						return nil
					}
					had[step] = givenUp
					return status.Error(codes.Unavailable, "refused")
				})
			}
		}
	}
	for name, fault := range faults {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := given(t)
				c, link := quick("a", store)
				fault(link)
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				var late []table.Write
				c.Table.Store = table.Via(func(ctx context.Context, step string, call func(context.Context, table.Store) error) error {
					return call(ctx, recording{link, step, &late})
				})
				step := c.Try(ctx, All, lease/3)
				require.Nil(t, step.Term)
				require.Error(t, step.Err)
				isFree(t, store)
				require.ErrorIs(t, store.Commit(t.Context(), "late", late), table.ErrMissing)
				isFree(t, store)
			})
		})
	}
}

// A refused attempt says nothing about an earlier one, which may have claimed the lock. Unless that claim is retracted or released,
// the lock stays blocked for a lease.
func TestARefusalAfterAClaimOfUnknownOutcomeLeavesTheLockFree(t *testing.T) {
	for _, applied := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			store := given(t)
			c, link := quick("a", store)
			claim, other, claims := memstore.Once("claim"), memstore.Once("outcome"), 0
			link.Lose(func(step string) bool { return other(step) || !applied && claim(step) }, func(step string) bool { return applied && claim(step) })
			link.Refuse(func(step string) error {
				if step == "claim" {
					claims++
				}
				if step == "claim" && claims == 2 {
					return status.Error(codes.PermissionDenied, "no")
				}
				return nil
			})
			step := c.Try(t.Context(), All, lease/3)
			require.Nil(t, step.Term)
			require.ErrorContains(t, step.Err, "no")
			assert.Equal(t, 2, claims)
			isFree(t, store)
		})
	}
}

// recording records the writes of a claim.
type recording struct {
	table.Store
	step  string
	claim *[]table.Write
}

func (r recording) Commit(ctx context.Context, step string, writes []table.Write) error {
	if step == "claim" {
		*r.claim = writes
	}
	return r.Store.Commit(ctx, step, writes)
}

// Spanner refuses a token that is newer than its present time. The candidate then takes the steps that need no such
// token.
func TestALockIsClaimedWhoseTokenSpannerRefuses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, link := quick("a", given(t))
		once := memstore.Once("claim")
		link.Refuse(func(step string) error {
			if once(step) {
				return status.Error(codes.FailedPrecondition, "Cannot write timestamps in the future")
			}
			return nil
		})
		step := c.Try(t.Context(), All, lease/3)
		require.NotNil(t, step.Term, "%v", step.Err)
		step.Term.End(nil)
		assert.Equal(t, map[string]int{"observe": 1, "claim": 2, "confirm": 1}, link.Counts())
	})
}

// Deleting the lock row by hand during a claim blocks no candidate.
func TestALockWhoseRowIsDeletedUnderAClaimIsClaimedAnew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := given(t)
		c, _ := quick("a", store)
		seen, err := c.Look(t.Context())
		require.NoError(t, err)
		require.NoError(t, store.Commit(t.Context(), "operator", []table.Write{{Kind: table.Delete, Name: "lock"}}))
		_, err = c.claim(t.Context(), c.Table, seen...)
		require.True(t, First(err), "%v", err)
		step := c.Try(t.Context(), All, lease/3)
		require.NotNil(t, step.Term, "%v", step.Err)
		step.Term.End(nil)
		assert.Len(t, store.Rows(), 2, "the free row is gone")
	})
}
