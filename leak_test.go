package spindle_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spindle-lock/spindle"
	"github.com/spindle-lock/spindle/internal/testkit/fleet"
)

// Once a call has returned, nothing of it is left: no goroutine, no callback, and no row. verify/moments makes the calls
// fail in all ways.
func TestACallThatHasReturnedLeavesNothingBehind(t *testing.T) {
	fleet.InVirtualTime(t, func(b *fleet.Fleet) {
		remains, ctx := fleet.NewRemains(), fleet.NewContext()
		a := b.Machine("a", remains.Options(), spindle.WithHandover(), spindle.WithLeader(func(ctx context.Context, _ spindle.Term) { <-ctx.Done() }))
		require.NoError(t, a.Lock.Run(ctx, a.Done))
		b.Until(fleet.Lease, a.Has)
		before := remains.Kept(t)
		for name, call := range map[string]func() error{
			"StepDown":        func() error { return a.StepDown(remains.Ctx) },
			"RequestHandover": func() error { _, err := a.RequestHandover(remains.Ctx, a.Token()); return err },
			"Leader":          func() error { _, err := a.Leader(remains.Ctx); return err },
			"Wait":            func() error { _, err := a.Wait(remains.Ctx); return err },
			"WaitElected":     func() error { _, err := a.WaitElected(remains.Ctx); return err },
		} {
			require.NoError(t, call(), name)
			b.Until(fleet.Lease, a.Has)
			time.Sleep(fleet.Lease)
			assert.Equal(t, before, remains.Kept(t), name)
		}
		ctx.End()
		require.NoError(t, <-a.Done)
		assert.Empty(t, remains.Kept(t))
		assert.Zero(t, ctx.Callbacks())
		assert.Len(t, b.Store.Rows(), 1)
		assert.True(t, b.Store.Rows()[fleet.Name].Heartbeat.IsZero())
	})
}
