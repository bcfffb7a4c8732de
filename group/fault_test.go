package group

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/spindle-lock/spindle"
	"github.com/spindle-lock/spindle/internal/table"
	"github.com/spindle-lock/spindle/internal/testkit/fleet"
	"github.com/spindle-lock/spindle/internal/testkit/memstore"
)

// shared starts two members that share n partitions evenly.
func (c *cluster) shared(n int, opts ...Option) (a, b *process) {
	a, b = c.start("a", Numbered(n), opts...), c.start("b", Numbered(n), opts...)
	c.until(lease, "an even spread", spreadOver(n, a, b))
	c.sleep(3 * lease)
	return a, b
}

// After its machine was suspended, a member whose looks are too old by one of its clocks does not wait for the other
// clock. A look that failed long before is not said to be the reason.
func TestAMemberWhoseLookIsTooOldByTheWallClockJoinsAgain(t *testing.T) {
	inVirtualTime(t, func(c *cluster) {
		a := c.process("a", Numbered(4), spindle.WithHeartbeat(lease/10))
		once := memstore.Once("look")
		a.link.Refuse(func(step string) error {
			if a.has() > 0 && once(step) {
				return errors.New("not now")
			}
			return nil
		})
		c.run(a)
		c.until(lease, "a to have all", spreadOver(4, a))
		c.sleep(2 * lease)
		a.link.Counts()
		c.until(lease, "a look", func() bool { return a.link.Counts()["look"] > 0 })
		c.sleep(lease / 4)
		a.clock.Wall.Add(int64(lease * 8 / 10)) // its heartbeat is recent enough
		assert.Zero(t, a.has())
		c.until(lease/10, "a to have all", spreadOver(4, a))
		assert.Contains(t, a.log.String(), errReadDeadline.Error())
		assert.NotContains(t, a.log.String(), "not now")
	})
}

// Time during which its machine was suspended counts for what a member has to do. Once its loop runs, it looks and ends its
// handover without waiting again, because the other members' clocks went on.
func TestWhatBecameDueWhileTheMachineWasSuspendedIsDoneAtOnce(t *testing.T) {
	for _, leaves := range []bool{false, true} {
		inVirtualTime(t, func(c *cluster) {
			returns := make(chan struct{})
			a := c.doing("a", Numbered(2), func(ctx context.Context, p Partition) error {
				if p.Name() == "1" {
					<-returns
				} else {
					<-ctx.Done()
				}
				return nil
			}, WithEarlyReturn(KeepIdle), spindle.WithHandover())
			c.until(lease, "a to have both", spreadOver(2, a))
			c.sleep(2 * lease)
			a.link.Counts()
			c.until(lease, "a look", func() bool { return a.link.Counts()["look"] > 0 })
			if leaves {
				a.stop()
			}
			c.sleep(lease / 50)
			a.link.Counts()
			a.clock.Wall.Add(int64(lease * 35 / 100)) // a look and the end of a handover are due after a third of a lease
			require.Equal(t, 2, a.has(), "its looks and heartbeats are recent enough")
			close(returns) // wakes the loop, and is no reason for a look
			c.sleep(0)
			if leaves {
				assert.Zero(t, a.has())
			} else {
				assert.Equal(t, 1, a.link.Counts()["look"])
			}
		})
	}
}

// A claim that fails is tried again immediately, in halves, until it is known that more than one partition fails. From
// then on, it is tried less and less often, a few times per lease, however many partitions there are. Once claims succeed
// again, they run in parallel as before.
func TestAClaimThatFailsIsTriedLessAndLessOften(t *testing.T) {
	for _, step := range []string{"claim-partitions", "confirm-partitions"} {
		inVirtualTime(t, func(c *cluster) {
			a := c.process("a", Numbered(64), batchesOf(16))
			a.link.Refuse(fleet.Refusing(step, errors.New("not today")))
			c.run(a)
			c.sleep(lease)
			first := a.link.Counts()["claim-partitions"]
			assert.Greater(t, first, 6, "halves of 64, down to one")
			assert.LessOrEqual(t, first, 40, "four at a time")
			c.sleep(lease / 2)
			assert.InDelta(t, 2, a.link.Counts()["claim-partitions"], 1)
			a.link.Refuse(nil)
			c.until(lease, "a to have all", spreadOver(64, a))
			all := func(do func(string) error) {
				for i := range 64 {
					require.NoError(t, do(fmt.Sprint(i)))
				}
			}
			all(a.Pause)
			c.until(lease, "a to release all", func() bool { return a.has() == 0 && c.listedAsPaused() == 64 })
			slowly(a, lease/50)
			all(a.Resume)
			c.until(5*lease/50, "one look, one claim and one confirmation at a time", spreadOver(64, a))
		})
	}
}

