//go:build unix

package run

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spindle-lock/spindle/cmd/spindle/internal/commandtest"
	"github.com/spindle-lock/spindle/cmd/spindle/internal/terminal"
	"github.com/spindle-lock/spindle/internal/options"
	"github.com/spindle-lock/spindle/internal/table"
	"github.com/spindle-lock/spindle/internal/testkit/fleet"
	"github.com/spindle-lock/spindle/internal/testkit/memstore"
	"github.com/spindle-lock/spindle/internal/wait"
	"github.com/spindle-lock/spindle/lock"
	"github.com/spindle-lock/spindle/spindletest"
)

// mutexOf returns the lock as a program with the library sees it, in a process of its own.
func mutexOf(store *memstore.Store, process string) *lock.Mutex {
	return lock.New(nil, "locktable", "job", options.Option(func(c *options.Config) {
		c.Store, c.Process, c.ID, c.Lease = store, process, process, lease
	}))
}

// semaphoreOf returns the semaphore as a program with the library sees it, in a process of its own.
func semaphoreOf(store table.Store, process string, slots int) *lock.Semaphore {
	return lock.NewSemaphore(nil, "locktable", "job", slots, options.Option(func(c *options.Config) {
		c.Store, c.Process, c.ID, c.Lease, c.Log = store, process, process, lease, slog.New(slog.DiscardHandler)
	}))
}

func ofPriority(n int) func(*site) {
	return func(s *site) {
		s.exec.config.Rank = 9 - n
		s.exec.candidate.LeaseRecord.Rank = 9 - n
	}
}

// Execs and programs with the library get the lock in the order in which they came, those of a higher priority first.
func TestExecsQueueBesidePrograms(t *testing.T) {
	for name, r := range map[string]struct {
		priority func(i int) int
		slots    int
		want     []int
	}{
		"of one priority": {func(int) int { return 9 }, 0, []int{0, 1, 2, 3, 4, 5, 6, 7}},
		"of several":      {func(i int) int { return []int{3, 9, 3, 9, 5, 9, 9, 9}[i] }, 0, []int{1, 3, 5, 6, 7, 4, 0, 2}}, // the mutexes, which are 1, 3, 5 and 7, have 9
		"for a slot":      {func(int) int { return 9 }, 1, []int{0, 1, 2, 3, 4, 5, 6, 7}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := &memstore.Store{}
				slots := func(s *site) { s.exec.slots = r.slots }
				holder := newSite(t, store, "holder", slots).start()
				work := holder.running()
				var mu sync.Mutex
				var order []int
				var all sync.WaitGroup
				turn := func(i int) {
					mu.Lock()
					defer mu.Unlock()
					order = append(order, i)
				}
				for i := range 8 {
					all.Go(func() {
						if i%2 == 1 && r.slots > 0 {
							permit, err := semaphoreOf(store, fmt.Sprint(i), r.slots).Acquire(t.Context())
							if assert.NoError(t, err) {
								turn(i)
								time.Sleep(200 * time.Millisecond)
								assert.NoError(t, permit.Release(t.Context()))
							}
							return
						}
						if i%2 == 1 {
							assert.NoError(t, lock.Do(t.Context(), mutexOf(store, fmt.Sprint(i)), func(context.Context) error {
								turn(i)
								time.Sleep(200 * time.Millisecond)
								return nil
							}))
							return
						}
						s := newSite(t, store, fmt.Sprint(i), ofPriority(r.priority(i)), slots).start()
						p := s.running()
						turn(i)
						time.Sleep(200 * time.Millisecond)
						p.exit(0)
						s.ends()
					})
					time.Sleep(lease / 10)
				}
				time.Sleep(3 * lease)
				work.exit(0)
				holder.ends()
				all.Wait()
				assert.Equal(t, r.want, order)
			})
		})
	}
}

