package elect_test

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spindle-lock/spindle"
	"github.com/spindle-lock/spindle/internal/operator"
	"github.com/spindle-lock/spindle/internal/table"
	"github.com/spindle-lock/spindle/internal/testkit/fleet"
)

func TestAtMostTwoRowsAndOneAfterRelease(t *testing.T) {
	fleet.InVirtualTime(t, func(b *fleet.Fleet) {
		a := b.Start("a", spindle.WithValue("http://a"))
		rows := b.Store.Rows()
		require.Len(t, rows, 2)
		leaseRow := rows[table.LeaseKey("mylock", table.Token(a.Token()))]
		assert.JSONEq(t, `{"v":1,"lease":"10s","id":"a","value":"http://a","kind":"elector"}`, leaseRow.Writer)
		b.End(a)
		rows = b.Store.Rows()
		require.Len(t, rows, 1)
		assert.True(t, rows["mylock"].Heartbeat.IsZero())
		assert.Empty(t, rows["mylock"].Writer)
	})
}

func TestALockRowDeletedUnderAPausedHolder(t *testing.T) {
	fleet.InVirtualTime(t, func(b *fleet.Fleet) {
		a := b.Start("a")
		time.Sleep(time.Minute)
		token := a.Token()
		a.Link.Cut()
		b.Operator(table.Write{Kind: table.Delete, Name: "mylock"})
		fresh := b.Start("b") // knows nothing of a but its orphan lease
		b.Until(2*fleet.Lease, func() bool { require.False(t, a.Has() && fresh.Has()); return fresh.Has() })
		assert.NotContains(t, b.Store.Rows(), fleet.Key(token))
		a.Link.Mend()
		time.Sleep(fleet.Lease)
		assert.False(t, a.Has(), "its late heartbeats find no lease row")
		b.End(a, fresh)
	})
}

func TestAHolderThatWasSeenIsWaitedForEvenIfItsRowsVanish(t *testing.T) {
	fleet.InVirtualTime(t, func(b *fleet.Fleet) {
		first := b.Start("first")
		c := b.Start("b")
		// From now on the candidate sees who holds the lock, but not the lease of a holder that it has not seen before.
		c.Link.Lose(func(step string) bool { return step == "lease-record" || step == "claim" }, nil)
		first.Stop()
		<-first.Done
		time.Sleep(fleet.Lease)
		a := b.Start("a")
		require.True(t, a.Has())
		time.Sleep(fleet.Lease)
		c.Link.Lose(func(step string) bool { return step == "lease-record" }, nil)
		a.Link.Cut()
		b.Operator(table.Write{Kind: table.Delete, Name: "mylock"}, table.Write{Kind: table.Delete, Name: fleet.Key(a.Token())})
		b.Until(3*fleet.Lease, func() bool { require.False(t, a.Has() && c.Has()); return c.Has() })
		b.End(a, c)
	})
}

func TestATermThatBeganBetweenTwoReadsIsNotDatedBack(t *testing.T) {
	fleet.InVirtualTime(t, func(b *fleet.Fleet) {
		slow := b.Machine("slow", spindle.WithPoll(100*time.Millisecond))
		var holder *fleet.Machine
		first := true
		slow.Link.After(func(step string) {
			if !first || step != "observe" {
				return
			}
			// After its first read, which found no row, the candidate's machine is suspended for a while.
			first = false
			holder = b.Machine("b", spindle.WithLease(3*time.Second))
			ctx, stop := context.WithCancel(context.Background())
			holder.Stop = stop
			require.NoError(t, holder.Run(ctx, holder.Done))
			time.Sleep(3100 * time.Millisecond)
			require.NoError(t, b.Store.Commit(context.Background(), "operator", []table.Write{{Kind: table.Delete, Name: "mylock"}}))
			holder.Link.Cut()
		})
		b.Run(slow)
		b.Until(3*fleet.Lease, func() bool {
			require.False(t, holder != nil && holder.Has() && slow.Has(), "two holders")
			return slow.Has()
		})
		b.End(slow, holder)
	})
}

