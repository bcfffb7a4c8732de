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

// Lock implements resourcelock.Interface with a spindle lock. It competes for that lock while an elector tries to
// acquire it, so you don't have to run anything else. At most one elector may use a Lock at a time. A process with
// several electors needs a separate Lock for each, with a different name. All methods may be called from any goroutine.
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

// New returns a Lock with the given name, in a table that was created by ddl.Create in db's database. It starts nothing
// and makes no RPC. It accepts the options of spindle.New except WithLeader and WithStepDownOnReturn, which are
// replaced by the elector's callbacks. The error says which argument is invalid, or that the heartbeats are too far
// apart.
//
// The most important setting is the lease (spindle.WithLease, 10 s by default), because after a crash there is no
// leader until it expires. The elector's settings are derived from it: see Config.
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

// Spindle returns the underlying spindle lock, for its fence, health and probes. Its HasLock may return true before
// client-go leads and after client-go has stopped leading. Don't call its Run.
func (l *Lock) Spindle() *spindle.Lock { return l.lock }

// Token returns the fencing token of the term under which client-go leads, or zero. It is for programs that don't have
// the ctx of OnStartedLeading, such as those that use controller-runtime. Call it once when the work begins, and not
// for each write, because a later call may return the token of a newer term.
func (l *Lock) Token() spindle.Token {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.tenure == nil || !l.held(l.tenure) {
		return 0
	}
	return l.tenure.token
}

// Stop releases the lock if it is still held, and returns once all goroutines of l have ended. Call it after the
// elector's Run has returned and before you close the Spanner client. It waits for the work of OnStartedLeading. If the
// elector's ctx was canceled and ReleaseOnCancel is set, a leader's lock has already been released; for a candidate,
// Stop only waits until the last look has finished. Stop returns ctx's error, or the error of a failed release, after
// which the lock expires. Electors may use l again afterwards.
func (l *Lock) Stop(ctx context.Context) error {
	l.mu.Lock()
	c := l.latest
	if l.tenure != nil {
		l.mu.Unlock()
		return l.wrap(errors.New("stop: the elector still leads; cancel the ctx of its Run first, and wait for Run to return"))
	}
	if c == nil || closed(c.done) {
		l.mu.Unlock()
		return nil
	}
	l.retire(c)
	l.mu.Unlock()
	return l.wrap(c.wait(ctx))
}

// notify wakes all goroutines that are waiting for a change. The caller must hold mu. The same applies to the methods
// below, unless they say otherwise.
func (l *Lock) notify() {
	close(l.changed)
	l.changed = make(chan struct{})
}

// left returns the time until the term's local deadline, which spindle sets to one lease after the last acknowledged
// heartbeat was sent, minus 1 %. It returns zero once the term has ended. It does not require mu.
func (l *Lock) left(t *term) time.Duration {
	leader, age, ok := l.lock.Seen()
	if !ok || leader.Token != t.token {
		return 0
	}
	return max(leader.Lease-leader.Lease/100-age, 0)
}

// held reports whether t is the spindle lock's current term.
func (l *Lock) held(t *term) bool { return t == l.term && !t.over && l.left(t) > 0 }
