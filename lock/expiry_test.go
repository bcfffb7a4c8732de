package lock

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"

	"github.com/spindle-lock/spindle"
	"github.com/spindle-lock/spindle/internal/operator"
	"github.com/spindle-lock/spindle/internal/options"
	"github.com/spindle-lock/spindle/internal/table"
	"github.com/spindle-lock/spindle/internal/testkit/fleet"
	"github.com/spindle-lock/spindle/internal/testkit/memstore"
	"github.com/spindle-lock/spindle/internal/wait"
)

// The tests in this file are about the tickets of waiters that have gone: those that give up delete their tickets before
// they return, and the tickets of those that died expire.

// linked returns a mutex in a process whose connection can fail.
func (g *fairground) linked(process, name string, opts ...Option) (*Mutex, *memstore.Link) {
	link := &memstore.Link{Store: g.spanner}
	return New(nil, "locktable", name, append(opts, silent, options.Option(func(c *options.Config) { c.Store, c.Process = link, g.Name()+" "+process }))...), link
}

// waiters returns how many waiters a lock has, as operators see it.
func (g *fairground) waiters(name string) int {
	l, err := operator.ListOne(context.Background(), table.Table{Store: g.rows}, name)
	require.NoError(g, err)
	return len(l.Waiters)
}

// holdAll makes another process hold the locks a and b and the semaphore s.
func (g *fairground) holdAll() (giveBack func()) {
	set, s := All(nil, "locktable", []string{"a", "b"}, g.options("holder", 0)...), NewSemaphore(nil, "locktable", "s", 1, g.options("holder", 0)...)
	require.NoError(g, set.Lock(g.ctx))
	p, err := s.Acquire(g.ctx)
	require.NoError(g, err)
	return func() {
		require.NoError(g, set.Unlock(g.ctx))
		require.NoError(g, p.Release(g.ctx))
	}
}

// ways are the ways to wait for what holdAll holds.
func (g *fairground) ways() map[string]func(context.Context, ...Option) error {
	return map[string]func(context.Context, ...Option) error{
		"Lock": func(ctx context.Context, opts ...Option) error {
			return New(nil, "locktable", "a", opts...).Lock(ctx)
		},
		"Set.Lock": func(ctx context.Context, opts ...Option) error {
			return All(nil, "locktable", []string{"a", "b"}, opts...).Lock(ctx)
		},
		"Acquire": func(ctx context.Context, opts ...Option) error {
			_, err := NewSemaphore(nil, "locktable", "s", 1, opts...).Acquire(ctx)
			return err
		},
		"Once.Do": func(ctx context.Context, opts ...Option) error {
			_, err := NewOnce(nil, "locktable", "a", opts...).Do(ctx, KeyOf("1"), succeedNot)
			return err
		},
		"Do": func(ctx context.Context, opts ...Option) error {
			return Do(ctx, New(nil, "locktable", "a", opts...), func(context.Context) error { return nil })
		},
	}
}

func succeedNot(context.Context, Run) error { return errors.New("it ran") }

// A program can exit as soon as its calls have returned. So a call deletes its ticket first, even if ctx ends while the ticket is being written,
// or if the goroutines of the process end together and hand the ticket on to each other.
func TestAWaitThatEndsHasDeletedItsTicket(t *testing.T) {
	for name := range (&fairground{}).ways() {
		t.Run(name, func(t *testing.T) {
			takingTurns(t, func(g *fairground) {
				giveBack := g.holdAll()
				for after := time.Millisecond; after < 60*time.Millisecond; after += time.Millisecond {
					for _, calls := range []int{1, 3} {
						ctx, cancel := context.WithTimeout(g.ctx, after)
						began := time.Now()
						var all sync.WaitGroup
						for range calls {
							all.Go(func() {
								err := g.ways()[name](ctx, append(g.options("waiter", 6*time.Millisecond), options.Option(func(c *options.Config) { c.Store = overtaken{c.Store} }))...)
								assert.ErrorIs(t, err, context.DeadlineExceeded)
							})
						}
						all.Wait()
						assert.Empty(t, g.tickets(), "%d calls, after %v", calls, after)
						assert.LessOrEqual(t, time.Since(began), after+40*time.Millisecond, "the write in progress and a round trip")
						cancel()
						time.Sleep(100 * time.Millisecond)
						assert.Empty(t, g.tickets(), "a write that was in progress after %v", after)
					}
				}
				giveBack()
			})
		})
	}
}

