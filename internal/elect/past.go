package elect

import (
	"context"
	"errors"
	"time"

	"github.com/spindle-lock/spindle/internal/table"
)

// past is what a candidate remembers about its own last terms.
type past struct {
	own      table.Token   // of the last term, which has ended by the time the candidate competes again
	term     *Term         // the last term, until the candidate competes again
	unkept   table.Token   // own, if that term expired because heartbeats failed
	yieldFor time.Duration // how long the candidate then lets others go first
	expired  int           // how many terms in a row expired for that reason
}

func (p *past) began(t *Term) { p.own, p.term = t.token, t }

// settle records how the last term ended. If it expired because heartbeats failed, the candidate could win the lock but
// not keep it. Then it must not win the next term before other candidates can claim, because it would keep the lock
// from candidates that are able to hold it. So it waits for its own lease to expire, as they do. From the second such
// term in a row on, it also lets them go first. A term that is kept for ten lease durations resets the count.
func (p *past) settle() {
	t := p.term
	if p.term = nil; t == nil {
		return
	}
	p.unkept, p.yieldFor = 0, 0
	if t.kept() >= 10*t.lease {
		p.expired = 0
	}
	if !errors.Is(context.Cause(t.work), ErrExpired) || !t.inJeopardy() {
		return
	}
	p.unkept = t.token
	if p.expired++; p.expired > 1 {
		p.yieldFor = t.lease / 3
	}
}