// An exec leaves a lock that a mutex has released to the one ahead of it, whenever it polls.
func TestAnExecDoesNotOvertakeWhenAMutexReleases(t *testing.T) {
	for i := range 20 {
		synctest.Test(t, func(t *testing.T) {
			store := &memstore.Store{}
			holder := mutexOf(store, "holder")
			require.NoError(t, holder.Lock(t.Context()))
			time.Sleep(lease)
			ahead := newSite(t, store, "ahead").start()
			time.Sleep(lease / 2)
			behind := newSite(t, store, "behind", ofPriority(0)).start()
			time.Sleep(3*lease + time.Duration(i)*37*time.Millisecond)
			require.NoError(t, holder.Unlock(t.Context()))
			time.Sleep(lease)
			assert.Empty(t, behind.ran)
			behind.exitAll(0)
			ahead.running().exit(0)
			behind.running().exit(0)
			ahead.ends()
			behind.ends()
		})
	}
}

// An exec of low priority, which has waited while mutexes had the lock, is before a later one that knows nothing of their leases.
func TestALaterExecOfTheSameLowPriorityComesLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &memstore.Store{}
		mutex := lock.New(nil, "locktable", "job", options.Option(func(c *options.Config) {
			c.Store, c.Process, c.ID, c.Lease = store, "mutex", "mutex", time.Minute
		}))
		low := func(name string) *site {
			return newSite(t, store, name, ofPriority(0), func(s *site) {
				s.exec.lease, s.exec.config.Lease, s.exec.candidate.LeaseRecord.Lease, s.exec.grace = time.Second, time.Second, time.Second, MostGrace(time.Second)
			}).start()
		}
		require.NoError(t, mutex.Lock(t.Context()))
		a := low("a")
		time.Sleep(lease)
		for range 3 {
			require.NoError(t, mutex.Unlock(t.Context()))
			time.Sleep(lease / 20)
			require.NoError(t, lock.Do(t.Context(), mutexOf(store, "other"), func(context.Context) error { time.Sleep(lease / 50); return nil }))
			require.NoError(t, mutex.Lock(t.Context()))
			time.Sleep(lease / 50)
		}
		require.NoError(t, mutex.Unlock(t.Context()))
		b := low("b")
		p := a.running()
		assert.Empty(t, b.ran)
		p.exit(0)
		b.running().exit(0)
		a.ends()
		b.ends()
	})
}

// With notifications, a holder that is about to hand over tells those that stand by.
func TestAStandbyIsToldThatAnExecHandsOver(t *testing.T) {
	for i := range 10 {
		synctest.Test(t, func(t *testing.T) {
			store, net := &memstore.Store{}, spindletest.NewNetwork()
			h := newSite(t, store, "holder", notified(net), handingOver).start()
			work := h.running()
			s := newSite(t, store, "standby", notified(net), handingOver, func(s *site) { s.standsBy = true }).start()
			time.Sleep(4*lease + time.Duration(i)*lease/10)
			h.signals <- syscall.SIGTERM
			time.Sleep(50 * time.Millisecond)
			assert.Equal(t, "\nstandby", store.Rows()["job"].Writer, "the successor has come forward")
			work.exit(0)
			s.running().exit(0)
			h.ends()
			s.ends()
		})
	}
}

// Of those that stand by, the one whose polls are answered fastest is first told of a release, however long each of them has waited.
func TestTheStandbyWithTheFastestPollsIsFirst(t *testing.T) {
	for i := range 16 { // at the same speed, chance would decide
		synctest.Test(t, func(t *testing.T) {
			store, net := &memstore.Store{}, spindletest.NewNetwork()
			holder := newSite(t, store, "holder", notified(net)).start()
			work := holder.running()
			var sites [2]*site
			for k, name := range []string{"near", "far"} {
				sites[k] = newSite(t, store, name, notified(net), func(s *site) { s.standsBy = true })
			}
			near, far := sites[0], sites[1]
			far.After(func(string) { time.Sleep(lease / 200) })
			for k := range sites {
				sites[(k+i)%2].start()
				time.Sleep(3 * lease)
			}
			work.exit(0)
			near.running()
			synctest.Wait()
			assert.Empty(t, far.ran)
			near.stop()
			far.stop()
		})
	}
}