func TestASeenLeaseDoesNotOutliveItsTerm(t *testing.T) {
	fleet.InVirtualTime(t, func(b *fleet.Fleet) {
		a, c := b.Start("a", spindle.WithLease(time.Hour)), b.Start("b")
		a.Stop()
		<-a.Done
		b.Until(fleet.Lease, c.Has)
		time.Sleep(time.Hour)
		b.Operator(table.Write{Kind: table.Delete, Name: "mylock"})
		token := c.Token()
		b.Until(fleet.Lease, func() bool { return c.Token() > token }) // the lease of a term long past is not waited for
		b.End(c)
	})
}

func TestOtherLocksRowsAreLeftAlone(t *testing.T) {
	fleet.InVirtualTime(t, func(b *fleet.Fleet) {
		for _, name := range []string{"mylock_b", "mylock_12", "mylock_5", "mylock_b_1234567890123456", "mylock_12345678901234567"} {
			b.Operator(table.Write{Kind: table.Insert, Name: name, Set: []table.Cell{{Column: table.ColWriter, Value: "somebody"}}})
		}
		a := b.Start("a")
		assert.True(t, a.Has())
		assert.Len(t, b.Store.Rows(), 7)
		b.End(a)
		assert.Len(t, b.Store.Rows(), 6)
	})
}

func TestARowThatSomebodyChangedDoesNotMakeALastingSecondHolder(t *testing.T) {
	fleet.InVirtualTime(t, func(b *fleet.Fleet) {
		a := b.Start("a")
		b.Operator(table.Write{Kind: table.Update, Name: "mylock", Set: []table.Cell{
			{Column: table.ColToken, Value: time.Unix(1, 0)}, {Column: table.ColHeartbeat, Value: time.Unix(2, 0)}}})
		c := b.Start("c")
		require.True(t, c.Has(), "the row says that its lease is over")
		time.Sleep(fleet.Lease)
		assert.False(t, a.Has(), "its next heartbeat tells")
		b.End(c, a)
	})
}

func TestAnAbsenceIsOverOnceTheRowIsSeenEvenIfItsLeaseRecordIsNot(t *testing.T) {
	fleet.InVirtualTime(t, func(b *fleet.Fleet) {
		c := b.Machine("b")
		c.Link.Lose(func(step string) bool { return step == "claim" || step == "lease-record" }, nil)
		b.Run(c) // sees no row, and can't claim
		time.Sleep(fleet.Lease)
		a := b.Start("a")
		time.Sleep(5 * fleet.Lease) // c sees a's row
		c.Link.Mend()
		a.Link.Cut()
		b.Operator(table.Write{Kind: table.Delete, Name: "mylock"}, table.Write{Kind: table.Delete, Name: fleet.Key(a.Token())})
		b.Until(3*fleet.Lease, func() bool { require.False(t, a.Has() && c.Has(), "two holders"); return c.Has() })
		b.End(a, c)
	})
}

// A newer version might hold the lock by rules that this one does not know, and a record that can't be read might be of any
// lease. So the lock's rows are left alone, however much time has passed and whatever their state is.
func TestALockOfANewerVersionIsLeftToIt(t *testing.T) {
	gone, reclaims := table.Write{Kind: table.Delete, Name: fleet.Name}, table.Write{Kind: table.Update, Name: fleet.Name, Set: []table.Cell{{Column: table.ColWriter, Value: "b"}}}
	for says, why := range map[string]string{`{"v":2,"lease":10}`: "update this program", "ten seconds": "stays taken"} {
		for name, change := range map[string][]table.Write{"it is held": nil, "its lock row is gone": {gone}, "it is said to reclaim": {reclaims}} {
			t.Run(name+", "+why, func(t *testing.T) {
				fleet.InVirtualTime(t, func(b *fleet.Fleet) {
					var log fleet.Log
					a := b.Start("a")
					key := fleet.Key(a.Token())
					b.Operator(append([]table.Write{{Kind: table.Update, Name: key, Set: []table.Cell{{Column: table.ColWriter, Value: says}}}}, change...)...)
					a.Link.Cut()
					c := b.Start("b", spindle.WithReclaim(), spindle.WithLogger(slog.New(slog.NewTextHandler(&log, nil))))
					before := b.Store.Rows()
					time.Sleep(2 * time.Minute)
					require.ErrorContains(t, c.Health(), why)
					time.Sleep(time.Hour)
					assert.False(t, c.Has())
					assert.Equal(t, before, b.Store.Rows())
					assert.Equal(t, 1, strings.Count(log.String(), "level=WARN"), log.String())
					assert.Contains(t, log.String(), why)

					b.Operator(table.Write{Kind: table.Delete, Name: key}, table.Write{Kind: table.Put, Name: fleet.Name, Set: []table.Cell{{Column: table.ColHeartbeat, Value: nil}, {Column: table.ColToken, Value: table.Now}, {Column: table.ColWriter, Value: nil}}})
					b.Until(fleet.Lease, c.Has)
					assert.NoError(t, c.Health())
					b.End(a, c)
				})
			})
		}
	}
}

