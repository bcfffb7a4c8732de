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
	yieldFor time.Duration // how long the candidate then lets other candidates go first
	expired  int           // how many terms in a row expired for that reason
}

func (p *past) began(t *Term) { p.own, p.term = t.token, t }

// settle records how the last term ended. If it expired because heartbeats failed, the candidate was able to win the
// lock but not to keep it. Such a candidate must not win again and again while other candidates are able to keep the
// lock. So it has to wait until its lease expires, as the others do. After two such terms in a row, it waits even
// longer, so that the others can claim first. A term that lasts ten lease durations resets the count.
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