// The pauses that grew while looks failed are forgotten once one has succeeded: a short outage later costs little.
func TestLooksThatFailAgainAreRepeatedSoon(t *testing.T) {
	inVirtualTime(t, func(c *cluster) {
		a := c.start("a", Numbered(16))
		for _, lasts := range []time.Duration{lease * 6 / 10, lease / 20} {
			c.until(lease, "a to have all", spreadOver(16, a))
			c.sleep(2 * lease)
			a.link.Refuse(fleet.Refusing("look", errors.New("not today")))
			for i := range 16 {
				require.NoError(t, a.LetGo(fmt.Sprint(i)))
			}
			c.sleep(lasts)
			a.link.Refuse(nil)
		}
		c.until(lease/10, "a to have all", spreadOver(16, a))
	})
}

// A step that failed once is taken again, whether it was refused or another member seems to have been first. If another was
// first, the member looks soon.
func TestAStepThatFailsOnceIsTakenAgain(t *testing.T) {
	for step, took := range map[string]func(c *cluster, a *process) func() bool{
		"publish": func(_ *cluster, a *process) func() bool { return spreadOver(4, a) },
		"mark-paused": func(c *cluster, a *process) func() bool {
			c.until(lease, "a to have all", spreadOver(4, a))
			require.NoError(c.t, a.Pause("1"))
			return c.paused("1")
		},
		"evict": func(c *cluster, a *process) func() bool {
			b := c.start("b", Numbered(4))
			c.until(4*lease, "an even spread", spreadOver(4, a, b))
			b.kill()
			c.sleep(lease)
			return spreadOver(4, a)
		},
	} {
		for _, err := range []error{errors.New("not now"), table.ErrChanged} {
			inVirtualTime(t, func(c *cluster) {
				a, once, failed := c.process("a", Numbered(4)), memstore.Once(step), time.Time{}
				a.link.Refuse(func(step string) error {
					if once(step) {
						failed = time.Now()
						return err
					}
					return nil
				})
				c.run(a)
				c.until(lease/2, step+" to be repeated", took(c, a))
				if step != "mark-paused" && errors.Is(err, table.ErrChanged) {
					assert.Less(t, time.Since(failed), lease/5, step) // a quarter of a lease passes until a member looks by itself
				}
			})
		}
	}
}

// As long as releases fail, few more partitions are revoked, because they could not move and would be without work. Then the
// member ends its term, so that it does not have to free partitions that it should no longer have. Nothing is said
// to be over before.
func TestWhileReleasesFailMostPartitionsAreWorkedOn(t *testing.T) {
	inVirtualTime(t, func(c *cluster) {
		const n, batch = 400, 20
		a := c.start("a", Numbered(n), batchesOf(batch))
		c.until(4*lease, "a to have all", spreadOver(n, a))
		c.sleep(2 * lease)
		b := c.start("b", Numbered(n), batchesOf(batch))
		c.sleep(lease / 2)
		a.link.Refuse(func(step string) error {
			if step == "release-partitions" || step == "reconcile" {
				return status.Error(codes.PermissionDenied, "not now")
			}
			return nil
		})
		c.until(3*lease, "a to revoke some", func() bool { return a.has() < n })
		c.sleep(lease / 2)
		assert.Greater(t, c.worked(), n*3/4)
		assert.Contains(t, a.log.String(), "release: ")
		assert.NotContains(t, a.log.String(), "again", "as long as they fail")
		c.until(5*lease, "b to have its share", func() bool { return b.has() >= n/2 })
	})
}

