package clientgo

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"cloud.google.com/go/spanner"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"

	"github.com/spindle-lock/spindle"
)

// Lock is a resourcelock.Interface over a lock of spindle. It competes for that lock while an elector does, so there is
// nothing else to run. At most one elector at a time may use it: a process with several electors needs a Lock for each, on
// different names. All methods may be called from any goroutine.
type Lock struct {
	describe string
	name     string
	lock     *spindle.Lock
	settings spindle.Settings

	mu       sync.Mutex
	changed  chan struct{}                       // closed and replaced at each change of what follows
	timing   leaderelection.LeaderElectionConfig // of the elector
	foreign  error                               // an elector came with another timing
	latest   *candidacy                          // the present one, or the last
	term     *term                               // of the spindle lock, while it lasts
	tenure   *term                               // the elector's term, until the elector says that it has stopped
	record   resourcelock.LeaderElectionRecord   // what it wrote last
	watching map[*context.CancelCauseFunc]struct{}
	leaders  int // that were seen or have been here
}

var _ resourcelock.Interface = (*Lock)(nil)

// New returns a Lock on name, in a table that ddl.Create makes, in the database of db. It starts nothing and makes no RPC.
// It takes the options of spindle.New, except WithLeader and WithStepDownOnReturn: the elector's callbacks take their
// place. The error says which argument is wrong, or that the heartbeats are too far apart.
//
// The lease (spindle.WithLease, 10 s by default) is what counts: after a crash, nobody leads for that long. The
// elector's settings follow from it: see Config.
func New(db *spanner.Client, table, name string, opts ...spindle.Option) (*Lock, error) {
	l := &Lock{describe: table + "/" + name, name: name, changed: make(chan struct{}), watching: map[*context.CancelCauseFunc]struct{}{}}
	opts = append(opts[:len(opts):len(opts)], spindle.WithLeader(l.lead), spindle.WithStepDownOnReturn())
	l.lock = spindle.New(db, table, name, opts...)
	if err := l.lock.Err(); err != nil {
		return nil, err
	}
	l.settings = l.lock.Settings()
	timing, err := l.defaults()
	if err != nil {
		return nil, l.wrap(err)
	}
	l.timing = timing
	return l, nil
}

func (l *Lock) wrap(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("clientgo: lock %.64q: %w", l.name, err)
}

// Spindle returns the lock underneath: for its fence, health and probes. Its HasLock may say true before client-go
// leads, and after it. Don't call Run.
func (l *Lock) Spindle() *spindle.Lock { return l.lock }

// Token returns the fencing token of the term that client-go leads under, or zero. It is for programs that don't have the
// ctx of OnStartedLeading, such as programs with controller-runtime. Ask for it once when the work begins, and not for each
// write: later it may be another term's.
func (l *Lock) Token() spindle.Token {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.tenure == nil || !l.held(l.tenure) {
		return 0
	}
	return l.tenure.token
}

// Stop releases the lock if it is still held, and returns once nothing of l runs any more. Call it after the elector's Run
// has returned, before the Spanner client is closed. If the ctx was canceled with ReleaseOnCancel, Stop has nothing left to
// do for a leader, and waits for a candidate's last look. Stop waits for the work of OnStartedLeading. Its error is ctx's,
// or a failed release's; the lock then expires. Electors may use l again.
func (l *Lock) Stop(ctx context.Context) error {
	l.mu.Lock()
	c := l.latest
	if l.tenure != nil {
		l.mu.Unlock()
		return l.wrap(errors.New("stop: the elector still leads: end the ctx of its Run first, and wait for that to return"))
	}
	if c == nil || closed(c.done) {
		l.mu.Unlock()
		return nil
	}
	l.retire(c)
	l.mu.Unlock()
	return l.wrap(c.wait(ctx))
}

// notify wakes all goroutines that wait for a change. Its caller holds mu, as do callers of the methods below, unless they
// say otherwise.
func (l *Lock) notify() {
	close(l.changed)
	l.changed = make(chan struct{})
}

// left returns the time until the term's local deadline: a lease after the last acknowledged heartbeat was sent, less 1 %,
// as spindle counts it. It is zero once the term is over. It does not need mu.
func (l *Lock) left(t *term) time.Duration {
	leader, age, ok := l.lock.Seen()
	if !ok || leader.Token != t.token {
		return 0
	}
	return max(leader.Lease-leader.Lease/100-age, 0)
}

// held reports whether the term is the spindle lock's present one.
func (l *Lock) held(t *term) bool { return t == l.term && !t.over && l.left(t) > 0 }
