package lock

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spindle-lock/spindle"
	"github.com/spindle-lock/spindle/internal/table"
)

// The tests in this file are about rows that were written by a newer version of this program, as in a rolling update.

// rewrite turns the lease row of a held lock into one of a newer version.
func (b *bed) rewrite(name string, token table.Token) {
	b.Helper()
	require.NoError(b, b.store.Commit(b.Context(), "newer", []table.Write{
		{Kind: table.Update, Name: table.LeaseKey(name, token), Set: []table.Cell{{Column: table.ColWriter, Value: `{"v":2,"lease":[10]}`}}}}))
}

func TestALockOfANewerVersionIsWaitedFor(t *testing.T) {
	inVirtualTime(t, func(b *bed) {
		holder, old := b.process().mutex("m"), b.process()
		require.NoError(t, holder.Lock(b.Context()))
		b.rewrite("m", table.Token(holder.Token()))
		var lines bytes.Buffer
		m := old.mutex("m")
		m.contender.config.Log = slog.New(slog.NewTextHandler(&lines, nil))
		ok, err := m.TryLock(b.Context())
		assert.NoError(t, err, "it is held")
		assert.False(t, ok)
		ok, err = old.set("m", "n").TryLock(b.Context())
		assert.NoError(t, err)
		assert.False(t, ok)
		ctx, cancel := within1s(b.Context())
		defer cancel()
		start := time.Now()
		err = m.Lock(ctx)
		assert.Equal(t, time.Second, time.Since(start))
		assert.ErrorIs(t, err, context.DeadlineExceeded)
		assert.ErrorContains(t, err, "was written by a newer version of spindle")
		assert.ErrorContains(t, err, "update this program")
		assert.Equal(t, 1, strings.Count(lines.String(), "level=WARN"), lines.String())

		done := make(chan error)
		go func() { done <- m.Lock(b.Context()) }()
		time.Sleep(time.Hour)
		require.NoError(t, holder.Unlock(b.Context()))
		require.NoError(t, <-done)
	})
}

func TestASlotOfANewerVersionIsWaitedFor(t *testing.T) {
	for name, size := range map[string]int{"it has this slot": 1, "it has a slot that is not looked at before": 1000} {
		t.Run(name, func(t *testing.T) {
			inVirtualTime(t, func(b *bed) {
				newer, old := b.process(), b.process()
				newer.clock = &stepping{} // it chooses the last slot
				held, err := newer.semaphore("s", size).Acquire(b.Context())
				require.NoError(t, err)
				b.rewrite(held.names[0], table.Token(held.Token()))
				old.takes = 5 * time.Millisecond
				s := old.semaphore("s", 1)
				_, ok, err := s.TryAcquire(b.Context())
				assert.NoError(t, err)
				assert.False(t, ok)
				ctx, cancel := within1s(b.Context())
				defer cancel()
				start := time.Now()
				_, err = s.Acquire(ctx)
				assert.InDelta(t, 1, time.Since(start).Seconds(), 0.01)
				assert.ErrorIs(t, err, context.DeadlineExceeded)
				assert.Less(t, len(old.sent()), 200, "it looks less and less often")
				if claims := len(old.when("claim")); claims > 0 {
					assert.Greater(t, claims, 2, "it keeps no slot while it waits")
				}
				time.Sleep(time.Second)
				assert.Len(t, heldSlots(b), 1)

				require.NoError(t, held.Release(b.Context()))
				slot, err := s.Acquire(b.Context())
				require.NoError(t, err)
				require.NoError(t, slot.Release(b.Context()))
			})
		})
	}
}

func TestWorkOfANewerVersionIsNotDoneAgain(t *testing.T) {
	inVirtualTime(t, func(b *bed) {
		require.NoError(t, b.store.Commit(b.Context(), "newer", []table.Write{
			{Kind: table.Put, Name: "nightly!done", Set: []table.Cell{{Column: table.ColWriter, Value: `{"v":2,"done":{"key":"1"}}`}}}}))
		start := time.Now()
		ran, err := b.process().once("nightly").Do(b.Context(), KeyOf("2"), func(context.Context, Run) error { panic("it may be done") })
		assert.False(t, ran)
		assert.ErrorIs(t, err, table.ErrNewer)
		assert.Equal(t, table.Wrong, table.FaultOf(err))
		assert.ErrorContains(t, err, "update this program")
		assert.Less(t, time.Since(start), time.Second)
	})
}

func TestWorkThatANewerVersionIsAtIsNotBegun(t *testing.T) {
	inVirtualTime(t, func(b *bed) {
		holder := b.process().mutex("nightly")
		require.NoError(t, holder.Lock(b.Context()))
		b.rewrite("nightly", table.Token(holder.Token()))
		o := b.process().once("nightly")
		ran, err := o.TryDo(b.Context(), KeyOf("1"), succeed)
		assert.False(t, ran)
		assert.ErrorIs(t, err, ErrBusy)
		assert.ErrorContains(t, err, "written by a newer version")
		done := make(chan error)
		go func() {
			ran, err = o.Do(b.Context(), KeyOf("1"), succeed)
			assert.True(t, ran)
			done <- err
		}()
		time.Sleep(time.Hour)
		require.NoError(t, holder.Unlock(b.Context()))
		require.NoError(t, <-done)
	})
}

// An error says what the last poll has found, and not who held the lock before: an operator would look for a process that has long gone.
func TestTheErrorOfAWaitDoesNotNameAHolderThatHasGone(t *testing.T) {
	inVirtualTime(t, func(b *bed) {
		holder, p := b.process().mutex("m", spindle.WithID("the holder")), b.process()
		require.NoError(t, holder.Lock(b.Context()))
		ctx, cancel := context.WithTimeout(b.Context(), time.Minute)
		defer cancel()
		time.AfterFunc(20*time.Second, func() { b.rewrite("m", table.Token(holder.Token())) })
		err := p.mutex("m").Lock(ctx)
		assert.ErrorIs(t, err, context.DeadlineExceeded)
		assert.ErrorContains(t, err, "newer version")
		assert.False(t, strings.Contains(err.Error(), "held: "), err.Error())
	})
}
