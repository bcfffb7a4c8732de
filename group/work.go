package group

import (
	"errors"
	"sync"
	"time"

	"github.com/spindle-lock/spindle/internal/options"
)

// outcome is the result of an assignment's work, or of one of its writes.
type outcome struct {
	of   *assignment
	err  error
	gone bool // a write was refused because the partition's lease row is missing; the work may still be running
}

// returned collects outcomes until the loop handles them.
type returned struct {
	mu   sync.Mutex
	list []outcome
	wake chan struct{} // has room for one
}

func (r *returned) put(o outcome) {
	r.mu.Lock()
	r.list = append(r.list, o)
	r.mu.Unlock()
	signal(r.wake)
}

func signal(wake chan struct{}) {
	select {
	case wake <- struct{}{}:
	default:
	}
}

func (r *returned) take() []outcome {
	r.mu.Lock()
	defer r.mu.Unlock()
	list := r.list
	r.list = nil
	return list
}

// takeReturned handles work that has returned, in this term or an earlier one.
func (m *member) takeReturned() []outcome {
	done := m.returned.take()
	for _, o := range done {
		if o.gone {
			continue
		}
		o.of.busy = nil
		m.stuck.CompareAndSwap(o.of, nil)
	}
	return done
}

// collect handles work that has returned. If all revoked work has now returned, the revoked partitions are released
// immediately. Otherwise, they are released after lease/50, so that work that returns by then is included in the same
// commit.
func (t *term) collect() {
	clock := t.m.config.Clock
	for _, o := range t.m.takeReturned() {
		a := o.of
		switch {
		case a.in != t:
			t.soon(0) // the partition can be claimed now
		case o.gone:
			if a.state == held && a.assigned == a {
				t.lose([]*entry{a.entry})
			}
		case a.state == revoking && a.assigned == a:
			t.releases.sooner(clock, t.m.config.Lease/50)
		case a.state == held && a.assigned == a && a.ctx.Err() == nil && !t.leaving():
			t.returnedEarly(a, o.err)
		}
	}
	if t.releases.on && !t.m.inventory.works(t, true) {
		t.releases.sooner(clock, 0)
	}
}

// returnedEarly does what WithEarlyReturn says about work that returned before its context had ended.
func (t *term) returnedEarly(a *assignment, err error) {
	t.saidEarly(a, err)
	clock, lease := t.m.config.Clock, t.m.config.Lease
	if clock.Now().Ran(a.began) >= lease {
		a.pause.Reset()
		a.earlyReturn = suspicion{}
	}
	switch t.m.config.OnReturn {
	case options.KeepIdle:
	case options.Release:
		a.earlyReturn.fail(clock, lease, errReturned)
		t.revoke(a.entry, errReturned)
	default:
		a.again.set(clock, a.pause.Pause(clock))
		t.idle = append(t.idle, a)
	}
}

var errReturned = errors.New("its work returned early")

// saidEarly logs an early return, as a warning the first time for each assignment and at level Debug after that.
func (t *term) saidEarly(a *assignment, err error) {
	log := t.m.log.Warn
	if a.said {
		log = t.m.log.Debug
	}
	a.said = true
	log("the work on a partition returned before its context ended", "partition", a.name, "token", a.token, "err", err, "then", t.m.config.OnReturn)
}

// restarts returns the time until the next work that returned early has to begin again.
func (t *term) restarts() time.Duration {
	soonest := never
	for _, a := range t.idle {
		soonest = min(soonest, a.again.left(t.m.config.Clock))
	}
	return soonest
}

// restart begins work again that returned early, once its pause has elapsed.
func (t *term) restart() {
	idle := t.idle[:0]
	for _, a := range t.idle {
		switch {
		case a.ctx.Err() != nil: // revoked
		case a.again.left(t.m.config.Clock) > 0:
			idle = append(idle, a)
		default:
			t.work(a)
		}
	}
	t.idle = idle
}
