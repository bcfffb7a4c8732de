package run

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/spindle-lock/spindle/internal/elect"
	"github.com/spindle-lock/spindle/internal/table"
	"github.com/spindle-lock/spindle/internal/testkit/memstore"
	"github.com/spindle-lock/spindle/internal/testkit/moments"
)

// slowService is a service whose commands take time, also to end when they are killed.
type slowService struct {
	*moments.World
	story
	link   memstore.Link
	cancel context.CancelFunc
	done   chan struct{}

	state    sync.Mutex // guards the rest
	command  string     // that runs
	isActive bool
	sick     bool
	failures int // so many commands fail
}

// guards are the machine, and the guards before and behind it.
type guards struct{ before, own, next *slowService }

// A guard takes its service over from another guard and hands it on to a third. Whatever happens at whatever moment: a
// service is active on one machine only, one command runs at a time, guard ends with an inactive service, and another guard
// takes over.
func TestGuardAtEachMoment(t *testing.T) {
	for _, handover := range []bool{false, true} {
		t.Run(fmt.Sprint("handover=", handover), func(t *testing.T) {
			of := func(f func(*slowService)) func(*moments.World) {
				return func(w *moments.World) {
					s := w.Values.(*guards).own
					s.state.Lock()
					defer s.state.Unlock()
					f(s)
				}
			}
			moments.AtEachMoment(t, moments.Machine{
				Live: func(w *moments.World) { liveGuard(w, handover) },
				Events: moments.Common(map[string]func(*moments.World){
					"its service is sick":     of(func(s *slowService) { s.sick = true }),
					"its service is well":     of(func(s *slowService) { s.sick = false }),
					"a command fails":         of(func(s *slowService) { s.failures++ }),
					"two commands fail":       of(func(s *slowService) { s.failures += 2 }),
					"an operator releases it": moments.Operator("lock"),
					"it is requested":         moments.Requested("lock"),
					"the holder stops":        func(w *moments.World) { w.Values.(*guards).before.cancel() },
				}),
				After: func(w *moments.World) {
					next := w.Values.(*guards).next
					w.Until("another guard takes over", 4*moments.Lease, next.active)
					next.ends()
				},
			})
		})
	}
}

func liveGuard(w *moments.World, handover bool) {
	g := &guards{}
	w.Values = g
	g.before, g.own, g.next = newService(w), newService(w), newService(w)
	defer w.Apart(g.before.active, g.own.active, g.next.active)()
	g.before.guarded(context.Background(), "before", handover, w.Store, elect.SystemClock{})
	time.Sleep(moments.Lease / 2)
	g.own.guarded(w.Ctx, "own", handover, w.Table(), w.Clock)
	time.Sleep(moments.Lease / 2)
	g.before.cancel()
	time.Sleep(moments.Lease)
	g.next.guarded(context.Background(), "next", handover, w.Store, elect.SystemClock{})
	time.Sleep(moments.Lease / 2)
	g.own.ends()
	g.before.ends()
	if g.own.active() {
		w.Errorf("the service is active after the end of its guard")
	}
}

func newService(w *moments.World) *slowService {
	return &slowService{World: w, done: make(chan struct{})}
}

func (s *slowService) guarded(ctx context.Context, id string, handover bool, store table.Store, clock elect.Clock) {
	const renew = moments.Lease / 3
	quiet := func(string, ...any) {}
	s.link.Store = store
	g := &Guard{
		command: command{Candidate: &elect.Candidate{Table: table.Table{Store: &s.link}, Clock: clock, Names: []string{"lock"}, ID: id,
			LeaseRecord: table.LeaseRecord{Lease: 3 * renew, AcceptsHandover: handover}}, Handover: handover, Say: quiet, Warn: quiet},
		Service: s, Renew: renew, Confirmation: 2 * renew, Unhealthy: 1, Activation: 3 * moments.Lease,
	}
	ctx, s.cancel = context.WithCancel(ctx)
	go func() { defer close(s.done); g.Run(ctx) }()
}

func (s *slowService) active() bool {
	s.state.Lock()
	defer s.state.Unlock()
	return s.isActive
}

// ends ends a guard.
func (s *slowService) ends() {
	s.cancel()
	select {
	case <-s.done:
	case <-time.After(5 * moments.Lease):
		s.Errorf("guard does not end")
		s.link.Cut() // it ends once it has lost its lock
		<-s.done
	}
}

// run runs a command, which may be killed, and calls do at its end unless it fails.
func (s *slowService) run(ctx context.Context, command string, takes time.Duration, do func()) error {
	s.state.Lock()
	if s.command != "" {
		s.Errorf("%s runs beside %s", command, s.command)
	}
	s.command = command
	s.state.Unlock()
	elect.Sleep(ctx, elect.SystemClock{}, takes)
	if ctx.Err() != nil {
		time.Sleep(moments.Lease / 50)
	}
	s.state.Lock()
	defer s.state.Unlock()
	s.command = ""
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if s.failures > 0 {
		s.failures--
		return errors.New("it fails")
	}
	do()
	return nil
}

func (s *slowService) Activate(ctx context.Context, _ *elect.Term) error {
	s.state.Lock()
	s.isActive = true // from the first moment on
	s.state.Unlock()
	return s.run(ctx, "an activation", moments.Lease/5, func() {})
}

func (s *slowService) Deactivate(ctx context.Context) error {
	return s.run(ctx, "a deactivation", moments.Lease/50, func() { s.isActive = false })
}

func (s *slowService) Extended() {}

func (s *slowService) Check(context.Context, Role) error {
	s.state.Lock()
	defer s.state.Unlock()
	if s.sick {
		return errors.New("sick")
	}
	return nil
}
