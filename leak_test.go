package spindle_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spindle-lock/spindle"
	"github.com/spindle-lock/spindle/internal/table"
	"github.com/spindle-lock/spindle/internal/testkit/fleet"
)

// site is a process with one lock, whose calls must leave nothing behind.
type site struct {
	*fleet.Fleet
	*fleet.Machine
	remains *fleet.Remains
	ctx     *fleet.Context // Run's ctx
	hangs   atomic.Bool    // whether the work hangs once it is told to stop
}

func (s *site) work(ctx context.Context, _ spindle.Term) {
	<-ctx.Done()
	if s.hangs.Load() {
		time.Sleep(3 * fleet.Lease / 2)
	}
}

// trouble is a fault that lasts until it is cured.
type trouble struct {
	name  string
	begin func(*site)
}

func troubles() []trouble {
	all := []trouble{
		{"nothing", func(*site) {}},
		{"an outage", func(s *site) { s.Link.Cut() }},
		{"a ctx that has ended", func(s *site) { s.remains.Ctx.End() }},
		{"work that hangs", func(s *site) { s.hangs.Store(true) }},
	}
	for _, sick := range fleet.Troubles(3*fleet.Lease/2, "observe", "lease-record", "claim", "confirm", "withdraw", "heartbeat", "announce", "release", "released", "asked", "ask") {
		all = append(all, trouble{sick.Name, func(s *site) { sick.Begin(s.Link) }})
	}
	return all
}

// recover ends all troubles.
func (s *site) recover() {
	s.Link.Heal()
	s.Link.Mend()
	s.hangs.Store(false)
}

// calls are the calls of a Lock, by a process that leads. Each call begins the fault by calling trouble.
var calls = map[string]func(s *site, ctx context.Context, trouble func()) error{
	"Run": func(s *site, _ context.Context, trouble func()) error {
		trouble()
		s.ctx.End()
		err := <-s.Done
		again := s.run()
		for errors.Is(again, spindle.ErrRunning) { // its work has not returned yet
			time.Sleep(fleet.Lease)
			again = s.run()
		}
		return errors.Join(err, again)
	},
	"StepDown": func(s *site, ctx context.Context, trouble func()) error {
		trouble()
		return s.StepDown(ctx)
	},
	"StepDown while a heartbeat hangs": func(s *site, ctx context.Context, trouble func()) error {
		trouble()
		time.Sleep(fleet.Lease/3 + fleet.Lease/50)
		return s.StepDown(ctx)
	},
	"RequestHandover": func(s *site, ctx context.Context, trouble func()) error {
		token := s.Token()
		trouble()
		_, err := s.RequestHandover(ctx, token)
		return err
	},
	"Leader": func(s *site, ctx context.Context, trouble func()) error {
		trouble()
		_, err := s.Leader(ctx)
		return err
	},
	"Wait for the next term": func(s *site, ctx context.Context, trouble func()) error {
		trouble()
		s.lose()
		_, err := s.Wait(ctx)
		return err
	},
	"WaitElected": func(s *site, ctx context.Context, trouble func()) error {
		trouble()
		s.lose()
		_, err := s.WaitElected(ctx)
		return err
	},
}

// run starts Run, or starts it again, with a ctx of its own.
func (s *site) run() error {
	s.ctx = fleet.NewContext()
	s.Stop = s.ctx.End
	s.T.Cleanup(s.ctx.End)
	return s.Lock.Run(s.ctx, s.Done)
}

// kept returns the resources that the calls have left behind, including the callbacks on Run's ctx.
func (s *site) kept() map[string]int {
	kept := s.remains.Kept(s.T)
	kept["callbacks on Run's ctx"] = s.ctx.Callbacks()
	return kept
}

// call makes a call whose ctx ends after limit.
func (s *site) call(limit time.Duration, f func(*site, context.Context, func()) error, trouble func()) error {
	done := make(chan error, 1)
	go func() { done <- f(s, s.remains.Ctx, trouble) }()
	select {
	case err := <-done:
		return err
	case <-time.After(limit):
		s.remains.Ctx.End()
		return <-done
	}
}

// settle lets time pass until late messages have arrived, and the site leads again.
func (s *site) settle() {
	s.T.Helper()
	time.Sleep(4 * fleet.Lease)
	synctest.Wait()
	require.True(s.T, s.Has(), "it does not lead again")
}

// lose takes the lock away, and waits until the site has noticed.
func (s *site) lose() {
	s.Operator(table.Write{Kind: table.Delete, Name: fleet.Key(s.Token())})
	time.Sleep(fleet.Lease)
	synctest.Wait()
}

// Whatever goes wrong with a call, once the fault is cured, the call leaves nothing behind: no goroutine, no callback,
// and no row.
func TestACallThatFailsLeavesNothingBehind(t *testing.T) {
	for name, opts := range map[string][]spindle.Option{
		"":                nil,
		" with handovers": {spindle.WithHandover()},
	} {
		failed := map[string]int{}
		for call, f := range calls {
			for _, trouble := range troubles() {
				for _, limit := range fleet.Some(fleet.Lease/5, 4*fleet.Lease) {
					fleet.InVirtualTime(t, func(b *fleet.Fleet) {
						s := &site{Fleet: b, remains: fleet.NewRemains()}
						s.Machine = b.Machine("a", append(opts, s.remains.Options(), spindle.WithLeader(s.work))...)
						require.NoError(t, s.run())
						s.settle()
						before := s.kept()
						err := s.call(limit, f, func() { trouble.begin(s) })
						if err != nil {
							failed[call]++
						}
						s.recover()
						s.settle()
						assert.Equal(t, before, s.kept(), "%s%s, %s, limit %v: %v", call, name, trouble.name, limit, err)

						s.remains.Ctx = fleet.NewContext()
						err = s.call(time.Hour, f, func() {})
						if call != "RequestHandover" || opts != nil {
							assert.NoError(t, err, "again: %s%s, %s", call, name, trouble.name)
						}
						s.settle()
						assert.Equal(t, before, s.kept(), "again: %s%s, %s", call, name, trouble.name)
						b.End(s.Machine)
						assert.Equal(t, map[string]int{"callbacks on Run's ctx": 0}, s.kept())
						assertReleased(t, b)
					})
				}
			}
		}
		for call := range calls {
			assert.NotZero(t, failed[call], "%s%s never failed: nothing was shown", call, name)
		}
	}
}

// assertReleased asserts that there is exactly one row, and that it belongs to a released lock.
func assertReleased(t *testing.T, b *fleet.Fleet) {
	t.Helper()
	rows := b.Store.Rows()
	assert.Len(t, rows, 1)
	assert.True(t, rows[fleet.Name].Heartbeat.IsZero(), "%v", rows)
	assert.Empty(t, rows[fleet.Name].Writer)
}
