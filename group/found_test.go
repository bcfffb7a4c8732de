package group

import (
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spindle-lock/spindle"
	"github.com/spindle-lock/spindle/internal/elect"
	"github.com/spindle-lock/spindle/internal/table"
	"github.com/spindle-lock/spindle/internal/testkit/fleet"
	"github.com/spindle-lock/spindle/internal/testkit/memstore"
)

// These are faults that the simulation has found.

// A member that can't look immediately gives up all its partitions, including those that it claimed after its last
// look.
func TestHasIsFalseOnceTheWorkIsRevoked(t *testing.T) {
	inVirtualTime(t, func(c *cluster) {
		a := c.process("a", Numbered(4))
		once := memstore.Once("claim-partitions")
		a.link.After(func(step string) {
			if once(step) {
				time.Sleep(lease / 10)
				a.link.Lose(func(step string) bool { return step == "look" }, nil)
			}
		})
		var told atomic.Int32
		a.linger = func(partition string) {
			told.Add(1)
			has, _ := a.Has(partition)
			assert.False(t, has, "the work on %s was told that it is over", partition)
		}
		c.run(a)
		time.Sleep(3 * lease)
		assert.NotZero(t, told.Load())
	})
}

// Slots are never removed, so a process that can't join for a while must not take higher and higher slots.
func TestAnOutageMakesNobodyTakeAHighSlot(t *testing.T) {
	inVirtualTime(t, func(c *cluster) {
		a, b := c.start("a", Numbered(4)), c.process("b", Numbered(4))
		c.until(lease, "a to have all", spreadOver(4, a))
		b.link.Cut()
		c.run(b)
		time.Sleep(20 * lease)
		b.link.Mend()
		c.until(3*lease, "an even spread", spreadOver(4, a, b))
		for name := range c.store.Rows() {
			if lock, _, _ := strings.Cut(name, "_"); strings.Contains(name, "/member/") {
				assert.LessOrEqual(t, lock, table.SlotName("orders", 1))
			}
		}
	})
}

// inSlots starts members one after the other, so that they get the slots 0, 1 and so on.
func (c *cluster) inSlots(ids ...string) (ps []*process) {
	for _, id := range ids {
		ps = append(ps, c.start(id, Numbered(24)))
		c.until(3*lease, "an even spread", spreadOver(24, ps...))
	}
	return ps
}

// deleteMembers deletes the lock rows of the members with these ids.
func (c *cluster) deleteMembers(ids ...string) {
	var writes []table.Write
	for name, row := range c.store.Rows() {
		if strings.Contains(name, "/member/") && slices.Contains(ids, row.Writer) {
			writes = append(writes, table.Write{Kind: table.Delete, Name: name})
		}
	}
	require.Len(c.t, writes, len(ids))
	require.NoError(c.t, c.store.Commit(c.t.Context(), "operator", writes))
}

func tokens(p *process) map[string]spindle.Token {
	tokens := map[string]spindle.Token{}
	for _, h := range p.Held() {
		tokens[h.Name()] = h.Token()
	}
	return tokens
}

// A member that leaves makes no more looks once its looks have come too late, however long its work takes.
func TestAMemberThatLeavesDoesNotLookInVain(t *testing.T) {
	inVirtualTime(t, func(c *cluster) {
		a := c.alone(4)
		a.linger = func(string) { time.Sleep(lease * 9 / 10) }
		a.link.Refuse(fleet.Refusing("look", errors.New("not now")))
		time.Sleep(lease / 2)
		a.stop()
		time.Sleep(lease * 6 / 10)
		a.link.After(func(string) { time.Sleep(time.Millisecond) })
		a.link.Refuse(nil)
		a.link.Counts()
		require.NoError(t, <-a.done)
		assert.Less(t, a.link.Counts()["look"], 10)
	})
}

// A confirmation whose reply arrives after the end of the term begins no work and holds up nothing, because its result
// is outdated.
func TestAReplyThatOutlivesTheTermBeginsNoWork(t *testing.T) {
	inVirtualTime(t, func(c *cluster) {
		a, once := c.process("a", Numbered(4)), memstore.Once("confirm-partitions")
		a.link.After(func(step string) {
			if once(step) {
				a.link.Cut()
				time.AfterFunc(lease*3/2, a.link.Mend)
				time.Sleep(2 * lease)
			}
		})
		c.run(a)
		c.until(5*lease, "a to have all", spreadOver(4, a))
		c.sleep(2 * lease)
		for name, n := range c.begun {
			assert.Equal(t, 1, n, name)
		}
		assert.Contains(t, a.log.String(), "msg=left", "the term has ended meanwhile")
		b := c.start("b", Numbered(4))
		c.until(4*lease, "an even spread", spreadOver(4, a, b))
	})
}

