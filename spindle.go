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

// Lock is a candidate for one lock, and its holder while HasLock returns true. All methods may be called from any
// goroutine.
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

// New returns a Lock with the given name, in a table that was created by ddl.Create in db's database. It starts nothing
// and makes no RPC. If an argument is invalid, Run and every other method that returns an error report the problem.
//
// A name is 1 to 4096 bytes of UTF-8 without control characters, line separators or bidirectional marks. It must not
// end in an underscore followed by 16 or more digits, nor in !done, !broken or !plan.
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

// Err returns an error if an argument of New is invalid, and nil otherwise. It makes no RPC.
func (l *Lock) Err() error { return l.err }

// wrap adds the step and the lock's name to err, and a hint if there is one.
func (l *Lock) wrap(step string, err error) error {
	return loop.Wrap(step, "lock", l.name, l.spanner.Table, err)
}

// HasLock reports whether this Lock holds the lock now, and returns the token of its term, or the zero Token if it does
// not hold the lock. It uses local state only: it makes no RPC, takes no mutex and allocates no memory.
//
// It returns true only until the local deadline, which is one lease after the last acknowledged heartbeat was sent,
// minus 1 % to allow for a clock that runs slow. No other candidate can be elected before that deadline. The answer may
// be out of date by the time you act on it, so fence every write that must not commit after another process has taken
// over.
func (l *Lock) HasLock() (bool, Token) {
	t := l.view.Load().term
	if t == nil || !t.Held() {
		return false, 0
	}
	return true, Token(t.Token())
}

// Run starts to compete for the lock in the background, and returns immediately. It returns nil, ErrRunning, or an
// error about an invalid argument of New or Run; if it returns an error, it has started nothing. The loop continues
// while another process holds the lock, while Spanner can't be reached, and after a loss. It ends only when ctx does.
//
// When ctx ends, the leader function's context (see WithLeader) is canceled, immediately or, with WithHandover, a third
// of a lease later. Heartbeats continue until the function has returned, but for at most one lease, or two with
// WithHandover. Then the lock is released. If done is given, it receives one value: nil, or the reason why the lock
// could not be released, in which case the lock expires by itself. From then on no goroutine is left, the Spanner
// client may be closed, and Run may be called again. There is one exception: if a leader function or an observer is
// still running, Run returns ErrRunning until that function has returned. Run does not wait for work that only polls
// HasLock, so stop such work before you end ctx.
//
// The done channel should have a buffer of one. If it is unbuffered and nothing receives from it for one lease, the
// value is dropped and an error is logged.
func (l *Lock) Run(ctx context.Context, done ...chan<- error) error {
	if l.err != nil {
		return l.err
	}
	log := l.config.Log.With("table", l.spanner.Table, "lock", l.name, "id", l.config.ID)
	return l.runs.Start(ctx, done, loop.Settings{Lease: l.config.Lease, Clock: l.config.Clock, Log: log, Wrap: l.wrap},
		func() loop.Loop { return newElector(l, log) })
}

// RunAndWait is like Run, but returns only when the loop has ended, so it can be passed to an errgroup. It returns
// Run's error or, if Run succeeded, the value that done would have received.
func (l *Lock) RunAndWait(ctx context.Context) error {
	return loop.AndWait(ctx, l.Run)
}