// Members that claim at the same time abort each other's transactions, on the emulator more often than not. This causes
// short retries, but no new look, which would read all rows again.
func TestAClaimThatIsAbortedIsTriedAgainAtOnce(t *testing.T) {
	inVirtualTime(t, func(c *cluster) {
		a := c.process("a", Numbered(64))
		left, looks := map[string]int{"claim-partitions": 5, "confirm-partitions": 5}, 0
		a.link.Refuse(func(step string) error {
			switch {
			case left[step] > 0:
				left[step]--
				return table.ErrAborted
			case step == "look" && left["claim-partitions"] < 5:
				looks++
			}
			return nil
		})
		c.run(a)
		c.until(lease/10, "a to have all", spreadOver(64, a))
		assert.Zero(t, left["claim-partitions"]+left["confirm-partitions"])
		assert.Zero(t, looks, "between the first try and the last")
	})
}

// A member whose claims all fail, are aborted or come too late keeps its share from other members for at most two leases, and
// reports why. It tries less and less often.
func TestAMemberWhoseClaimsNeverSucceedLeavesItsShareToOthers(t *testing.T) {
	for _, step := range []string{"claim-partitions", "confirm-partitions"} {
		for _, err := range fleet.Part(errors.New("not today"), table.ErrAborted, table.ErrChanged) {
			inVirtualTime(t, func(c *cluster) {
				a := c.alone(64)
				b := c.process("b", Numbered(64))
				b.link.Refuse(fleet.Refusing(step, err))
				c.run(b)
				c.sleep(2 * lease)
				b.link.Counts()
				c.until(3*lease, "a to have all again", spreadOver(64, a))
				assert.Contains(t, b.log.String(), errUseless.Error())
				idle := 0
				for range 500 {
					c.sleep(lease / 10)
					idle += 64 - c.worked()
				}
				assert.Less(t, float64(idle)/500/64, 0.01, "%s: %v: it is assigned one at most, and cools down for longer and longer", step, err)
				c.until(40*lease, "b to be unhealthy, once it has cooled down for long", func() bool { return b.Health() != nil })
				b.link.Counts()
				c.sleep(10 * lease)
				assert.LessOrEqual(t, b.link.Counts()["claim-partitions"], 300)
				b.link.Refuse(nil)
				c.until(40*lease, "an even spread", spreadOver(64, a, b))
			})
		}
	}
}

// A look that takes longer than a third of the lease still has an effect.
func TestAMemberWhoseLooksAreSlowClaimsPartitions(t *testing.T) {
	inVirtualTime(t, func(c *cluster) {
		const n = 64
		a := c.process("a", Numbered(n), batchesOf(16))
		a.link.After(func(step string) {
			if step == "look" {
				time.Sleep(lease * 4 / 10)
			}
		})
		c.run(a)
		c.until(4*lease, "a to have all", spreadOver(n, a))
		c.sleep(4 * lease)
		assert.True(t, spreadOver(n, a)())
	})
}

// Steps with an unknown outcome leave no partition on which no member acts, and none on which two members act.
func TestOutcomesThatAreNotKnownAreReconciled(t *testing.T) {
	for _, step := range []string{"claim-partitions", "confirm-partitions", "release-partitions", "reconcile", "evict"} {
		for _, lost := range []string{"request", "reply"} {
			inVirtualTime(t, func(c *cluster) {
				a, b := c.shared(64)
				for _, p := range []*process{a, b} {
					if lost == "request" {
						p.link.Lose(memstore.Once(step), nil)
					} else {
						p.link.Lose(nil, memstore.Once(step))
					}
				}
				d := c.start("d", Numbered(64))
				c.until(8*lease, step+", whose "+lost+" is lost: a, b and d to share", spreadOver(64, a, b, d))
				d.kill()
				c.until(8*lease, step+", whose "+lost+" is lost: a and b to have all", spreadOver(64, a, b))
				c.sleep(5 * lease)
				assert.True(t, spreadOver(64, a, b)())
			})
		}
	}
}

