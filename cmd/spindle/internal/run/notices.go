package run

import (
	"errors"
	"fmt"
	"os"
	"time"
)

// Notices are callbacks for observers. Any of them can be nil. Run calls them one at a time, and they must return
// immediately. Observers learn about all other events through the methods of Job.
type Notices struct {
	Ending func(os.Signal) // exec got a signal to end; called for each signal
	Lost   func(why error) // the lock is lost, or the program must end because it is about to be; called once in a term
	Stuck  func(why error) // the program's group was killed but has not exited at the lock's deadline; called once for each program
}

// noticed records the term and the program for which notices were called.
type noticed struct {
	lost  *holding
	stuck *process
}

var errLate = errors.New("no heartbeat was acknowledged in time")

func (r *runner) notice(e event) {
	switch e.what {
	case ending:
		if r.Notices.Ending != nil {
			r.Notices.Ending(e.signal)
		}
	case jeopardy, safe:
		r.noticeHeartbeat(e)
	case late, overdue:
		r.noticeLoss(r.term, errLate)
	case lost, unfit:
		r.noticeLoss(r.term, e.err)
	}
	if p := r.program; p != nil && p != r.noticed.stuck && p.outlives(time.Now()) {
		r.noticed.stuck = p
		if r.Notices.Stuck != nil {
			r.Notices.Stuck(fmt.Errorf("%s was killed, but had not exited by the deadline of %s", r.Program, r.name()))
		}
	}
}

// noticeHeartbeat reports jeopardy or safe, unless an event that was received at the same time has ended the term.
func (r *runner) noticeHeartbeat(e event) {
	switch {
	case r.term == nil || r.m.turn.lost != nil:
	case e.what == jeopardy:
		r.Job.Jeopardy(r.term.Term, e.err)
	case e.what == safe:
		r.Job.Safe()
	}
}

// noticeLoss reports that a term was lost, at most once for each term. It ignores a term that began after exec had
// stopped waiting for the lock, because the beginning of such a term was not reported either.
func (r *runner) noticeLoss(h *holding, why error) {
	if h == nil || !h.kept || h == r.noticed.lost {
		return
	}
	r.noticed.lost = h
	if r.Notices.Lost != nil {
		r.Notices.Lost(why)
	}
}

// outlives reports whether a program that is still running has outlived the lock. This is the case if exec has killed
// the program and the lock's deadline has passed.
func (d *deadlines) outlives(now time.Time) bool { return !d.kill.IsZero() && !now.Before(d.until) }

// UntilEnding returns a channel that is closed when exec receives the next signal to end. It is for work that exec does
// after Run has returned.
func UntilEnding(signals <-chan os.Signal) <-chan struct{} {
	over := make(chan struct{})
	go func() {
		for s := range signals {
			if ends(s) {
				close(over)
				return
			}
		}
	}()
	return over
}