// overtaken is a connection on which later requests overtake the write of a ticket. Like Spanner's client, it does not wait
// for the answer once ctx has ended.
type overtaken struct{ table.Store }

func (s overtaken) Commit(ctx context.Context, step string, writes []table.Write) error {
	if step != "queue" || writes[0].Kind != table.Put {
		return s.Store.Commit(ctx, step, writes)
	}
	answer := make(chan error, 1)
	go func() {
		time.Sleep(10 * time.Millisecond)
		answer <- s.Store.Commit(context.WithoutCancel(ctx), step, writes)
	}()
	select {
	case err := <-answer:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// tardyContext has a timer that fires a second late, as on a busy machine.
type tardyContext struct{ context.Context }

func (c tardyContext) Deadline() (time.Time, bool) {
	deadline, limited := c.Context.Deadline()
	return deadline.Add(-time.Second), limited
}

// A poll can fail because of ctx's deadline before ctx itself ends. That is no outage, so the call deletes its ticket before
// it returns.
func TestAPollThatTheDeadlineCutsOffIsNoFailure(t *testing.T) {
	for name := range (&fairground{}).ways() {
		t.Run(name, func(t *testing.T) {
			takingTurns(t, func(g *fairground) {
				giveBack := g.holdAll()
				ctx, cancel := context.WithTimeout(g.ctx, 2*time.Second)
				defer cancel()
				punctual := table.Via(func(ctx context.Context, step string, call func(context.Context, table.Store) error) error {
					if deadline, limited := ctx.Deadline(); limited && time.Until(deadline) <= 0 && step == "observe" {
						return refused(codes.DeadlineExceeded) // whether or not ctx has ended
					}
					return call(ctx, g.spanner)
				})
				err := g.ways()[name](tardyContext{ctx}, silent, options.Option(func(c *options.Config) { c.Store, c.Process = punctual, g.Name()+" waiter" }))
				require.ErrorIs(t, err, context.DeadlineExceeded)
				assert.Empty(t, g.tickets())
				giveBack()
			})
		})
	}
}

// Callers of a Once leave as soon as its key is done, and their tickets go with them.
func TestWhoLeavesBecauseTheKeyIsDoneHasDeletedItsTicket(t *testing.T) {
	takingTurns(t, func(g *fairground) {
		for i := range 5 {
			g.all.Go(func() {
				_, err := NewOnce(nil, "locktable", "o", g.options(fmt.Sprint("process ", i), 0)...).Do(g.ctx, KeyOf("1"), func(context.Context, Run) error {
					time.Sleep(2 * time.Second)
					assert.Len(t, g.tickets(), 4)
					return nil
				})
				assert.NoError(t, err)
				for _, row := range g.rows.Rows() {
					if table.IsTicket(row.Name) {
						assert.NotContains(t, row.Writer, g.Name()+fmt.Sprint(" process ", i)+`"`)
					}
				}
			})
		}
		g.all.Wait()
		assert.Empty(t, g.tickets())
	})
}

// The deletion delays a call by a tenth of its lease, at most half a second, and not at all if the call's last request
// has failed. It goes on in the background.
func TestAnOutageHardlyDelaysAWaitThatEnds(t *testing.T) {
	for lease, limit := range map[time.Duration]time.Duration{2 * time.Second: 200 * time.Millisecond, time.Minute: 500 * time.Millisecond} {
		for name := range (&fairground{}).ways() {
			t.Run(fmt.Sprint(name, " ", lease), func(t *testing.T) {
				takingTurns(t, func(g *fairground) {
					giveBack := g.holdAll()
					link := &memstore.Link{Store: g.spanner}
					opts := []Option{silent, spindle.WithLease(lease), options.Option(func(c *options.Config) { c.Store, c.Process = link, g.Name()+" waiter" })}
					wait := func(trouble func()) (late time.Duration) {
						ctx, cancel := context.WithTimeout(g.ctx, 2*time.Second)
						defer cancel()
						time.AfterFunc(time.Second, trouble)
						assert.ErrorIs(t, g.ways()[name](ctx, opts...), context.DeadlineExceeded)
						deadline, _ := ctx.Deadline()
						late = time.Since(deadline)
						assert.NotEmpty(t, g.tickets(), "the ticket could not be deleted")
						link.Mend()
						link.Refuse(nil)
						time.Sleep(healed)
						assert.Empty(t, g.tickets(), "it is deleted later")
						return late
					}
					assert.Equal(t, limit, wait(link.Cut))
					assert.Less(t, wait(func() { link.Refuse(func(string) error { return errors.New("unavailable") }) }), time.Millisecond)
					giveBack()
				})
			})
		}
	}
}

// healed is longer than an attempt at any step, and than the pause after it.
const healed = 20 * time.Second

// killed makes n processes wait for a lock, and kills them.
func (g *fairground) killed(n int, name string) {
	ctx, cancel := context.WithCancel(g.ctx)
	for i := range n {
		m, link := g.linked(fmt.Sprint("killed ", i), name)
		g.await(ctx, m)
		time.AfterFunc(time.Second, link.Cut)
	}
	time.Sleep(time.Second + time.Millisecond)
	cancel()
	require.Len(g, g.tickets(), n)
}

// The tickets of waiters that were killed expire. From then on, no waiter waits for them, no operator sees them, and the
// next claim deletes them.
func TestTicketsOfKilledWaitersLapse(t *testing.T) {
	takingTurns(t, func(g *fairground) {
		holder := g.mutex("holder", "m")
		require.NoError(t, holder.Lock(g.ctx))
		began := time.Now()
		g.killed(12, "m")
		next := g.await(g.ctx, g.mutex("next", "m"))
		time.Sleep(time.Until(began.Add(29 * time.Second)))
		assert.Equal(t, 13, g.waiters("m"))
		time.Sleep(time.Until(began.Add(30*time.Second + 500*time.Millisecond)))
		assert.Equal(t, 1, g.waiters("m"), "the living one")
		require.Len(t, g.tickets(), 13)
		time.Sleep(2 * time.Second) // a waiter polls at least once a second, so it knows that it is first now
		require.NoError(t, holder.Unlock(g.ctx))
		free := time.Now()
		require.NoError(t, <-next)
		assert.Less(t, time.Since(free), 550*time.Millisecond, "the pause of the first waiter, and a claim")
		assert.Empty(t, g.tickets())
	})
}

// Only the first tickets of a queue are read. So waiters also delete expired tickets while the lock stays held.
func TestExpiredTicketsDoNotHideTheQueue(t *testing.T) {
	takingTurns(t, func(g *fairground) {
		holder := g.mutex("holder", "m")
		require.NoError(t, holder.Lock(g.ctx))
		g.killed(80, "m")
		time.Sleep(time.Minute)
		next := g.await(g.ctx, g.mutex("next", "m"))
		time.Sleep(25 * time.Second)
		assert.Len(t, g.tickets(), 1)
		assert.Equal(t, 1, g.waiters("m"))
		require.NoError(t, holder.Unlock(g.ctx))
		require.NoError(t, <-next)
	})
}

// A living waiter counts for as long as it waits, at the cost of one commit in a third of the time for which a ticket
// counts, whether or not its ticket is among those that are read. A set renews its tickets every 20 seconds, as ever.
func TestALivingWaiterRenewsItsTicket(t *testing.T) {
	for lease, every := range map[time.Duration]time.Duration{10 * time.Second: 10 * time.Second, time.Minute: time.Minute} {
		for _, ahead := range fleet.Some(40, 0) {
			takingTurns(t, func(g *fairground) {
				set := All(nil, "locktable", []string{"m", "n"}, g.options("holder", 0)...)
				require.NoError(t, set.Lock(g.ctx))
				g.dead(ahead, "m")
				m, link := g.linked("waiter", "m", spindle.WithLease(lease))
				locked := g.await(g.ctx, m)
				sets := &memstore.Link{Store: g.spanner}
				time.Sleep(100 * time.Millisecond)
				both := g.await(g.ctx, All(nil, "locktable", []string{"m", "o"}, silent, spindle.WithLease(lease), options.Option(func(c *options.Config) { c.Store, c.Process = sets, g.Name()+" set" })))
				time.Sleep(time.Second)
				link.Counts()
				sets.Counts()
				began := time.Now()
				for time.Since(began) < 180*time.Second {
					time.Sleep(time.Second)
					list, _, err := operator.List(g.ctx, table.Table{Store: g.rows}, "m", true)
					require.NoError(t, err)
					require.Len(t, list[0].Waiters, ahead+2, "after %v", time.Since(began))
				}
				assert.InDelta(t, 180*time.Second/every, link.Counts()["queue"], 1, "lease %v", lease)
				assert.InDelta(t, 9, sets.Counts()["queue"], 1)
				g.stop()
				require.Error(t, <-locked)
				require.Error(t, <-both)
				require.NoError(t, set.Unlock(context.Background()))
				for _, key := range g.tickets() {
					g.delete(key)
				}
			})
		}
	}
}

// A process that is stopped for longer than its ticket counts, again and again, has its old place as soon as it
// continues, whether or not another waiter has deleted its ticket meanwhile.
func TestAStoppedWaiterHasItsOldPlace(t *testing.T) {
	for _, deleted := range []bool{false, true} {
		takingTurns(t, func(g *fairground) {
			holder := g.mutex("holder", "m")
			require.NoError(t, holder.Lock(g.ctx))
			m, link := g.linked("stopped", "m")
			first := g.stays(m, 1)
			own := g.tickets()[0]
			next := g.stays(g.mutex("next", "m"), 2)
			for range 5 {
				link.Cut()
				time.Sleep(45 * time.Second)
				if deleted {
					assert.NotContains(t, g.tickets(), own, "the next waiter has deleted it")
				}
				assert.Equal(t, 1, g.waiters("m"))
				link.Mend()
				time.Sleep(5 * time.Second)
				assert.Contains(t, g.tickets(), own)
				assert.Equal(t, 2, g.waiters("m"))
			}
			require.NoError(t, holder.Unlock(g.ctx))
			require.NoError(t, <-first)
			require.NoError(t, m.Unlock(g.ctx))
			require.NoError(t, <-next)
		})
	}
}

// A waiter that finds its ticket deleted by one that passed it writes the ticket again, even if it is too far back to
// see it.
func TestATicketThatIsTooFarBackIsPutAgain(t *testing.T) {
	takingTurns(t, func(g *fairground) {
		holder := g.mutex("holder", "m")
		require.NoError(t, holder.Lock(g.ctx))
		g.dead(40, "m")
		next := g.stays(g.mutex("next", "m"), 41)
		own := g.tickets()[40]
		g.delete(own)
		time.Sleep(12 * time.Second)
		assert.Contains(t, g.tickets(), own)
		time.Sleep(12 * time.Second)
		assert.Len(t, g.tickets(), 41, "it needs no other place")
		require.NoError(t, holder.Unlock(g.ctx))
		require.NoError(t, <-next)
		for _, key := range g.tickets() {
			g.delete(key)
		}
	})
}

// tardy is a connection that, while it is late, applies the commits that queue 25 seconds late, when nobody waits for
// them any more.
type tardy struct {
	table.Store
	late atomic.Bool
}

func (s *tardy) Commit(ctx context.Context, step string, writes []table.Write) error {
	if step != "queue" || !s.late.Load() {
		return s.Store.Commit(ctx, step, writes)
	}
	time.AfterFunc(25*time.Second, func() { _ = s.Store.Commit(context.WithoutCancel(ctx), step, writes) })
	<-ctx.Done()
	return ctx.Err()
}

// A renewal that arrives late brings back no ticket, neither of a waiter that has the lock nor of one that gave up.
func TestALateRenewalBringsNoTicketBack(t *testing.T) {
	for _, gives := range []bool{false, true} {
		takingTurns(t, func(g *fairground) {
			holder := g.mutex("holder", "m")
			require.NoError(t, holder.Lock(g.ctx))
			ctx, cancel := context.WithCancel(g.ctx)
			defer cancel()
			store := &tardy{Store: g.spanner}
			locked := g.await(ctx, New(nil, "locktable", "m", silent, options.Option(func(c *options.Config) { c.Store, c.Process = store, g.Name()+" waiter" })))
			time.Sleep(time.Second)
			store.late.Store(true)
			time.Sleep(9*time.Second + 500*time.Millisecond)
			store.late.Store(false)
			if gives {
				cancel()
				require.Error(t, <-locked)
			} else {
				require.NoError(t, holder.Unlock(g.ctx))
				require.NoError(t, <-locked)
			}
			time.Sleep(10 * time.Second)
			assert.Empty(t, g.tickets())
			time.Sleep(20 * time.Second)
			assert.Empty(t, g.tickets(), "not even by the late renewal")
			if gives {
				require.NoError(t, holder.Unlock(g.ctx))
			}
		})
	}
}

// A killed waiter that knew fewer slots keeps no one from the others.
func TestTheSizeOfAnExpiredTicketDoesNotCount(t *testing.T) {
	takingTurns(t, func(g *fairground) {
		large := NewSemaphore(nil, "locktable", "s", 2, g.options("large", 0)...)
		first, err := large.Acquire(g.ctx)
		require.NoError(t, err)
		second, err := large.Acquire(g.ctx)
		require.NoError(t, err)
		if first.names[0] > second.names[0] {
			first, second = second, first
		}
		require.NoError(t, second.Release(g.ctx)) // the one that the small size does not have
		dead := table.Ticket{Queue: wait.SlotQueue("s"), Time: 1, Nonce: "dead", Slots: 1, Lasts: 30 * time.Second}
		require.NoError(t, g.rows.Commit(g.ctx, "test", []table.Write{dead.Put()}))
		time.Sleep(31 * time.Second)
		again, ok, err := large.TryAcquire(g.ctx)
		require.NoError(t, err)
		require.True(t, ok)
		assert.Empty(t, g.tickets(), "the claim has deleted it")
		require.NoError(t, first.Release(g.ctx))
		require.NoError(t, again.Release(g.ctx))
	})
}

// A process has one ticket. If an old one of its own comes back, because a commit was applied again, the process deletes
// it while it waits. Otherwise every other waiter would leave the lock to the old ticket.
func TestAProcessDeletesItsOldTickets(t *testing.T) {
	takingTurns(t, func(g *fairground) {
		holder := g.mutex("holder", "m")
		require.NoError(t, holder.Lock(g.ctx))
		next := g.stays(g.mutex("next", "m"), 1)
		old := g.rows.Rows()[g.tickets()[0]]
		for range 4 { // it then goes to the end
			g.delete(g.tickets()[0])
			time.Sleep(500 * time.Millisecond)
		}
		own := g.tickets()
		require.NotEqual(t, old.Name, own[0])
		again := []table.Write{{Kind: table.Put, Name: old.Name, Set: []table.Cell{{Column: table.ColHeartbeat, Value: table.Now}, {Column: table.ColWriter, Value: old.Writer}}}}
		require.NoError(t, g.rows.Commit(g.ctx, "again", again))
		require.Len(t, g.tickets(), 2)
		time.Sleep(500 * time.Millisecond)
		assert.Equal(t, own, g.tickets())
		require.NoError(t, holder.Unlock(g.ctx))
		require.NoError(t, <-next)
	})
}

// From when its release begins, a lock has no token and no time left, however long the release takes: here a heartbeat in
// progress does not return when it is told to.
func TestALockThatIsBeingReleasedIsNotHeld(t *testing.T) {
	inVirtualTime(t, func(b *bed) {
		p := b.process()
		m, set, s := p.mutex("m"), p.set("a", "b"), p.semaphore("s", 1)
		require.NoError(t, m.Lock(b.Context()))
		require.NoError(t, set.Lock(b.Context()))
		permit, err := s.Acquire(b.Context())
		require.NoError(t, err)
		p.After(func(step string) {
			if step == "heartbeat" {
				time.Sleep(4 * time.Second)
			}
		})
		for ; ; time.Sleep(time.Millisecond) {
			if p.Counts()["heartbeat"] > 0 {
				break
			}
		}
		time.Sleep(time.Second)
		for _, l := range []struct {
			token   func() spindle.Token
			left    func() time.Duration
			release func(context.Context) error
		}{{m.Token, m.Left, m.Unlock}, {set.Token, set.Left, set.Unlock}, {permit.Token, permit.Left, permit.Release}} {
			assert.NotZero(t, l.token())
			done := make(chan struct{})
			go func() {
				defer close(done)
				_ = l.release(b.Context())
			}()
			synctest.Wait()
			assert.Zero(t, l.token())
			assert.LessOrEqual(t, l.left(), time.Duration(0))
			<-done
		}
	})
}
