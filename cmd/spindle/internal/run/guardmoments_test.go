package run

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/spindle-lock/spindle/internal/elect"
	"github.com/spindle-lock/spindle/internal/table"
	"github.com/spindle-lock/spindle/internal/testkit/moments"
)

// guards are the machine, and the guards before and behind it.
type guards struct{ before, own, next *guardSite }

// A guard takes its service over from another guard and hands it on to a third. Whatever happens at whatever moment: a
// service is active on one machine only, one command runs at a time, guard ends with an inactive service, and another guard
// takes over.
func TestGuardAtEachMoment(t *testing.T) {
	for _, handover := range []bool{false, true} {
		t.Run(fmt.Sprint("handover=", handover), func(t *testing.T) {
			of := func(f func(*guardSite)) func(*moments.World) {
				return func(w *moments.World) {
					s := w.Values.(*guards).own
					s.set(func() { f(s) })
				}
			}
			moments.AtEachMoment(t, moments.Machine{
				Live: func(w *moments.World) { liveGuard(w, handover) },
				Events: moments.Common(map[string]func(*moments.World){
					"its service is sick":     of(func(s *guardSite) { s.sick = true }),
					"its service is well":     of(func(s *guardSite) { s.sick = false }),
					"a command fails":         of(func(s *guardSite) { s.broken++ }),
					"two commands fail":       of(func(s *guardSite) { s.broken += 2 }),
					"an operator releases it": moments.Operator("lock"),
					"it is requested":         moments.Requested("lock"),
					"the holder stops":        func(w *moments.World) { w.Values.(*guards).before.stop() },
				}),
				After: func(w *moments.World) {
					next := w.Values.(*guards).next
					w.Until("another guard takes over", 4*moments.Lease, next.works)
					next.end()
				},
			})
		})
	}
}

func liveGuard(w *moments.World, handover bool) {
	g := &guards{}
	w.Values = g
	site := func(id string, over table.Store, clock elect.Clock) *guardSite {
		alone := &guardWorld{t: w, store: w.Store, over: over, dying: moments.Lease / 50} // Apart sees who else is active
		s := alone.site(id, func(g *guarding) {
			g.renew, g.activation, g.handover = moments.Lease/3, 3*moments.Lease, handover
			g.config.Clock, g.config.Lease = clock, moments.Lease
			g.candidate.Clock, g.candidate.LeaseRecord = clock, table.LeaseRecord{Lease: moments.Lease, AcceptsHandover: handover}
		})
		s.turnOn, s.turnOff = moments.Lease/5, moments.Lease/200 // inactive within a lease, even if nothing but its deadline ends it
		return s
	}
	g.before, g.own, g.next = site("before", w.Store, elect.SystemClock{}), site("own", w.Table(), w.Clock), site("next", w.Store, elect.SystemClock{})
	defer w.Apart(g.before.works, g.own.works, g.next.works)()
	g.before.begin()
	time.Sleep(moments.Lease / 2)
	defer context.AfterFunc(w.Ctx, g.own.stop)()
	g.own.begin()
	time.Sleep(moments.Lease / 2)
	g.before.stop()
	time.Sleep(moments.Lease)
	g.next.begin()
	time.Sleep(moments.Lease / 2)
	g.own.end()
	g.before.end()
	if g.own.works() {
		w.Errorf("the service is active after the end of its guard")
	}
}