// Deleting rows by hand costs at most one lease, and never makes two members act.
func TestRowsAreDeletedByHand(t *testing.T) {
	inVirtualTime(t, func(c *cluster) {
		a, b := c.shared(16)
		remove := func(part func(name string) bool) {
			var writes []table.Write
			for name := range c.store.Rows() {
				if part(name) {
					writes = append(writes, table.Write{Kind: table.Delete, Name: name})
				}
			}
			require.NotEmpty(t, writes)
			require.NoError(t, c.store.Commit(t.Context(), "operator", writes))
		}
		isLease := func(name string) bool { return strings.Contains(name, "_") }
		for what, part := range map[string]func(name string) bool{
			"the lease rows of partitions": func(n string) bool { return strings.Contains(n, "/partition/") && isLease(n) },
			"the lock rows of partitions":  func(n string) bool { return strings.Contains(n, "/partition/") && !isLease(n) },
			"the lock rows of members":     func(n string) bool { return strings.Contains(n, "/member/") && !isLease(n) },
			"the lease rows of members":    func(n string) bool { return strings.Contains(n, "/member/") && isLease(n) },
			"the rows of members":          func(n string) bool { return strings.Contains(n, "/member/") },
			"the rows of partition 3":      func(n string) bool { return strings.HasPrefix(n, "orders/partition/3") },
		} {
			remove(part)
			c.sleep(lease / 2) // until then, a member that had the partition may act on it
			c.until(6*lease, what+" are gone: an even spread", spreadOver(16, a, b))
			c.sleep(12 * lease) // until terms that ended early are forgotten
		}
	})
}

// If the row of one partition can't be read, no other partition is affected.
func TestARowThatCanNotBeReadCostsItsPartitionAlone(t *testing.T) {
	inVirtualTime(t, func(c *cluster) {
		at, heartbeat := time.Now().Add(-time.Hour).UTC(), time.Now().Add(-time.Minute).UTC()
		name := table.PartitionName("orders", "3")
		row := func(name, writer string) table.Write {
			return table.Write{Kind: table.Insert, Name: name, Set: []table.Cell{{Column: table.ColHeartbeat, Value: heartbeat}, {Column: table.ColToken, Value: at}, {Column: table.ColWriter, Value: writer}}}
		}
		require.NoError(t, c.store.Commit(t.Context(), "operator", []table.Write{row(name, "somebody"), row(table.LeaseKey(name, table.TokenAt(at)), "{")}))
		a := c.start("a", Numbered(16))
		c.until(lease, "a to have all others", func() bool { return a.has() == 15 })
		c.sleep(6 * lease)
		assert.Equal(t, 15, a.has())
		assert.Contains(t, a.log.String(), "is not JSON")
		assert.ErrorContains(t, a.Health(), `partition "3" has been impossible to claim or release since`, "it stays idle until its rows are corrected")
	})
}

// While thousands of partitions are awaited, looks take long. They are then further apart, so that the database can
// serve the members that have to release the partitions.
func TestLooksThatTakeLongAreFurtherApart(t *testing.T) {
	inVirtualTime(t, func(c *cluster) {
		a := c.alone(16)
		free := c.hung(a)
		b := c.process("b", Numbered(16))
		b.link.After(func(step string) {
			if step == "look" {
				time.Sleep(lease / 20)
			}
		})
		c.run(b)
		c.sleep(lease / 2) // a has revoked its half
		b.link.Counts()
		c.sleep(4 * lease / 10)
		assert.InDelta(t, 2, b.link.Counts()["look"], 1, "a look for a twentieth, a pause of three")
		free()
		c.until(lease/2, "an even spread", spreadOver(16, a, b))
	})
}