// prune deletes the locks that expired a day ago.
func prune(t *testing.T, b *fleet.Fleet) (pruned int) {
	tab := table.Table{Store: b.Store}
	for seen, err := range operator.Prunable(t.Context(), tab, operator.Ages{Released: time.Hour, Expired: 24 * time.Hour}) {
		require.NoError(t, err)
		n, err := tab.Prune(t.Context(), seen...)
		require.NoError(t, err)
		pruned += n
	}
	return pruned
}

// The holder, and the candidates that have seen it, were cut off for more than a day, and its rows were pruned in that
// time. They all come back at the same time as a candidate that has never seen the lock.
func TestAfterAnExpiredLockIsPrunedThereIsOneHolder(t *testing.T) {
	fleet.InVirtualTime(t, func(b *fleet.Fleet) {
		a, c := b.Start("a"), b.Start("c")
		first := a.Token()
		time.Sleep(time.Minute)
		a.Link.Cut()
		c.Link.Cut()
		time.Sleep(24*time.Hour + fleet.Lease)
		require.Equal(t, 1, prune(t, b))
		require.Empty(t, b.Store.Rows())
		d := b.Machine("d")
		a.Link.Mend()
		c.Link.Mend()
		b.Run(d)
		machines := []*fleet.Machine{a, c, d}
		holders := func() (n int) {
			for _, m := range machines {
				if m.Has() {
					n++
					assert.Greater(t, m.Token(), first)
				}
			}
			return n
		}
		b.Until(fleet.Lease/10, func() bool { return holders() == 1 })
		for end := time.Now().Add(5 * fleet.Lease); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
			require.Equal(t, 1, holders())
		}
		b.End(machines...)
	})
}

// Whatever an operator does to the rows of a holder, no other candidate gets the lock while the holder has it, even if the
// holder can't learn of it.
func TestDamagedRowsMakeNoSecondHolder(t *testing.T) {
	lockRow, leaseRow := table.Write{Kind: table.Delete, Name: fleet.Name}, func(k spindle.Token) table.Write { return table.Write{Kind: table.Delete, Name: fleet.Key(k)} }
	token := func(value any) table.Write {
		return table.Write{Kind: table.Update, Name: fleet.Name, Set: []table.Cell{{Column: table.ColToken, Value: value}}}
	}
	for name, damage := range map[string]func(spindle.Token) []table.Write{
		"no lock row":     func(spindle.Token) []table.Write { return []table.Write{lockRow} },
		"no lease row":    func(k spindle.Token) []table.Write { return []table.Write{leaseRow(k)} },
		"neither":         func(k spindle.Token) []table.Write { return []table.Write{leaseRow(k), lockRow} },
		"no token":        func(spindle.Token) []table.Write { return []table.Write{token(nil)} },
		"a changed token": func(spindle.Token) []table.Write { return []table.Write{token(time.Unix(1, 0))} },
	} {
		for _, cut := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, cut off %v", name, cut), func(t *testing.T) {
				fleet.InVirtualTime(t, func(b *fleet.Fleet) {
					a, c := b.Start("a", spindle.WithLease(3*fleet.Lease)), b.Start("c")
					time.Sleep(time.Minute)
					first := a.Token()
					b.Operator(damage(first)...)
					if cut {
						a.Link.Cut()
					}
					for end := time.Now().Add(4 * fleet.Lease); time.Now().Before(end); time.Sleep(fleet.Lease / 100) {
						require.False(t, a.Has() && c.Has())
					}
					if cut || damage(first)[0].Kind == table.Delete {
						assert.Greater(t, max(a.Token(), c.Token()), first, "the lock is claimed again")
					}
					if !cut && damage(first)[0].Kind == table.Delete {
						assert.ErrorIs(t, a.Seen.All()[1].Err, spindle.ErrSuperseded)
					}
					b.End(a, c)
				})
			})
		}
	}
}
