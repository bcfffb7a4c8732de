package spindle_test

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spindle-lock/spindle"
	"github.com/spindle-lock/spindle/internal/testkit/fleet"
)

// A warning is for problems that an operator should look at. A lock that changes hands normally logs no warning.
func TestALockThatChangesHandsWithNothingWrongIsWarnedOfNowhere(t *testing.T) {
	for name, more := range map[string][]spindle.Option{
		"at once":        nil,
		"with handovers": {spindle.WithHandover()},
		"after work":     nil,
	} {
		t.Run(name, func(t *testing.T) {
			fleet.InVirtualTime(t, func(b *fleet.Fleet) {
				var log fleet.Log
				work := func(ctx context.Context, _ spindle.Term) {
					select {
					case <-ctx.Done():
					case <-time.After(3 * fleet.Lease):
						if name != "after work" {
							<-ctx.Done()
						}
					}
				}
				opts := append([]spindle.Option{spindle.WithLogger(slog.New(slog.NewTextHandler(&log, nil))), spindle.WithLeader(work)}, more...)
				ms := []*fleet.Machine{b.Start("a", opts...), b.Start("b", opts...), b.Start("c", opts...)}
				for range 3 {
					time.Sleep(10 * fleet.Lease)
					for _, m := range ms {
						if m.Has() {
							require.NoError(t, m.StepDown(context.Background()))
							break
						}
					}
				}
				b.End(ms...)
				assert.Contains(t, log.String(), "msg=elected")
				assert.NotContains(t, log.String(), "level=WARN")
				assert.NotContains(t, log.String(), "level=ERROR")
			})
		})
	}
}
