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

// Lock implements resourcelock.Interface with a spindle lock. Whenever an elector tries to acquire a Lock, the Lock
// competes for its spindle lock in the background, so you don't have to call anything else. At most one elector may use
// a Lock at a time. If a process has several electors, give each elector a Lock of its own, with a different name. All
// methods may be called from any goroutine.
type Lock struct {
	describe string
	name     string
	lock     *spindle.Lock
	settings spindle.Settings

	mu       sync.Mutex
	changed  chan struct{}                       // closed and replaced whenever a field below changes
	timing   leaderelection.LeaderElectionConfig // the elector's timing
	foreign  error                               // set if an elector has used a different timing
	latest   *candidacy                          // the current candidacy, or the last one
	term     *term                               // the spindle lock's current term, or nil
	tenure   *term                               // the elector's term, until the elector says that it has stopped
	record   resourcelock.LeaderElectionRecord   // the last record that the elector wrote
	watching map[*context.CancelCauseFunc]struct{}
	leaders  int // how many leaders there have been, here or elsewhere, as far as this Lock has seen
}

var _ resourcelock.Interface = (*Lock)(nil)

// New returns a Lock with the given name. The spindle lock is stored in the given table of db's database. Create this
// table with ddl.Create. New starts no goroutines and makes no RPC. It accepts the options of spindle.New, except
// WithLeader and WithKeepOnReturn, because the elector has callbacks. New returns an error if an argument is invalid, or
// if the heartbeats are too far apart.
//
// The most important setting is the lease (spindle.WithLease, 10 s by default), because after a crash there is no
// leader until the lease has expired. The elector's settings are derived from the lease: see Config.
func New(db *spanner.Client, table, name string, opts ...spindle.Option) (*Lock, error) {
	l := &Lock{describe: table + "/" + name, name: name, changed: make(chan struct{}), watching: map[*context.CancelCauseFunc]struct{}{}}
	opts = append(opts[:len(opts):len(opts)], spindle.WithLeader(l.lead))
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

// Spindle returns the underlying spindle lock, which you need for fences, Health and probes. Don't call the Run method
// of the spindle lock. Its HasLock method may return true before client-go leads, and after client-go has stopped
// leading.
func (l *Lock) Spindle() *spindle.Lock { return l.lock }

// Token returns the fencing token of the current term, or zero if client-go does not lead. Use it in programs that
// don't receive the ctx of OnStartedLeading, such as those that use controller-runtime. Call Token once when the work
// begins, and not before each write, because a later call may return the token of a newer term.
func (l *Lock) Token() spindle.Token {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.tenure == nil || !l.held(l.tenure) {
		return 0
	}
	return l.tenure.token
}

// Stop releases the lock if it is still held, and returns once all goroutines of l have ended. Call Stop after the
// elector's Run has returned, and before you close the Spanner client. Stop waits until the OnStartedLeading function
// has returned.
//
// Usually little is left to do. If ReleaseOnCancel is set, a leader releases the lock as soon as the elector's ctx is
// canceled. A candidate only has to finish its last poll.
//
// Stop returns ctx's error if ctx ends first. If the release fails, Stop returns the error, and the lock expires by
// itself. Electors may use l again afterwards.
func (l *Lock) Stop(ctx context.Context) error {
	l.mu.Lock()
	c := l.latest
	if l.tenure != nil {
		l.mu.Unlock()
		return l.wrap(errors.New("stop: the elector still leads; cancel its ctx, and wait for its Run method to return"))
	}
	if c == nil || closed(c.done) {
		l.mu.Unlock()
		return nil
	}
	l.retire(c)
	l.mu.Unlock()
	return l.wrap(c.wait(ctx))
}

// notify wakes all goroutines that are waiting for a change. The caller must hold mu. This also applies to the methods
// below, unless their comments say otherwise.
func (l *Lock) notify() {
	close(l.changed)
	l.changed = make(chan struct{})
}

// left returns the time until the term's local deadline, or zero once the term has ended. The deadline is one lease
// after the last acknowledged heartbeat was sent, minus 1 %, as in package spindle. The caller does not have to hold
// mu.
func (l *Lock) left(t *term) time.Duration {
	leader, age, ok := l.lock.Seen()
	if !ok || leader.Token != t.token {
		return 0
	}
	return max(leader.Lease-leader.Lease/100-age, 0)
}

// held reports whether t is the spindle lock's current term.
func (l *Lock) held(t *term) bool { return t == l.term && !t.over && l.left(t) > 0 }