// An exec gets its turn beside programs that want the lock again and again, and a waiting exec polls at the pace of the queue.
func TestAWaitingExecHasItsTurnAndItsPace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &memstore.Store{}
		ctx, stop := context.WithCancel(t.Context())
		var all sync.WaitGroup
		for i := range 3 {
			m := mutexOf(store, fmt.Sprint(i))
			all.Go(func() {
				for lock.Do(ctx, m, func(context.Context) error { time.Sleep(200 * time.Millisecond); return nil }) == nil {
				}
			})
		}
		time.Sleep(lease)
		for range 4 {
			s, began := newSite(t, store, "exec").start(), time.Now()
			p := s.running()
			t.Logf("its turn after %v", time.Since(began))
			assert.Less(t, time.Since(began), time.Second, "three turns of 200 ms")
			p.exit(0)
			assert.Zero(t, s.ends().Code)
			time.Sleep(time.Second)
		}
		stop()
		all.Wait()

		holder := newSite(t, store, "holder").start()
		work := holder.running()
		s := newSite(t, store, "waiting")
		s.start()
		time.Sleep(6 * lease)
		s.Counts()
		time.Sleep(10 * lease)
		requests := 0
		for _, n := range s.Counts() {
			requests += n
		}
		t.Logf("%v requests a lease", float64(requests)/10)
		assert.LessOrEqual(t, requests, 230, "as a waiter for a mutex")
		work.exit(0)
		s.running().exit(0)
		holder.ends()
		s.ends()
	})
}

// notified connects a machine to a network.
func notified(net *spindletest.Network) func(*site) {
	return func(s *site) {
		option, _ := net.Process()
		any(option).(options.Option)(&s.exec.config)
		rank := s.exec.candidate.LeaseRecord.Rank
		locks, _ := s.exec.config.Table(nil, "locktable")
		s.exec.candidate = s.exec.config.Candidate(locks, "job")
		s.exec.candidate.LeaseRecord.Rank = rank
	}
}

// With notifications, a waiting exec polls about once a lease, is told of the release, and has its turn before those that stand by.
func TestAWaitingExecIsToldThatTheLockIsFree(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, net := &memstore.Store{}, spindletest.NewNetwork()
		holder := newSite(t, store, "holder", notified(net)).start()
		work := holder.running()
		standby := newSite(t, store, "standby", notified(net), func(s *site) { s.standsBy = true }).start()
		time.Sleep(lease)
		s := newSite(t, store, "waiting", notified(net)).start()
		time.Sleep(3 * lease)
		s.Counts()
		standby.Counts()
		time.Sleep(10 * lease)
		for who, most := range map[*site]int{s: 26, standby: 16} {
			requests := 0
			for _, n := range who.Counts() {
				requests += n
			}
			t.Logf("%s: %v requests a lease", who.exec.id, float64(requests)/10)
			assert.LessOrEqual(t, requests, most)
		}
		freed := time.Now()
		work.exit(0)
		p := s.running()
		assert.Less(t, time.Since(freed), 50*time.Millisecond)
		assert.Empty(t, standby.ran)
		p.exit(0)
		standby.running().exit(0)
		for _, x := range []*site{holder, s, standby} {
			assert.Zero(t, x.ends().Code)
		}
	})
}

// With notifications, a queue moves on at once, although each of its execs has the lock only for an instant, in which those behind it
// can't ask it: the one before it has told it of them.
func TestAQueueOfShortProgramsMovesOnAtOnce(t *testing.T) {
	for kind, change := range map[string]func(*site){"a lock": func(*site) {}, "slots": func(s *site) { s.exec.slots = 1 }} {
		synctest.Test(t, func(t *testing.T) {
			store, net := &memstore.Store{}, spindletest.NewNetwork()
			holder := newSite(t, store, "holder", notified(net), change).start()
			work := holder.running()
			var queue []*site
			for i := range 5 {
				queue = append(queue, newSite(t, store, fmt.Sprint(i), notified(net), change).start())
				time.Sleep(lease)
			}
			freed := time.Now()
			work.exit(0)
			for _, s := range queue {
				s.running().exit(0)
			}
			for _, s := range append(queue, holder) {
				assert.Zero(t, s.ends())
			}
			assert.Less(t, time.Since(freed), 100*time.Millisecond, kind)
		})
	}
}

