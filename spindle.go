package spindle

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"cloud.google.com/go/spanner"

	"github.com/spindle-lock/spindle/internal/elect"
	"github.com/spindle-lock/spindle/internal/options"
	"github.com/spindle-lock/spindle/internal/table"
)

// Lock is a candidate for one lock, and its holder while HasLock says so. All methods may be called
// from any goroutine.
type Lock struct {
	name    string
	config  options.Config
	err     error // what is wrong with the arguments of New; nothing works then
	db      *spanner.Client
	spanner table.Spanner
	table   table.Table

	running atomic.Bool
	term    atomic.Pointer[elect.Term] // nil: not the holder
	leader  atomic.Int64               // the token that Leader saw last
}

// New returns a Lock on name, in a table that ddl.Create makes, in the database of db. Nothing is
// started and no RPC is made before Run. What is wrong with the arguments is returned by Run, and by
// every other method that returns an error.
//
// A name has 1 to 4096 bytes of UTF-8 and does not end in _ and 16 or more digits.
func New(db *spanner.Client, table, name string, opts ...Option) *Lock {
	c := options.New(opts)
	c.Check(db, table, name)
	l := &Lock{name: name, config: c, db: db}
	l.table, l.spanner = c.Table(db, table)
	if err := c.Err(); err != nil {
		l.err = fmt.Errorf("spindle: lock %.64q: %w", name, err)
	}
	return l
}

// HasLock reports whether this Lock holds the lock now, and under which token: the zero Token where
// it does not. It is local: it makes no RPC, takes no lock and allocates nothing.
//
// True is said only before the local deadline, which no other candidate can have passed: a lease after
// the last acknowledged heartbeat was sent, less a hundredth for the rate of the clock. What happens
// between the answer and what is done with it is the caller's: writes that must not land after another
// holder's are to be fenced with the token.
func (l *Lock) HasLock() (bool, Token) {
	t := l.term.Load()
	if t == nil || !t.Held() {
		return false, 0
	}
	return true, Token(t.Token())
}

// Run stands for the lock in the background until ctx ends, and returns at once: nil, or what is wrong
// with the arguments of New or Run, with nothing started, or ErrRunning. While another holds the lock,
// or Spanner can't be reached, it tries on; a lock that is lost is stood for again. Nothing but ctx
// ends it.
//
// When ctx ends, guarded work (WithLeader) is told to stop, and heartbeats go on until it has returned,
// for at most one lease; then the lock is released, and exactly one value is sent on done, if there is
// one: nil, or why the lock could not be released, in which case it expires by itself. No goroutine is
// left then and Run may be called again, unless a leader function or observer has still not returned:
// Run is ErrRunning until it has. The Spanner client has to live until done. Work that only polls HasLock is not waited for: stop it first, then
// end ctx.
//
// A done channel with room for one value needs no reader. One without is offered the value for a lease
// and then given up, with an error in the log.
func (l *Lock) Run(ctx context.Context, done ...chan<- error) error {
	switch {
	case l.err != nil:
		return l.err
	case ctx == nil:
		return l.wrap("run", errors.New("ctx is nil: context.Background() runs for ever"))
	case len(done) > 1:
		return l.wrap("run", fmt.Errorf("%d done channels: give it one, or none", len(done)))
	case len(done) == 1 && done[0] == nil:
		return l.wrap("run", errors.New("the done channel is nil: leave it out, or make(chan error, 1)"))
	case !l.running.CompareAndSwap(false, true):
		return ErrRunning
	}
	go func() {
		e := newElector(l)
		err := e.run(ctx)
		if e.overdue != nil {
			defer func() { e.linger(); l.running.Store(false) }()
		} else {
			l.running.Store(false)
		}
		if len(done) == 1 {
			e.report(err, done[0])
		}
	}()
	return nil
}