// A partition that another member should have by then costs no term, whether this member could not claim it or claimed it
// without knowing. In the latter case, it is freed.
func TestAClaimOfUnknownOutcomeIsFreedForOthers(t *testing.T) {
	for _, refused := range []bool{false, true} {
		inVirtualTime(t, func(c *cluster) {
			ps := c.inSlots("a", "b", "d")
			a, b, d := ps[0], ps[1], ps[2]
			time.Sleep(3 * lease)
			before := tokens(a)
			if refused {
				a.link.Refuse(fleet.Refusing("claim-partitions", errors.New("not now")))
			} else {
				a.link.Lose(nil, func(step string) bool { return step == "confirm-partitions" })
			}
			d.stop()
			<-d.done
			e := c.start("e", Numbered(24), spindle.WithHeartbeat(lease/10)) // is soon counted, and has d's slot, and with it these partitions
			c.until(3*lease, "an even spread", spreadOver(24, a, b, e))
			if refused {
				a.link.Refuse(nil)
				time.Sleep(5 * lease)
				assert.Contains(t, a.log.String(), "can keep up with the group again", "nothing is left to be claimed")
			}
			assert.Equal(t, before, tokens(a))
		})
	}
}

// A useless member announces that it is leaving even while the work on a partition hangs, before it releases the others.
// The other members take its share.
func TestAUselessMemberWithWorkThatHangsLeavesItsShareToOthers(t *testing.T) {
	for _, opts := range [][]Option{nil, {spindle.WithHandover()}} {
		inVirtualTime(t, func(c *cluster) {
			a, b, d := c.start("a", Numbered(16), opts...), c.process("b", Numbered(16), opts...), c.start("d", Numbered(16), opts...)
			hangs, free := b.hangsOnce()
			defer free()
			c.run(b)
			c.until(lease, "an even spread", spreadOver(16, a, b, d))
			hangs.Store(true)
			b.link.Refuse(fleet.Refusing("claim-partitions", errors.New("not today")))
			slowly(b, lease/100)
			a.stop()
			<-a.done
			c.until(6*lease, "d to have all but the one that b hangs on", func() bool { return d.has() == 15 })
			c.sleep(4 * lease)
			assert.Equal(t, 15, d.has(), "b has released the others, so it waits for the work")
			free()
			c.until(2*lease, "d to have all", spreadOver(16, d))
			b.link.Refuse(nil)
			c.until(20*lease, "an even spread", spreadOver(16, b, d))
		})
	}
}

// A useless member that can't poll the group, or can't release anything, does not keep its partitions for as long as some work hangs.
// Its lock expires, and the other members get them.
func TestAUselessMemberThatCanGiveUpNothingLetsItsLockExpire(t *testing.T) {
	for what, fails := range map[string][]string{
		"its polls fail":    {"look"},
		"its releases fail": {"release-partitions", "reconcile"},
	} {
		inVirtualTime(t, func(c *cluster) {
			a, b, d := c.start("a", Numbered(16)), c.process("b", Numbered(16)), c.start("d", Numbered(16))
			hangs, free := b.hangsOnce()
			defer free()
			c.run(b)
			c.until(lease, "an even spread", spreadOver(16, a, b, d))
			hangs.Store(true)
			b.link.Refuse(fleet.Refusing("claim-partitions", errors.New("not today")))
			a.stop()
			<-a.done
			c.until(6*lease, "b to give up", func() bool { return b.has() == 0 })
			b.link.Refuse(func(step string) error {
				if step == "claim-partitions" || slices.Contains(fails, step) {
					return errors.New("not today")
				}
				return nil
			})
			c.until(4*lease, what+", and d gets all", spreadOver(16, d))
			c.clash = nil // the work that hangs has no partition any more
			free()
			b.link.Refuse(nil)
		})
	}
}