// Those that wait are told of a release once it has been committed, not while it is in progress, when they would find the lock held and
// hear no more of it. Once the work is done, all of them are told at once, because none of them need wait for another.
func TestThoseThatWaitAreToldOfAReleaseOnceItIsCommitted(t *testing.T) {
	const takes, soon = lease / 5, 50 * time.Millisecond
	for how, r := range map[string]struct {
		change  func(*site)
		release string
	}{
		"it queues": {func(*site) {}, "release"}, "it stands by": {func(s *site) { s.standsBy = true }, "release"},
		"slots": {func(s *site) { s.exec.slots = 1 }, "release"}, "once": {doingOnce, "finish"},
	} {
		synctest.Test(t, func(t *testing.T) {
			store, net := &memstore.Store{}, spindletest.NewNetwork()
			holder := newSite(t, store, "holder", notified(net), r.change, func(s *site) { s.exec.once.already = 0 }).start()
			work := holder.running()
			var waiting []*site
			for i := range 6 {
				waiting = append(waiting, newSite(t, store, fmt.Sprint("waiting", i), notified(net), r.change).start())
				time.Sleep(lease / 3)
			}
			time.Sleep(3 * lease)
			holder.Sicken(r.release, memstore.Slow, takes)
			work.exit(0)
			assert.Zero(t, holder.ends().Code, how)
			time.Sleep(soon)
			synctest.Wait()
			begun := 0
			for _, s := range waiting {
				if begun += len(s.began); how == "once" {
					assert.Equal(t, 77, s.ends().Code)
				}
			}
			assert.LessOrEqual(t, time.Since(work.ended), takes+soon+time.Millisecond, how)
			assert.Equal(t, how != "once", begun == 1, "%s: %d have begun", how, begun)
			for _, s := range waiting {
				s.stop()
			}
		})
	}
}

// Who ends while it waits leaves no ticket. A signal or the end of the wait is not delayed by a table that hangs.
func TestAnExecThatStopsWaitingLeavesNoTicket(t *testing.T) {
	for failures, hangs := range map[time.Duration]bool{0: false, lease / 2: false, time.Nanosecond: true} {
		synctest.Test(t, func(t *testing.T) {
			store := &memstore.Store{}
			holder := newSite(t, store, "holder").start()
			work := holder.running()
			s := newSite(t, store, "a").start()
			time.Sleep(lease)
			require.Len(t, tickets(store), 1)
			if failures > 0 {
				s.Cut()
				time.Sleep(failures)
			}
			if !hangs {
				s.Mend()
			}
			began := time.Now()
			s.signals <- syscall.SIGTERM
			assert.Equal(t, byTerm, s.ends().Code)
			assert.LessOrEqual(t, time.Since(began), 500*time.Millisecond)
			if !hangs {
				assert.Empty(t, tickets(store))
			}
			work.exit(0)
			holder.ends()
			time.Sleep(time.Minute) // a deletion that hangs gives up
		})
	}
}

// An exec that ends without the lock leaves no claim behind, even if the reply to its claim was lost.
func TestAnExecThatStopsWaitingLeavesNoClaim(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &memstore.Store{}
		s := newSite(t, store, "a")
		s.Lose(nil, memstore.Once("claim"))
		s.start()
		synctest.Wait()
		s.signals <- syscall.SIGTERM
		assert.Equal(t, byTerm, s.ends().Code)
		time.Sleep(lease / 3)
		require.NotEmpty(t, store.Rows())
		for name, row := range store.Rows() {
			assert.True(t, row.Heartbeat.IsZero(), "%s is claimed", name)
		}
	})
}