// A member that stops waits one lease for its work, and then reports the work that has not returned. It does not run
// again until that work has returned.
func TestAStopIsOverALeaseLaterWhateverWorkDoes(t *testing.T) {
	inVirtualTime(t, func(c *cluster) {
		hang := make(chan struct{})
		a, b := c.process("a", Numbered(16)), c.process("b", Numbered(16))
		a.linger = func(name string) {
			if name == "3" || name == "5" {
				<-hang
			}
		}
		c.run(a)
		c.until(lease, "a to have all", spreadOver(16, a))
		c.run(b)
		began := time.Now()
		a.stop()
		err := <-a.done
		assert.ErrorContains(t, err, "some work (partitions: 2, first: \"3\") did not return within one lease duration (10s) after its context was canceled; its partitions become free when the member's lease expires")
		assert.Equal(t, lease, time.Since(began))
		assert.Equal(t, 14, b.has(), "what has returned was given")
		assert.ErrorIs(t, a.Run(context.Background()), spindle.ErrRunning)
		dead := func() { c.mu.Lock(); defer c.mu.Unlock(); a.dead = true }
		dead() // its work has had its time, and is not waited for
		c.until(2*lease, "b to have all", spreadOver(16, b))
		close(hang)
		c.sleep(0)
		a.dead, a.linger = false, nil
		c.run(a)
		c.until(3*lease, "an even spread", spreadOver(16, a, b))
	})
}

// Work that hangs since an earlier term is none of the last term's: its partition is another member's, or free. A member that has released
// all that it owned has nothing to report at its end.
func TestWorkOfAnEarlierTermIsNoErrorAtTheEnd(t *testing.T) {
	inVirtualTime(t, func(c *cluster) {
		hang := make(chan struct{})
		defer close(hang)
		a, b := c.process("a", Numbered(2)), c.process("b", Numbered(2))
		a.linger = func(string) { <-hang }
		c.run(a)
		c.until(lease, "a to have all", spreadOver(2, a))
		a.link.Cut()
		c.mu.Lock()
		a.dead = true // its work has had its time, and is not waited for
		c.mu.Unlock()
		c.run(b)
		c.until(3*lease, "b to have all", spreadOver(2, b))
		a.link.Mend()
		c.until(6*lease, "a to be a member again", func() bool { return strings.Count(a.log.String(), "joined") == 2 })
		c.sleep(lease)
		a.stop()
		require.NoError(t, <-a.done)
	})
}

// A member whose announcement that it leaves fails gives the others their shares all the same, except the partitions whose work
// has not returned.
func TestAMemberThatCantAnnounceThatItLeavesGivesWhatItCan(t *testing.T) {
	inVirtualTime(t, func(c *cluster) {
		hang := make(chan struct{})
		a, b := c.process("a", Numbered(16)), c.process("b", Numbered(16))
		a.linger = func(name string) {
			if name == "3" {
				<-hang
			}
		}
		c.run(a)
		c.until(lease, "a to have all", spreadOver(16, a))
		c.run(b)
		a.link.Refuse(fleet.Refusing("announce", status.Error(codes.PermissionDenied, "no")))
		a.stop()
		c.until(lease/2, "b to have its share", func() bool { return b.has() >= 7 })
		close(hang)
		assert.NoError(t, <-a.done)
	})
}

// A process that is started again under its id, with WithReclaim, gets its partitions back immediately, and the other
// members keep theirs.
func TestAMemberThatReclaimsHasItsPartitionsBackAtOnce(t *testing.T) {
	inVirtualTime(t, func(c *cluster) {
		a, b := c.shared(64, spindle.WithReclaim())
		had := names(a.Held())
		a.kill()
		begun := fmt.Sprint(c.begun[names(b.Held())[0]])
		again := c.start("a", Numbered(64), spindle.WithReclaim())
		c.until(lease/10, "a to have its share", spreadOver(64, again, b))
		assert.Equal(t, had, names(again.Held()))
		c.sleep(5 * lease)
		assert.Equal(t, had, names(again.Held()))
		assert.Equal(t, begun, fmt.Sprint(c.begun[names(b.Held())[0]]), "b was not disturbed")
	})
}

