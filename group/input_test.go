package group

import (
	"context"
	"strings"
	"testing"
	"time"

	"cloud.google.com/go/spanner"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spindle-lock/spindle"
	"github.com/spindle-lock/spindle/internal/table"
	"github.com/spindle-lock/spindle/lock"
)

// The error for a wrong argument names the argument's value and says how to correct it, and nothing is started.
func TestBadArgumentsAreRefusedAndSayWhy(t *testing.T) {
	db := &spanner.Client{}
	work := func(context.Context, Partition) error { return nil }
	for _, c := range []struct {
		says string
		g    *Group
	}{
		{"the Spanner client is nil", New(nil, "locktable", "orders", Numbered(1))},
		{"not an identifier", New(db, "lock table", "orders", Numbered(1))},
		{"lock name is empty", New(db, "locktable", "", Numbered(1))},
		{"control characters", New(db, "locktable", "a\nb", Numbered(1))},
		{"the list of partitions is empty", New(db, "locktable", "orders", Numbered(0))},
		{"the list of partitions is empty", New(db, "locktable", "orders", Numbered(-7))},
		{"the list of partitions is empty", New(db, "locktable", "orders", Named())},
		{"more than 20000 partitions", New(db, "locktable", "orders", Numbered(1_000_000_000))},
		{`partition "b" is in the list more than once`, New(db, "locktable", "orders", Named("b", "a", "b"))},
		{"has no name", New(db, "locktable", "orders", Named("a", ""))},
		{"control characters", New(db, "locktable", "orders", Named("a\x1b[31m"))},
		{"is not valid UTF-8", New(db, "locktable", "orders", Named("a\xff"))},
		{"the maximum is 4096; use a shorter partition name", New(db, "locktable", "orders", Named(strings.Repeat("x", 4096)))},
		{"every byte other than letters, digits and -.~$&+=:@ counts as three", New(db, "locktable", "orders", Named(strings.Repeat("_", 2000)))},
		{"option 2 is nil", New(db, "locktable", "orders", Numbered(1), WithWork(work), nil)},
		{"WithWork(nil)", New(db, "locktable", "orders", Numbered(1), WithWork(nil))},
		{"WithWork is given twice", New(db, "locktable", "orders", Numbered(1), WithWork(work), WithWork(work))},
		{"WithStall(1m0s) needs WithWork", New(db, "locktable", "orders", Numbered(1), spindle.WithStall(time.Minute))},
		{"WithReclaim() needs WithID", New(db, "locktable", "orders", Numbered(1), spindle.WithReclaim())},
		{"ids of this form are reserved for the members of groups", New(db, "locktable", "orders", Numbered(1), spindle.WithID("a/member/0001_1700000000000000"))},
	} {
		err := c.g.Run(context.Background())
		if assert.ErrorContains(t, err, c.says) {
			assert.ErrorContains(t, err, "spindle: group ")
		}
		has, token := c.g.Has("0")
		assert.False(t, has)
		assert.Zero(t, token)
	}
	ended, end := context.WithCancel(context.Background())
	end()
	assert.ErrorContains(t, New(db, "locktable", "orders", Numbered(1)).Run(ended), "ctx had already ended")
}

// A lock does not interfere with members and partitions, because it can't take a slot or a partition that is held.
func TestALockLeavesMembersAndPartitionsAlone(t *testing.T) {
	inVirtualTime(t, func(c *cluster) {
		a := c.alone(3)
		for _, name := range []string{"orders/partition/1", "orders/member/0000"} {
			l, link := c.lock(name, "plain")
			ctx, stop := context.WithCancel(context.Background())
			done := make(chan error, 1)
			assert.NoError(t, l.Run(ctx, done))
			c.sleep(5 * lease)
			has, _ := l.HasLock()
			assert.False(t, has, name)
			assert.True(t, spreadOver(3, a)())
			assert.Zero(t, link.Counts()["claim"], name)
			stop()
			<-done
			m := lock.New(nil, "locktable", name, c.seam("mutex"))
			short, cancel := context.WithTimeout(context.Background(), lease)
			assert.ErrorContains(t, m.Lock(short), "belongs to a group", name)
			assert.NoError(t, short.Err(), "at once")
			cancel()
		}
	})
}

