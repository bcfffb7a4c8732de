package group

import (
	"errors"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spindle-lock/spindle"
	"github.com/spindle-lock/spindle/internal/plan"
	"github.com/spindle-lock/spindle/internal/table"
	"github.com/spindle-lock/spindle/internal/testkit/fleet"
)

func (c *cluster) plan(tab table.Table) (table.Token, string) {
	c.t.Helper()
	s, err := tab.LookAtGroup(c.t.Context(), "orders", table.GroupQuery{Body: true})
	require.NoError(c.t, err)
	return s.Plan, s.Body
}

// A member replaces only the plan that it has read. Otherwise it would publish the successor of a plan that no member
// uses any more.
func TestOfTwoThatPublishAPlanTheFirstCounts(t *testing.T) {
	inVirtualTime(t, func(c *cluster) {
		tab := table.Table{Store: c.store}
		for _, seen := range []string{"", "of a"} {
			head, body := c.plan(tab)
			require.Equal(t, seen, body)
			first, err := tab.PublishPlan(t.Context(), "orders", head, "a", "of a")
			require.NoError(t, err)
			_, err = tab.PublishPlan(t.Context(), "orders", head, "b", "of b")
			require.ErrorIs(t, err, table.ErrChanged)
			head, body = c.plan(tab)
			assert.Equal(t, first, head)
			assert.Equal(t, "of a", body)
		}
	})
}

// The two rows of a plan are written together. If one of them was changed by hand, members that read only the head and
// members that read both rows would use different plans.
func TestABodyThatDoesNotGoWithTheHeadIsNoPlan(t *testing.T) {
	for _, row := range []string{"orders/!plan", "orders/body!plan"} {
		inVirtualTime(t, func(c *cluster) {
			tab := table.Table{Store: c.store}
			_, err := tab.PublishPlan(t.Context(), "orders", 0, "a", "of a")
			require.NoError(t, err)
			c.operate(table.Write{Kind: table.Update, Name: row, Set: []table.Cell{{Column: table.ColToken, Value: table.Now}}})
			head, body := c.plan(tab)
			assert.NotZero(t, head)
			assert.Empty(t, body, "%s has another token", row)
		})
	}
}

// As soon as a member is known to be leaving, it publishes a plan that assigns its partitions to other members. All
// members read the plan in each look, but in a crowd not every look reads the members.
func TestAMemberThatLeavesPublishesThePlanWithoutIt(t *testing.T) {
	inVirtualTime(t, func(c *cluster) {
		a, b := c.shared(8, spindle.WithHandover())
		before, _ := c.plan(table.Table{Store: c.store})
		a.stop()
		c.sleep(lease / 1000)
		head, _ := c.plan(table.Table{Store: c.store})
		assert.Greater(t, head, before)
		assert.Equal(t, "a", c.store.Rows()["orders/!plan"].Writer)
		<-a.done
		c.until(lease, "b to have all", spreadOver(8, b))
	})
}

// A member that leaves publishes the plan without it even if another plan comes first, as when two members leave at the same time.
// Otherwise, the other members of a large group could learn only after the handover which partitions they get.
func TestOfTwoThatLeaveTogetherNeitherStaysInThePlan(t *testing.T) {
	inVirtualTime(t, func(c *cluster) {
		a, b := c.shared(9, spindle.WithHandover())
		d := c.start("d", Numbered(9), spindle.WithHandover())
		c.until(3*lease, "an even spread", spreadOver(9, a, b, d))
		c.sleep(2 * lease)
		d.link.Refuse(fleet.Refusing("look", errors.New("not now"))) // it can't publish the plan instead
		a.stop()
		b.stop()
		c.sleep(lease / 10)
		_, body := c.plan(table.Table{Store: c.store})
		published, err := plan.Decode(body, plan.NewList(Numbered(9).names))
		require.NoError(t, err)
		assert.Len(t, published.Members(), 1)
		d.link.Refuse(nil)
		<-a.done
		<-b.done
		c.until(lease, "d to have all", spreadOver(9, d))
	})
}

// The reply to a publication may come after a poll that has read a newer plan. The member keeps the newer one.
func TestALateReplyToAPublicationBringsNoOlderPlanBack(t *testing.T) {
	inVirtualTime(t, func(c *cluster) {
		h := c.inHand(c.process("a", Numbered(4))).settled()
		defer h.letGo()
		h.upkeep.sendPlan(h.upkeep.planning.Next)
		synctest.Wait()
		tab := table.Table{Store: c.store}
		head, body := c.plan(tab)
		newer, err := tab.PublishPlan(t.Context(), "orders", head, "b", body)
		require.NoError(t, err)
		h.upkeep.planning.Head = newer // as after a poll
		h.reply()
		assert.Equal(t, newer, h.upkeep.planning.Head)
	})
}
