package spindle

import (
	"time"

	"github.com/spindle-lock/spindle/internal/elect"
	"github.com/spindle-lock/spindle/internal/table"
)

// leadership is the state of one term, and decides what to do at each event. Two rules: once the work's context is
// canceled, there is no way back; and the lock is released only when the work has returned.
type leadership struct {
	handover         bool // the end of Run's ctx is announced too
	stepDownOnReturn bool

	phase phase
	idle  bool          // the work has returned, or there is none
	by    table.Request // why the term ends, or ""
}

// phase is how far a term has come.
type phase int

const (
	leading  phase = iota
	leaving        // announced: the work continues until the followers have seen it
	draining       // the work's context is canceled: heartbeats continue until the work has returned
	lost           // the lock is not held any more, and the work has not returned
	over
)

// happening is the kind of an event.
type happening int

const (
	runEnded  happening = iota // Run's ctx
	asked                      // by a call of StepDown: answer
	requested                  // by another process: by
	announced                  // the followers have seen that the leader is leaving
	returned                   // the work
	jeopardy                   // a heartbeat failed: err
	safe                       // a heartbeat was acknowledged again
	termEnded                  // the lock is not held any more: err
	timeIsUp                   // the work's grace period after Run's ctx is over
)

// event is something that happened.
type event struct {
	what   happening
	err    error
	by     table.Request
	answer chan<- error
	at     elect.Instant // of jeopardy, safe and termEnded: when it happened,
	left   time.Duration // and how long the term was held for then
}

// action is something to do.
type action int

const (
	warnIdle   action = iota // the term continues, and nobody works
	announce                 // that the leader is leaving
	cancelWork               // its context
	release                  // the lock
	expire                   // leave the lock to expire: the work has not returned
	concede                  // that the lock is lost
	abandon                  // work that has not returned since the lock was lost
)

// on returns what to do, in this order.
func (l *leadership) on(e event) []action {
	if e.what == returned {
		l.idle = true
	}
	switch {
	case l.phase == over:
		return nil
	case e.what == termEnded:
		return l.lose()
	}
	switch l.phase {
	case leading:
		return l.lead(e)
	case leaving:
		return l.leave(e)
	case draining:
		return l.drain(e)
	}
	return l.await(e)
}

func (l *leadership) lead(e event) []action {
	switch e.what {
	case runEnded:
		if l.handover {
			return l.depart()
		}
		return l.stop()
	case asked, requested:
		l.by = e.by
		return l.depart()
	case returned:
		if l.stepDownOnReturn {
			return l.stop() // an announcement would only keep the lock without work
		}
		return []action{warnIdle}
	}
	return nil
}

func (l *leadership) leave(e event) []action {
	if e.what == announced || e.what == returned || e.what == runEnded && !l.handover {
		return l.stop()
	}
	return nil
}

func (l *leadership) drain(e event) []action {
	switch e.what {
	case returned:
		return l.end(release)
	case timeIsUp:
		return l.end(expire)
	}
	return nil
}

// await is for a lock that is lost.
func (l *leadership) await(e event) []action {
	switch e.what {
	case returned:
		return l.end()
	case timeIsUp:
		return l.end(abandon)
	}
	return nil
}

func (l *leadership) depart() []action {
	l.phase = leaving
	return []action{announce}
}

func (l *leadership) stop() []action {
	if l.idle {
		return l.end(cancelWork, release)
	}
	l.phase = draining
	return []action{cancelWork}
}

func (l *leadership) lose() []action {
	if l.idle {
		return l.end(concede)
	}
	l.phase = lost
	return []action{concede}
}

func (l *leadership) end(last ...action) []action {
	l.phase = over
	return last
}