// The new list has one partition less. The members with the old list continue to work on that partition until they have
// left, even if one of them dies.
func TestAPartitionThatOnlyTheOldListHasIsClaimedWhenItsMemberDies(t *testing.T) {
	inVirtualTime(t, func(c *cluster) {
		a, b := c.shared(8)
		d := c.start("d", Numbered(4))
		c.sleep(3 * lease)
		a.kill()
		c.until(6*lease, "b and d to have all eight", func() bool { return b.has()+d.has() == 8 })
	})
}

// Claims that get no response do not affect the partitions that a member already has, however many partitions it has to
// claim.
func TestClaimsThatAreNotAnsweredCostNoTerm(t *testing.T) {
	for _, step := range []string{"claim-partitions", "confirm-partitions"} {
		inVirtualTime(t, func(c *cluster) {
			const n, batch = 160, 10
			a, b := c.shared(n, batchesOf(batch))
			before := tokens(a)
			a.link.Lose(func(s string) bool { return s == step }, nil)
			b.stop()
			<-b.done
			c.sleep(lease * 3 / 2)
			assert.Equal(t, before, tokens(a), step)
			a.link.Mend()
			c.until(2*lease, "a to have all", spreadOver(n, a))
		})
	}
}

// Looks that fail or get no response for less than a lease do not end a term. The same is true for heartbeats.
func TestLooksThatFailForLessThanALeaseCostNoTerm(t *testing.T) {
	for _, answered := range []bool{false, true} {
		inVirtualTime(t, func(c *cluster) {
			var fails atomic.Bool
			a := c.process("a", Numbered(4))
			store := a.link.Store
			a.link.Store = table.Via(func(ctx context.Context, step string, call func(context.Context, table.Store) error) error {
				if step == "look" && fails.Load() {
					time.Sleep(lease / 30) // the failure is reported late
					return errors.New("not now")
				}
				return call(ctx, store)
			})
			c.run(a)
			c.until(lease, "a to have all", spreadOver(4, a))
			before := tokens(a)
			a.link.Counts()
			c.until(lease, "a look", func() bool { return a.link.Counts()["look"] > 0 })
			fails.Store(answered)
			a.link.Lose(func(step string) bool { return !answered && step == "look" }, nil)
			c.sleep(lease * 85 / 100)
			fails.Store(false)
			a.link.Mend()
			c.sleep(2 * lease)
			assert.Equal(t, before, tokens(a), "answered: %v", answered)
		})
	}
}

// A member whose looks or heartbeats fail has no partition and no work once 99 % of its lease have passed since it sent the last one
// that succeeded, however late the answer came. Otherwise, a member whose clock is slow could work on a partition that another one
// has claimed.
func TestAMemberThatIsCutOffStopsAHundredthBeforeItsLeaseEnds(t *testing.T) {
	for _, step := range []string{"look", "heartbeat"} {
		for _, took := range []time.Duration{0, lease / 5} {
			inVirtualTime(t, func(c *cluster) {
				var last time.Time
				a := c.process("a", Numbered(4))
				a.link.Refuse(func(s string) error {
					if s == step {
						last = time.Now()
					}
					return nil
				})
				a.link.After(func(s string) {
					if s == step {
						time.Sleep(took)
					}
				})
				c.run(a)
				c.until(lease, "a to have all", spreadOver(4, a))
				c.sleep(2 * lease)
				c.until(lease, "an answer", func() bool { return time.Since(last) > took })
				a.link.Refuse(fleet.Refusing(step, errors.New("not now")))
				for _, what := range []func() int{a.has, c.worked} {
					c.until(lease, "a to stop", func() bool { return what() == 0 })
					assert.InDelta(t, lease*99/100, time.Since(last), float64(lease/500), step)
				}
				a.link.Refuse(nil)
			})
		}
	}
}