// Who no longer waits exchanges no messages, however it waited, and whether it has the lock now or has given up. A command with --restart
// waits many times in one process, which would keep what it has forgotten, and ask for it.
func TestAnExecThatStopsWaitingSendsNoMessages(t *testing.T) {
	for how, change := range map[string]func(*site){
		"it queues": func(*site) {}, "it stands by": func(s *site) { s.standsBy = true }, "slots": func(s *site) { s.exec.slots = 1 },
	} {
		for _, wins := range []bool{false, true} {
			synctest.Test(t, func(t *testing.T) {
				store, net := &memstore.Store{}, spindletest.NewNetwork()
				holder := newSite(t, store, "holder", notified(net), change).start()
				work := holder.running()
				s := newSite(t, store, "a", notified(net), change).start()
				before := net.Sent()
				time.Sleep(5 * lease)
				require.Greater(t, net.Sent(), before, "%s: it asks the holder while it waits", how)
				if wins {
					work.exit(0)
					s.running()
				} else {
					s.signals <- syscall.SIGTERM
				}
				time.Sleep(time.Second) // what was on its way
				before = net.Sent()
				time.Sleep(5 * lease)
				assert.Equal(t, before, net.Sent(), "%s, wins=%v", how, wins)
				if wins {
					s.exitAll(0)
				}
				assert.Equal(t, map[bool]int{true: 0, false: byTerm}[wins], s.ends().Code, how)
				work.exit(0)
				holder.ends()
			})
		}
	}
}

// While exec leaves the lock to others after a handover, it has no place in the queue: others would wait for it although it does not
// want the lock yet. Later, it queues like any other.
func TestAnExecThatLeavesTheLockToOthersDoesNotQueueForIt(t *testing.T) {
	for i := range 4 {
		synctest.Test(t, func(t *testing.T) {
			store := &memstore.Store{}
			s := newSite(t, store, "a", handingOver).start()
			p := s.running()
			ask(t, store, "job")
			<-p.Done()
			time.Sleep(lease/100 + time.Duration(i)*lease/15)
			synctest.Wait()
			assert.Empty(t, tickets(store))
			began, other := time.Now(), mutexOf(store, "other")
			require.NoError(t, other.Lock(t.Context()))
			assert.Less(t, time.Since(began), lease/100)
			time.Sleep(lease)
			assert.Len(t, tickets(store), 1)
			require.NoError(t, other.Unlock(t.Context()))
			s.running().exit(0)
			s.ends()
		})
	}
}

// A program begins as soon as exec has the lock, although the table no longer answers requests for the queue. The claim has deleted
// exec's ticket.
func TestAProgramDoesNotWaitForTheQueueOnceTheLockIsHeld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &memstore.Store{}
		holder := newSite(t, store, "holder").start()
		work := holder.running()
		s := newSite(t, store, "a").start()
		time.Sleep(lease)
		require.Len(t, tickets(store), 1)
		s.Lose(func(step string) bool { return step == "queue" }, nil)
		work.exit(0)
		p := s.running()
		assert.Less(t, p.began.Sub(work.ended), lease/5)
		assert.Empty(t, tickets(store))
		p.exit(0)
		s.ends()
		holder.ends()
	})
}

// A signal ends exec at once while it joins the queue, even if the table does not answer.
func TestASignalEndsExecWhileItJoinsTheQueue(t *testing.T) {
	for _, applied := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			store := &memstore.Store{}
			holder := newSite(t, store, "holder").start()
			work := holder.running()
			s := newSite(t, store, "a")
			lost := func(step string) bool { return step == "queue" }
			if s.Lose(lost, nil); applied {
				s.Lose(nil, lost)
			}
			s.start()
			time.Sleep(lease / 10)
			began := time.Now()
			s.signals <- syscall.SIGTERM
			assert.Equal(t, byTerm, s.ends().Code)
			assert.LessOrEqual(t, time.Since(began), wait.LongestForget(lease))
			work.exit(0)
			holder.ends()
			time.Sleep(lease) // the request is still in progress; a process would have ended
		})
	}
}

func tickets(store *memstore.Store) (all []string) {
	for name := range store.Rows() {
		if len(name) > 6 && name[:6] == "!wait/" {
			all = append(all, name)
		}
	}
	return all
}

