package spindle

import (
	"time"

	"github.com/spindle-lock/spindle/internal/elect"
	"github.com/spindle-lock/spindle/internal/table"
)

// leadership is the state machine of one term. It maps each event to the actions to take. Two rules always hold. Once
// the work's context has been canceled, the term must end. The lock is released only after the work has returned.
type leadership struct {
	handover     bool // whether the end of Run's ctx is announced, too
	keepOnReturn bool // whether the term continues without its work

	phase phase
	idle  bool          // whether the work has returned, or there is none
	early bool          // whether the term ends because the work has returned
	by    table.Request // the request that ends the term, or ""
}

// phase is how far a term has come.
type phase int

const (
	leading  phase = iota
	leaving        // announced; the work continues until the followers have seen the announcement
	draining       // the work's context is canceled; heartbeats continue until the work has returned
	lost           // the lock is no longer held, but the work has not returned
	over
)

// happening is the kind of an event.
type happening int

const (
	runEnded  happening = iota // Run's ctx has ended
	asked                      // StepDown was called; answer is set
	requested                  // another process has requested a handover; by is set
	announced                  // the followers have seen that the leader is leaving
	returned                   // the work has returned
	jeopardy                   // a heartbeat failed; err is set
	safe                       // a heartbeat was acknowledged again
	termEnded                  // the lock is no longer held; err is set
	timeIsUp                   // the work's grace period after the end of Run's ctx has elapsed
)

// event is an occurrence that the machine reacts to.
type event struct {
	what   happening
	err    error
	by     table.Request
	answer chan<- error
	at     elect.Instant // for jeopardy, safe and termEnded: when it happened
	left   time.Duration // how much of the term was left at that instant
}

// action is something to do.
type action int

const (
	announce   action = iota // announce that the leader is leaving
	cancelWork               // cancel the work's context
	release                  // release the lock
	expire                   // let the lock expire, because the work has not returned
	concede                  // accept that the lock is lost
	abandon                  // stop waiting for work that has not returned since the lock was lost
)

// on returns the actions to take, in order.
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
		if !l.keepOnReturn {
			l.early = true
			return l.stop() // an announcement would only prolong a term without work
		}
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

// await handles events after the lock was lost.
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