// Even if the lease is shorter than the time that a cold connection is given, one lost response does not end a term.
func TestOneAnswerThatIsLostCostsNoTermOfAShortLease(t *testing.T) {
	for _, step := range []string{"look", "claim-partitions"} {
		inVirtualTime(t, func(c *cluster) {
			short := spindle.WithLease(lease / 20)
			a, b := c.start("a", Numbered(4), short), c.start("b", Numbered(4), short)
			c.until(lease, "an even spread", spreadOver(4, a, b))
			c.sleep(lease)
			before := tokens(a)
			a.link.Lose(memstore.Once(step), nil)
			b.stop()
			<-b.done
			c.until(lease/10, "a to have all", spreadOver(4, a))
			for name, token := range before {
				assert.Equal(t, token, tokens(a)[name], step)
			}
		})
	}
}

// If a partition changes while a member claims it together with others, the member looks at it again immediately, and
// not only in the next regular look.
func TestAPartitionThatIsLeftOutOfAClaimIsLookedAtAgainSoon(t *testing.T) {
	for _, step := range []string{"claim-partitions", "confirm-partitions"} {
		inVirtualTime(t, func(c *cluster) {
			a := c.alone(4)
			c.end(a)
			b, once := c.process("b", Numbered(4)), memstore.Once(step)
			given := []table.Write{{Kind: table.Update, Name: table.PartitionName("orders", "2"), Set: []table.Cell{
				{Column: table.ColHeartbeat}, {Column: table.ColToken, Value: table.Now}, {Column: table.ColWriter}}}}
			b.link.Refuse(func(s string) error {
				if once(s) {
					return c.store.Commit(t.Context(), "another", given) // another process claimed and released it
				}
				return nil
			})
			c.run(b)
			c.until(lease/20, "b to have all", spreadOver(4, b))
		})
	}
}

// A process that is stopped while it joins can get its term just when its work would have to stop. It then releases
// that term.
func TestAStopWhileAMemberJoinsGivesTheSlotBack(t *testing.T) {
	for range 10 { // both are due at the same time
		inVirtualTime(t, func(c *cluster) {
			a := c.process("a", Numbered(4), spindle.WithLease(time.Second))
			a.link.After(func(step string) {
				if step == "claim" || step == "confirm" {
					time.Sleep(900 * time.Millisecond)
				}
			})
			c.run(a)
			c.sleep(100 * time.Millisecond)
			a.stop()
			require.NoError(t, <-a.done)
			assert.True(t, c.store.Rows()[table.SlotName("orders", 0)].Heartbeat.IsZero(), "done was sent nil, and the slot is still taken")
			assert.Empty(t, c.begun, "work began after the stop")
		})
	}
}

// Run ends with an error exactly if the member's lock is left to expire, and its partitions with it.
func TestRunSaysIfTheMembersLockIsLeftToExpire(t *testing.T) {
	for _, way := range fleet.Farewells("release") {
		inVirtualTime(t, func(c *cluster) {
			a := c.start("a", Numbered(4))
			c.until(lease, "a to have all", spreadOver(4, a))
			slot := table.SlotName("orders", 0)
			way.Begin(a.link, slot)
			a.stop()
			err := <-a.done
			assert.Equal(t, way.Left, err != nil, "%s: %v", way.Name, err)
			assert.Equal(t, way.Left, !c.store.Rows()[slot].Heartbeat.IsZero(), way.Name)
		})
	}
}

// While Run's ctx has not ended, a member that gives up its term joins again, whatever becomes of its release: an operator learns from
// the log that the slot is left to expire, and Run goes on.
func TestOnlyTheLastReleaseEndsRunWithAnError(t *testing.T) {
	for _, way := range fleet.Farewells("release") {
		for _, stops := range []bool{false, true} {
			inVirtualTime(t, func(c *cluster) {
				p, h := c.holding(1)
				defer h.letGo()
				way.Begin(p.link, h.own.Name)
				ctx, stop := context.WithCancel(context.Background())
				defer stop()
				if h.giveUp(errUseless); stops {
					stop()
				}
				_, err := h.end(ctx, nil)
				assert.Equal(c.t, way.Left && stops, err != nil, "%s: %v", way.Name, err)
				assert.Equal(c.t, way.Left && !stops, strings.Contains(p.log.String(), "the member's lock could not be released"), way.Name)
			})
		}
	}
}