// A signal or the end of the wait ends a wait at once, whatever exec does at that moment: it waits for its next poll, for the next
// attempt in an outage, or for an answer of the database. A signal also ends the pause after the end of a program.
func TestASignalEndsAWaitAtOnceWhateverExecWaitsFor(t *testing.T) {
	for how, r := range map[string]struct {
		happens func(s *site, holder *program)
		restart bool
		late    int // the code at the end of the wait, or 0
	}{
		"held":                  {happens: func(*site, *program) { time.Sleep(lease) }, late: NotInTime},
		"away":                  {happens: func(s *site, _ *program) { s.Refuse(func(string) error { return commandtest.Away }); time.Sleep(lease) }, late: terminal.Failed},
		"without answers":       {happens: func(s *site, _ *program) { s.Cut(); time.Sleep(lease) }, late: terminal.Failed},
		"its program has ended": {happens: func(s *site, holder *program) { holder.exit(3); s.running().exit(3); time.Sleep(lease / 100) }, restart: true},
	} {
		for kind, change := range map[string]func(*site){
			"it queues": func(*site) {}, "it stands by": func(s *site) { s.standsBy = true }, "once": doingOnce, "slots": func(s *site) { s.exec.slots = 1 },
		} {
			for i := range 24 {
				pause, late := time.Duration(i%12)*lease/37, i >= 12
				if late && r.late == 0 {
					break
				}
				synctest.Test(t, func(t *testing.T) {
					store := &memstore.Store{}
					holder := newSite(t, store, "holder", change, func(s *site) { s.exec.once.already = 0 }).start()
					work := holder.running()
					s := newSite(t, store, "a", change, func(s *site) {
						if s.exec.restart = r.restart; late {
							s.exec.wait = 2*lease + pause
						}
					}).start()
					time.Sleep(lease)
					r.happens(s, work)
					time.Sleep(pause)
					began := time.Now()
					if late {
						assert.Equal(t, r.late, s.ends().Code, "%s, %s", how, kind)
					} else {
						s.signals <- syscall.SIGTERM
						assert.Equal(t, terminal.Exit{Code: byTerm}, s.ends())
					}
					assert.LessOrEqual(t, time.Since(began), wait.LongestForget(lease), "%s, %s", how, kind)
					assert.Empty(t, s.began, "%s, %s: no program is started", how, kind)
					work.exit(0)
					holder.ends()
					s.Refuse(nil)
					s.Mend()
					time.Sleep(lease) // a ticket is still being deleted; a process would have ended
				})
			}
		}
	}
}

// Whatever request is refused again and again, exec repeats it at the pace of its retries, not back to back: a fleet of waiting execs
// would be a flood for a database that is just coming back. Soon after the outage, its program runs.
func TestARequestThatKeepsFailingIsNotRepeatedBackToBack(t *testing.T) {
	for kind, change := range map[string]func(*site){
		"it queues": func(*site) {}, "it stands by": func(s *site) { s.standsBy = true }, "once": doingOnce, "slots": func(s *site) { s.exec.slots = 2 },
	} {
		for step, most := range map[string]int{"observe": 40, "claim": 80, "confirm": 350, "done": 40} {
			synctest.Test(t, func(t *testing.T) {
				store := &memstore.Store{}
				s := newSite(t, store, "a", change)
				s.Refuse(fleet.Refusing(step, commandtest.Away))
				s.start()
				time.Sleep(5 * lease)
				requests := 0
				for _, n := range s.Counts() {
					requests += n
				}
				assert.LessOrEqual(t, requests, most, "%s, %s", kind, step)
				assert.Empty(t, tickets(store), "%s, %s: others would wait for an exec that can't claim", kind, step)
				s.Refuse(nil)
				time.Sleep(3 * lease)
				s.running().exit(0)
				assert.Zero(t, s.ends(), "%s, %s", kind, step)
			})
		}
	}
}

// A signal ends an exec that only tries as it ends any other, with the signal's code: a script would take another code for an answer.
func TestASignalEndsAnExecThatOnlyTries(t *testing.T) {
	for kind, change := range map[string]func(*site){"a lock": func(*site) {}, "once": doingOnce, "slots": func(s *site) { s.exec.slots = 2 }} {
		for _, step := range []string{"observe", "claim", "confirm", "done"} {
			synctest.Test(t, func(t *testing.T) {
				s := newSite(t, &memstore.Store{}, "a", change, func(s *site) { s.exec.atOnce = true })
				s.Lose(func(name string) bool { return name == step }, nil)
				s.start()
				time.Sleep(lease / 100)
				s.signals <- syscall.SIGTERM
				s.exitAll(signalCode(syscall.SIGTERM))
				assert.Equal(t, terminal.Exit{Code: byTerm}, s.ends(), "%s, %s", kind, step)
			})
		}
	}
}