// In the opposite case, a lock has claimed a free partition, and the member waits until the lock is released.
func TestAPartitionThatALockHasIsWaitedFor(t *testing.T) {
	inVirtualTime(t, func(c *cluster) {
		l, _ := c.lock("orders/partition/1", "plain")
		ctx, stop := context.WithCancel(context.Background())
		done := make(chan error, 1)
		assert.NoError(t, l.Run(ctx, done))
		c.until(lease, "the lock", func() bool { has, _ := l.HasLock(); return has })
		a := c.start("a", Numbered(3))
		c.sleep(3 * lease)
		assert.Equal(t, []string{"0", "2"}, names(a.Held()))
		assert.Equal(t, 1, strings.Count(a.log.String(), "a plain lock has the same name as a partition"), "said once")
		assert.Regexp(t, `level=WARN msg="a plain lock has .* partition=1 lock=orders/partition/1 holder=plain token=\d+ partitions=1\n`, a.log.String())
		has, _ := l.HasLock()
		assert.True(t, has)
		require.NoError(t, a.Pause("1")) // it does not claim it between the terms of the lock
		stop()
		<-done
		again, stop := context.WithCancel(context.Background())
		require.NoError(t, l.Run(again, done))
		c.until(lease, "the lock", func() bool { has, _ := l.HasLock(); return has })
		require.NoError(t, a.Resume("1"))
		c.sleep(lease)
		assert.Equal(t, 2, strings.Count(a.log.String(), "a plain lock has the same name as a partition"), "said again")
		stop()
		<-done
		c.until(lease/2, "a to have all", spreadOver(3, a))
	})
}

// The values at the ends of each option's range are accepted, and the next ones are refused by an error that names the value.
func TestTheLimitsOfArgumentsAreAsDocumented(t *testing.T) {
	db := &spanner.Client{}
	refusal := func(p Partitions, o Option) error {
		return New(db, "locktable", "orders", p, spindle.WithID("a"), o).Err()
	}
	none := WithWeight(1)
	for _, o := range []Option{WithEarlyReturn(BeginAgain), WithEarlyReturn(Release), WithInitialDelay(0), WithInitialDelay(table.MaxLease), WithWeight(1), WithWeight(1000), WithIdentity(0), WithIdentity(7 * 24 * time.Hour)} {
		assert.NoError(t, refusal(Numbered(1), o))
	}
	for says, o := range map[string]Option{
		"WithEarlyReturn(-1): ":   WithEarlyReturn(BeginAgain - 1),
		"WithEarlyReturn(3): ":    WithEarlyReturn(Release + 1),
		"WithInitialDelay(-1ns):": WithInitialDelay(-1),
		"WithInitialDelay(" + (table.MaxLease + 1).String() + "): ": WithInitialDelay(table.MaxLease + 1),
		"WithWeight(0): ":                  WithWeight(0),
		"WithWeight(1001): ":               WithWeight(1001),
		"WithIdentity(-1ns): ":             WithIdentity(-1),
		"WithIdentity(168h0m0.000000001s)": WithIdentity(7*24*time.Hour + 1),
	} {
		assert.ErrorContains(t, refusal(Numbered(1), o), says)
	}
	assert.NoError(t, refusal(Numbered(MaxPartitions), none))
	assert.ErrorContains(t, refusal(Numbered(MaxPartitions+1), none), "more than 20000 partitions")
	err := refusal(Named("x", "b", "x", "x", "c", "b"), none)
	for _, name := range []string{"b", "x"} {
		assert.Equal(t, 1, strings.Count(err.Error(), `partition "`+name+`" is in the list more than once`), "once, however often it is: %v", err)
	}
	assert.NotContains(t, err.Error(), `"c"`)
}
