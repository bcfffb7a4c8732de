package moments

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/spindle-lock/spindle"
)

var errUnavailable = status.Error(codes.Unavailable, "the request is refused")

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
			atEachMoment(t, machine{
				live: func(w *world) { liveElector(w, more) },
				events: common(map[string]func(*world){
					"it is asked to step down": func(w *world) { _ = w.values.(*electors).own.StepDown(context.Background()) },
					"an operator releases it":  operator("m"),
					"it is requested":          requested("m"),
					"the rival joins":          func(w *world) { w.values.(*electors).join(w) },
				}),
				after: electorsAfter,
			})
		})
	}
}

func liveElector(w *world, more []spindle.Option) {
	e := &electors{done: make(chan error, 1)}
	w.values = e
	e.own = spindle.New(nil, "locktable", "m", w.options(append(more, spindle.WithLeader(e.work(w)))...)...)
	e.rival = spindle.New(nil, "locktable", "m", w.beside("rival", more...)...)
	stop := w.apart(has(e.own), has(e.rival))
	defer stop()
	if err := e.own.Run(w.ctx, e.done); err != nil {
		w.errorf("Run: %v", err)
		return
	}
	time.Sleep(lease + lease/2)
	e.join(w)
	step, cancel := context.WithTimeout(context.Background(), 3*lease)
	_ = e.own.StepDown(step)
	cancel()
	time.Sleep(2 * lease)
	w.end()
	ended := time.Now()
	select {
	case <-e.done:
	case <-time.After(5 * lease):
		w.errorf("Run does not end")
		<-e.done
	}
	if took := time.Since(ended); took > 3*lease {
		w.errorf("Run ended after %v", took)
	}
	if e.leads.Load() != 0 {
		w.errorf("the leader function still runs")
	}
}

// work returns a leader function that runs until its context ends.
func (e *electors) work(w *world) func(context.Context, spindle.Term) {
	return func(ctx context.Context, _ spindle.Term) {
		if e.leads.Add(1) > 1 {
			w.errorf("two leader functions of one elector run")
		}
		defer e.leads.Add(-1)
		gone := time.Time{}
		for ctx.Err() == nil {
			if has(e.own)() {
				gone = time.Time{}
			} else if gone.IsZero() {
				gone = time.Now()
			} else if time.Since(gone) > lease {
				w.errorf("the lock has been gone for a lease, and the leader's context has not ended")
				return
			}
			time.Sleep(lease / 100)
		}
	}
}

func (e *electors) join(w *world) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	if err := e.rival.Run(ctx, done); errors.Is(err, spindle.ErrRunning) {
		cancel()
		return
	}
	w.others.Go(func() {
		<-w.remains.Ctx.Done()
		cancel()
		<-done
	})
}

func electorsAfter(w *world) {
	e := w.values.(*electors)
	w.until("the rival leads", 3*lease, has(e.rival))
	time.Sleep(lease)
	if !has(e.rival)() {
		w.errorf("the rival does not keep the lock")
	}
	w.remains.Ctx.End()
}
