package elect

import (
	"context"
	"errors"
	"time"

	"github.com/spindle-lock/spindle/internal/table"
)

// past is what a candidate knows of its own last terms.
type past struct {
	own      table.Token   // of the last term: when the candidate competes again, nobody holds it
	term     *Term         // the last one, until the candidate competes again
	unkept   table.Token   // own, if it expired because heartbeats failed
	yieldFor time.Duration // how long the candidate then lets others go first
	expired  int           // how many terms in a row expired so
}

func (p *past) began(t *Term) { p.own, p.term = t.token, t }

// settle takes in how the last term ended. If it expired because heartbeats failed, the candidate could win the lock
// and not keep it. It must not win the next term before others may claim, or it would keep the lock from candidates
// that can keep it. So it waits for the end of its own lease as they do, and from the second such term in a row, it
// lets them go first. A term that was kept for ten leases begins a new row.
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