// A useless member that can release its partitions keeps those whose work is slow to return, however long that takes. It failed to
// claim others, which is no reason to leave the lock to expire: another member would work beside it.
func TestAUselessMemberWaitsForItsWork(t *testing.T) {
	inVirtualTime(t, func(c *cluster) {
		a, b, d := c.start("a", Numbered(16)), c.process("b", Numbered(16)), c.start("d", Numbered(16))
		free := c.hung(b)
		defer free()
		c.run(b)
		c.until(lease, "an even spread", spreadOver(16, a, b, d))
		b.link.Refuse(fleet.Refusing("claim-partitions", errors.New("not today")))
		c.end(a)
		c.until(6*lease, "b to give up", func() bool { return b.has() == 0 })
		c.sleep(4 * lease)
		require.Empty(t, c.clash)
		free()
		c.until(lease, "d to have all", spreadOver(16, d))
		b.link.Refuse(nil)
	})
}

// The term of a useless member ends once the program lets go of the work that hangs. The member can then recover, although the work still
// hangs.
func TestAUselessMemberThatLetsItsWorkGoJoinsAgain(t *testing.T) {
	inVirtualTime(t, func(c *cluster) {
		hang, hangs := make(chan struct{}), make(chan string, 1)
		defer close(hang)
		a, b, d := c.start("a", Numbered(16)), c.start("b", Numbered(16)), c.start("d", Numbered(16))
		c.until(lease, "an even spread", spreadOver(16, a, b, d))
		b.linger = func(name string) {
			select {
			case hangs <- name: // the work on one partition
				<-hang
			default:
			}
		}
		b.link.Refuse(fleet.Refusing("claim-partitions", errors.New("not today")))
		c.end(a)
		c.until(6*lease, "d to have all but the one that b hangs on", func() bool { return d.has() == 15 })
		require.NotContains(t, b.log.String(), "msg=left")
		require.NoError(t, b.LetGo(<-hangs))
		hangs <- "no other"
		c.until(lease, "d to have all", spreadOver(16, d))
		c.until(lease, "b's term to end", func() bool { return strings.Contains(b.log.String(), "msg=left") })
		b.link.Refuse(nil)
		c.until(5*lease, "b to join", func() bool { return strings.Count(b.log.String(), "msg=joined") == 2 })
		assert.Len(t, c.clash, 1)
		c.clash = nil // this is what LetGo was called for
	})
}

// A process that reclaims its slot with a different list is counted only after one lease, like any new process. It is a
// different build, which may crash each time that it starts.
func TestAMemberThatReclaimsWithAnotherListIsNew(t *testing.T) {
	inVirtualTime(t, func(c *cluster) {
		a, b := c.start("a", Numbered(8), spindle.WithReclaim()), c.process("b", Numbered(8))
		c.sleep(3 * lease)
		c.run(b)
		c.until(3*lease, "an even spread", spreadOver(8, a, b))
		c.sleep(3 * lease)
		a.kill()
		<-a.done
		again := c.start("a", Numbered(12), spindle.WithReclaim())
		took := c.until(5*lease/2, "a to have what only its list has", func() bool { return again.has() == 4 })
		assert.Greater(t, took, lease)
	})
}

// A slot that another member has claimed first counts once, however often the member then finds no free slot. Otherwise it
// would choose among ever more slots, whose rows stay for good.
func TestASlotThatWasLostCountsOnce(t *testing.T) {
	inVirtualTime(t, func(c *cluster) {
		m, lost := &member{g: c.process("a", Numbered(4)).Group}, contest{chosen: table.SlotName("orders", 0)}
		taken := elect.LockView{Observation: table.Observation{Name: lost.chosen, Writer: "b", Heartbeat: time.Now()}, FreeIn: lease}
		for range 3 {
			_, found := m.choose([]elect.LockView{taken}, &lost)
			require.False(t, found)
		}
		assert.Equal(t, 2, lost.among())
	})
}

// The zero Partition, which a test of a work function may use, refuses writes and does not panic.
func TestTheZeroPartitionRefusesWrites(t *testing.T) {
	var p Partition
	_, err := p.Apply(t.Context(), nil)
	assert.ErrorIs(t, err, spindle.ErrFenced)
	assert.NotNil(t, p.Fence())
	assert.Error(t, new(Group).Run(t.Context()))
}
