package moments

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/spindle-lock/spindle"
	"github.com/spindle-lock/spindle/internal/testkit/moments"
)

// electors are the machine and its rival.
type electors struct {
	own, rival *spindle.Lock
	leads      atomic.Int64 // how many leader functions of the machine run
	done       chan error
}

func has(l *spindle.Lock) func() bool {
	return func() bool { ok, _ := l.HasLock(); return ok }
}

// An elector leads, steps down, competes again and stops. Whatever happens at whatever moment: two never hold the lock,
// the leader's context ends no later than the next heartbeat after its lock is gone, Run ends in time, its function does not
// run on, and the other candidate leads within three leases.
func TestElectorAtEachMoment(t *testing.T) {
	for _, handover := range []bool{false, true} {
		t.Run(fmt.Sprint("handover=", handover), func(t *testing.T) {
			var more []spindle.Option
			if handover {
				more = append(more, spindle.WithHandover())
			}
			moments.AtEachMoment(t, moments.Machine{
				Live: func(w *moments.World) { liveElector(w, more) },
				Events: moments.Common(map[string]func(*moments.World){
					"it is asked to step down": func(w *moments.World) { _ = w.Values.(*electors).own.StepDown(context.Background()) },
					"an operator releases it":  moments.Operator("m"),
					"it is requested":          moments.Requested("m"),
					"the rival joins":          func(w *moments.World) { w.Values.(*electors).join(w) },
				}),
				After: electorsAfter,
			})
		})
	}
}

func liveElector(w *moments.World, more []spindle.Option) {
	e := &electors{done: make(chan error, 1)}
	w.Values = e
	e.own = spindle.New(nil, "locktable", "m", append(more, w.Options(), spindle.WithLeader(e.work(w)))...)
	e.rival = spindle.New(nil, "locktable", "m", append(more, w.Beside("rival"))...)
	stop := w.Apart(has(e.own), has(e.rival))
	defer stop()
	if err := e.own.Run(w.Ctx, e.done); err != nil {
		w.Errorf("Run: %v", err)
		return
	}
	time.Sleep(moments.Lease + moments.Lease/2)
	e.join(w)
	step, cancel := context.WithTimeout(context.Background(), 3*moments.Lease)
	_ = e.own.StepDown(step)
	cancel()
	time.Sleep(2 * moments.Lease)
	w.End()
	ended := time.Now()
	select {
	case <-e.done:
	case <-time.After(5 * moments.Lease):
		w.Errorf("Run does not end")
		<-e.done
	}
	if took := time.Since(ended); took > 3*moments.Lease {
		w.Errorf("Run ended after %v", took)
	}
	if e.leads.Load() != 0 {
		w.Errorf("the leader function still runs")
	}
}

// work returns a leader function that runs until its context ends.
func (e *electors) work(w *moments.World) func(context.Context, spindle.Term) {
	return func(ctx context.Context, _ spindle.Term) {
		if e.leads.Add(1) > 1 {
			w.Errorf("two leader functions of one elector run")
		}
		defer e.leads.Add(-1)
		gone := time.Time{}
		for ctx.Err() == nil {
			if has(e.own)() {
				gone = time.Time{}
			} else if gone.IsZero() {
				gone = time.Now()
			} else if time.Since(gone) > moments.Lease {
				w.Errorf("the lock has been gone for a lease, and the leader's context has not ended")
				return
			}
			time.Sleep(moments.Lease / 100)
		}
	}
}

func (e *electors) join(w *moments.World) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	if err := e.rival.Run(ctx, done); errors.Is(err, spindle.ErrRunning) {
		cancel()
		return
	}
	w.Others.Go(func() {
		<-w.Remains.Ctx.Done()
		cancel()
		<-done
	})
}

func electorsAfter(w *moments.World) {
	e := w.Values.(*electors)
	w.Until("the rival leads", 3*moments.Lease, has(e.rival))
	time.Sleep(moments.Lease)
	if !has(e.rival)() {
		w.Errorf("the rival does not keep the lock")
	}
	w.Remains.Ctx.End()
}
