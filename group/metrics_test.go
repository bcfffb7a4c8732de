package group

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/trace"

	"github.com/spindle-lock/spindle"
	"github.com/spindle-lock/spindle/internal/testkit/fleet"
)

// A group reports its partitions, its members and its moves. Its member's lock reports the metrics of any lock.
func TestAGroupReports(t *testing.T) {
	inVirtualTime(t, func(c *cluster) {
		ra, rb := fleet.NewReports(), fleet.NewReports()
		a := c.alone(10, ra.Options())
		c.sleep(3 * lease)
		b := c.start("b", Numbered(10), rb.Options())
		c.until(3*lease, "an even spread", spreadOver(10, a, b))
		c.sleep(lease)
		for _, r := range []*fleet.Reports{ra, rb} {
			m := r.Metrics(t)
			assert.Equal(t, 5.0, m["group.partitions{lock=orders}"])
			assert.Equal(t, 2.0, m["group.members{lock=orders}"])
			assert.Equal(t, 1.0, m["held{lock=orders}"])
		}
		assert.Equal(t, 10.0, ra.Metrics(t)["group.moves{direction=claimed,lock=orders}"])
		assert.Equal(t, 5.0, ra.Metrics(t)["group.moves{direction=released,lock=orders}"])
		assert.Equal(t, 5.0, rb.Metrics(t)["group.moves{direction=claimed,lock=orders}"])
		rd := fleet.NewReports()
		d := c.process("d", Numbered(10), rd.Options())
		d.link.Refuse(fleet.Refusing("claim", errors.New("not today")))
		c.run(d)
		c.sleep(lease)
		assert.Equal(t, 2.0, rd.Metrics(t)["group.members{lock=orders}"], "a process that is not in the group counts those that are")
		c.end(d)
		a.kill()
		c.until(2*lease, "b to have all", spreadOver(10, b))
		c.sleep(lease)
		assert.Equal(t, 1.0, rb.Metrics(t)["group.members{lock=orders}"])
		assert.Equal(t, 10.0, rb.Metrics(t)["group.partitions{lock=orders}"])
		c.end(b)
		assert.Equal(t, 1.0, rb.Metrics(t)["terms{lock=orders,reason=stopped}"])
		assert.NotContains(t, rb.Metrics(t), "group.partitions{lock=orders}", "a member that has ended reports nothing")
	})
}

// The traces of a group's member have its elections and its handovers, like those of any lock.
func TestAGroupTracesItsElectionsAndHandovers(t *testing.T) {
	inVirtualTime(t, func(c *cluster) {
		r := fleet.NewReports()
		a := c.alone(4, r.Options(), spindle.WithHandover())
		c.end(a)
		assert.Contains(t, r.Spans(), "election elected [observe done claim done confirm done]")
		assert.Contains(t, r.Spans(), "handover [announce done release done]")
	})
	inVirtualTime(t, func(c *cluster) { // the span in which a program calls Run may be over long before
		r := fleet.NewReports()
		p, of := c.process("a", Numbered(4), r.Options()), trace.NewSpanContext(trace.SpanContextConfig{TraceID: trace.TraceID{1}, SpanID: trace.SpanID{1}, TraceFlags: trace.FlagsSampled})
		ctx, stop := context.WithCancel(trace.ContextWithSpanContext(context.Background(), of))
		require.NoError(t, p.Run(ctx, p.done))
		c.sleep(lease)
		stop()
		require.NoError(t, <-p.done)
		require.NotEmpty(t, r.Ended())
		for _, s := range r.Ended() {
			assert.NotEqual(t, of.TraceID(), s.SpanContext().TraceID(), s.Name())
		}
	})
}

// Each end of a term is counted under its reason. A useless term is the member's decision, whatever its last failure was.
func TestWhyATermHasEndedIsCounted(t *testing.T) {
	over, stop := context.WithCancel(t.Context())
	stop()
	for reason, why := range map[string]error{
		"stopped":      stopped(over),
		"expired":      errReadDeadline,
		"superseded":   spindle.ErrSuperseded,
		"stepped_down": fmt.Errorf("%w: %w", errUseless, spindle.ErrSuperseded),
	} {
		inVirtualTime(t, func(c *cluster) {
			r := fleet.NewReports()
			_, h := c.holding(1, r.Options())
			h.close(why)
			assert.Equal(t, 1.0, r.Metrics(t)["terms{lock=orders,reason="+reason+"}"], why)
			h.letGo()
		})
	}
}
