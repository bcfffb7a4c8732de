package spindle

import (
	"context"
	"fmt"
	"sync/atomic"

	"cloud.google.com/go/spanner"

	"github.com/spindle-lock/spindle/internal/loop"
	"github.com/spindle-lock/spindle/internal/options"
	"github.com/spindle-lock/spindle/internal/table"
	"github.com/spindle-lock/spindle/internal/telemetry"
)

// Lock is a candidate for a named lock. It holds that lock while HasLock returns true. All methods may be called from
// any goroutine. A Lock uses resources only while Run is active, so there is nothing to close.
type Lock struct {
	name    string
	config  options.Config
	err     error // set if an argument of New is invalid; every method then fails
	db      *spanner.Client
	spanner table.Spanner
	table   table.Table
	about   telemetry.Scope

	runs   loop.Runs
	view   atomic.Pointer[view] // the loop's latest view of the lock
	leader atomic.Int64         // the token of the last leader that Leader saw
}

// New returns a Lock with the given name. The lock is stored in the given table of db's database. Create this table
// with ddl.Create. New starts no goroutines and makes no RPC. If an argument is invalid, Run and every other method
// that returns an error report the problem.
//
// A name has 1 to 4096 bytes of UTF-8, without control characters, line separators or bidirectional marks. It must not
// end in !done, !broken or !plan, or in an underscore followed by 16 or more digits.
func New(db *spanner.Client, table, name string, opts ...Option) *Lock {
	c := options.New(opts)
	c.Check(db, table, name)
	c.Require(c.Stall == 0 || c.Lead != nil, "WithStall(%v) needs WithLeader, because it watches the leader function's progress", c.Stall)
	l := &Lock{name: name, config: c, db: db}
	l.table, l.spanner = l.config.Table(db, table)
	l.about = c.Telemetry(table, name)
	l.about.Loop = true
	l.show(view{})
	if err := c.Err(); err != nil {
		l.err = fmt.Errorf("spindle: lock %.64q: %w", name, err)
	}
	return l
}

// Err returns an error if an argument of New is invalid, and nil otherwise. It makes no RPC.
func (l *Lock) Err() error { return l.err }

// wrap adds the step and the lock's name to err, and a hint if there is one.
func (l *Lock) wrap(step string, err error) error {
	return loop.Wrap(step, "lock", l.name, l.spanner.Table, err)
}

// HasLock reports whether this Lock holds the lock now. If it does, HasLock also returns the token of its term;
// otherwise it returns the zero Token. It uses local state only: it makes no RPC, takes no mutex and allocates no
// memory.
//
// HasLock returns true only until the local deadline. The deadline is one lease after the last acknowledged heartbeat
// was sent, minus 1% in case the local clock runs slow. Unless somebody releases or deletes the lock by hand, no other
// candidate can be elected before the deadline. However, the answer may be out of date by the time you act on it.
// Therefore, fence every write that must not commit after another process has taken over.
func (l *Lock) HasLock() (bool, Token) {
	t := l.view.Load().term
	if t == nil || !t.Held() {
		return false, 0
	}
	return true, Token(t.Token())
}

// Run competes for the lock in a background loop, and returns immediately. It returns nil, ErrRunning, or an error
// about an invalid argument of New or Run. If it returns an error, it has started nothing. The loop continues while
// another process holds the lock, while Spanner can't be reached, and after the lock has been lost. It ends only when
// ctx does.
//
// When ctx ends, the leader function's context (see WithLeader) is canceled, immediately or, with WithHandover, about a
// third of a lease later. The lock is released once the function has returned. Until then, heartbeats continue, but for
// at most one lease after ctx has ended, or two with WithHandover. Halfway between the cancellation and this limit, a
// warning is logged if the function has not returned. If it has not returned by the limit, the lock is not released: it
// expires one lease after its last heartbeat. Run does not wait for work that only polls HasLock, so stop such work
// before you end ctx.
//
// If done is given, it receives one value when the loop has ended: nil, or an error that says what could not be
// completed. A lock that could not be released expires by itself. Once done has received the value, no goroutine of the
// Lock is left, the Spanner client may be closed, and Run may be called again. The only exception is a leader function
// or an observer that has not returned: until it returns, Run returns ErrRunning.
//
// The done channel should have a buffer of one. If it is unbuffered, and no goroutine receives from it within one
// lease, the value is dropped and an error is logged.
func (l *Lock) Run(ctx context.Context, done ...chan<- error) error {
	if l.err != nil {
		return l.err
	}
	log := l.config.Log.With("table", l.spanner.Table, "lock", l.name, "id", l.config.ID)
	return l.runs.Start(ctx, done, l.config.Run(log, l.wrap), func(ctx context.Context, late <-chan struct{}, events *loop.Mailbox) (func(), error) {
		e := newElector(l, log)
		e.gracePeriod, e.observer = late, events
		return e.run(ctx)
	})
}

// RunAndWait is like Run, but returns only when the loop has ended, which makes it suitable for an errgroup. If Run
// fails, RunAndWait returns its error. Otherwise, it returns the value that Run would send to done.
func (l *Lock) RunAndWait(ctx context.Context) error {
	return loop.AndWait(ctx, l.Run)
}
