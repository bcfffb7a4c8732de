package cli

import (
	"context"
	"os"

	"github.com/spindle-lock/spindle/internal/elect"
	"github.com/spindle-lock/spindle/internal/table"
)

// A parting hands a program's term over: first the end is announced, and then the program gets its signal.
type parting struct {
	term   *elect.Term
	ctx    context.Context
	cancel context.CancelFunc
	asked  chan table.Request // a request to obey
	known  chan os.Signal     // the signal that the program is to get now
	begun  bool
}

// parting looks for requests once a lease, if they are to be obeyed, until it is cancelled.
func (x *execution) parting(t *elect.Term) *parting {
	p := &parting{term: t, asked: make(chan table.Request, 1), known: make(chan os.Signal, 1)}
	p.ctx, p.cancel = context.WithCancel(t.Context())
	if x.handover {
		go func() {
			if by := t.Requested(p.ctx); by != "" {
				p.asked <- by
			}
		}()
	}
	return p
}

// begin announces that the term is about to end, and then sends s on known, unless the parting is cancelled. It reports
// false if the parting has begun before.
func (p *parting) begin(s os.Signal) bool {
	if p.begun {
		return false
	}
	p.begun = true
	go func() {
		p.term.Announce(p.ctx)
		if p.ctx.Err() == nil {
			p.known <- s
		}
	}()
	return true
}
