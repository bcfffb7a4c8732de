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

// Lock is a candidate for one lock, and its holder while HasLock says so. All methods may be called from any goroutine.
type Lock struct {
	name    string
	config  options.Config
	err     error // what is wrong with the arguments of New; nothing works then
	db      *spanner.Client
	spanner table.Spanner
	table   table.Table
	about   telemetry.Scope

	runs   loop.Runs
	view   atomic.Pointer[view] // what the loop knows
	leader atomic.Int64         // the token that Leader saw last
}

// New returns a Lock on name, in a table made by ddl.Create, in the database of db. It starts nothing and makes no RPC.
// If an argument is wrong, Run says so, and so does every other method that returns an error.
//
// A name has 1 to 4096 bytes of UTF-8 without control characters, line separators and bidirectional marks. It must not
// end in _ and 16 or more digits, nor in !done, !broken or !plan.
func New(db *spanner.Client, table, name string, opts ...Option) *Lock {
	c := options.New(opts)
	c.Check(db, table, name)
	c.RefuseForGroup()
	l := &Lock{name: name, config: c, db: db}
	l.table, l.spanner = c.Table(db, table)
	l.about = c.Telemetry(table, name)
	l.about.Loop = true
	l.show(view{})
	if err := c.Err(); err != nil {
		l.err = fmt.Errorf("spindle: lock %.64q: %w", name, err)
	}
	return l
}

// Err returns what is wrong with the arguments of New, or nil. It makes no RPC.
func (l *Lock) Err() error { return l.err }

// wrap adds the step and the lock's name to an error, and a hint if there is one.
func (l *Lock) wrap(step string, err error) error {
	return loop.Wrap(step, "lock", l.name, l.spanner.Table, err)
}

// HasLock reports whether this Lock holds the lock now, and under which token: the zero Token if it does not. It is
// local: no RPC, no mutex, no allocation.
//
// It returns true only before the local deadline: a lease after the last acknowledged heartbeat was sent, less 1 % for
// the rate of the clock. No other candidate can be elected before that. The answer may be stale when you act on it:
// fence writes that must not commit after another holder's.
func (l *Lock) HasLock() (bool, Token) {
	t := l.view.Load().term
	if t == nil || !t.Held() {
		return false, 0
	}
	return true, Token(t.Token())
}

// Run competes for the lock in the background until ctx ends. It returns at once: nil, ErrRunning, or what is wrong
// with the arguments of New or Run; with an error, nothing was started. It continues while another holds the lock,
// while Spanner can't be reached, and after a loss. Only ctx ends it.
//
// When ctx ends, the ctx of the leader function (WithLeader) is canceled: with WithHandover, a third of a lease later.
// Heartbeats continue until the function has returned, for at most one lease, or two with WithHandover. Then the lock
// is released, and done, if given, receives one value: nil, or why the lock could not be released; it then expires by
// itself. From then on no goroutine is left, the Spanner client may be closed, and Run may be called again. But if a
// leader function or observer still runs, Run returns ErrRunning until it has returned. Run does not wait for work that
// only polls HasLock: stop it before you end ctx.
//
// Give done room for one value. An unbuffered channel is offered the value for one lease; then the value is dropped,
// with an error in the log.
func (l *Lock) Run(ctx context.Context, done ...chan<- error) error {
	if l.err != nil {
		return l.err
	}
	log := l.config.Log.With("table", l.spanner.Table, "lock", l.name, "id", l.config.ID)
	return l.runs.Start(ctx, done, loop.Settings{Lease: l.config.Lease, Clock: l.config.Clock, Log: log, Wrap: l.wrap},
		func() loop.Loop { return newElector(l, log) })
}

// RunAndWait is Run, but returns only when it has ended, like a function of an errgroup: with Run's error, or with what
// done would have received.
func (l *Lock) RunAndWait(ctx context.Context) error {
	return loop.AndWait(ctx, l.Run)
}
