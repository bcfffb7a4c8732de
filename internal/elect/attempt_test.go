package elect

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spindle-lock/spindle/internal/table"
	"github.com/spindle-lock/spindle/internal/testkit/memstore"
)

// A server that hangs uses up one attempt rather than the lease. With a short lease, an attempt gets a part of it,
// which leaves time for another attempt. With a long lease, it gets a few seconds.
func TestAnAttemptThatHangsLeavesTimeForTheNext(t *testing.T) {
	for of, most := range map[time.Duration]time.Duration{9 * time.Second: 4500 * time.Millisecond, 24 * time.Hour: 10 * time.Second} {
		t.Run(of.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := &memstore.Store{}
				var mu sync.Mutex
				longest := map[string]time.Duration{}
				c := candidate("c", table.Via(func(ctx context.Context, step string, send func(context.Context, table.Store) error) error {
					until, limited := ctx.Deadline()
					assert.True(t, limited, step)
					mu.Lock()
					longest[step] = max(longest[step], time.Until(until))
					mu.Unlock()
					return send(ctx, store)
				}), "m")
				c.LeaseRecord.Lease = of
				c.LeaseRecord.AcceptsHandover = true
				step := c.Try(t.Context(), All, 0)
				require.NotNil(t, step.Term)
				happened := make(chan TermEvent, 100)
				k := &Keeper{Term: step.Term, Interval: of / 10, Notify: func(e TermEvent) { happened <- e }}
				k.Start()
				require.NoError(t, table.Table{Store: store}.Ask(t.Context(), table.ByOperator, "m", step.Term.Token()))
				k.WatchRequests()
				await(happened, Requested)
				k.Announce()
				await(happened, Announced)
				require.NoError(t, k.Stop())
				require.NoError(t, step.Term.Release(t.Context(), nil))
				for step, limit := range longest {
					assert.LessOrEqual(t, limit, most, step)
					assert.GreaterOrEqual(t, limit, min(of/4, most), step)
				}
				for _, step := range []string{"observe", "claim", "confirm", "heartbeat", "asked", "announce", "release"} {
					assert.Contains(t, longest, step)
				}
			})
		})
	}
}

// await waits until something happens.
func await(happened <-chan TermEvent, what TermEventKind) TermEvent {
	for {
		if e := <-happened; e.What == what {
			return e
		}
	}
}
