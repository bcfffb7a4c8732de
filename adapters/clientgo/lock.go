package clientgo

import (
	"context"
	"encoding/json"
	"fmt"

	"cloud.google.com/go/spanner"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"

	"github.com/spindle-lock/spindle"
)

// Lock implements resourcelock.Interface with a spindle lock. Whenever an elector tries to acquire a Lock, the Lock
// competes for its spindle lock in the background, so you don't have to start anything else. At most one elector may
// use a Lock at a time. If a process has several electors, give each elector a Lock of its own, with a different name.
// All methods may be called from any goroutine.
type Lock struct {
	name, describe string
	seat           *seat
}

var _ resourcelock.Interface = (*Lock)(nil)

// New returns a Lock with the given name. The spindle lock is stored in the given table of db's database. Create this
// table with ddl.Create. New starts no goroutines and makes no RPC. It returns an error if an argument is invalid, or
// if the heartbeats are too far apart.
//
// New takes the options of spindle.New, with three exceptions. Don't pass WithLeader or WithKeepOnReturn, because the
// Lock has a leader function of its own. Don't pass WithStall, because that function reports no progress.
//
// The most important setting is the lease (spindle.WithLease, 10 s by default), because after a leader has crashed,
// there is no leader until its lease has expired. The elector's settings are derived from the lease: see Config.
func New(db *spanner.Client, table, name string, opts ...spindle.Option) (*Lock, error) {
	s := &seat{changed: make(chan struct{}), watching: map[*context.CancelCauseFunc]struct{}{}}
	l := &Lock{name: name, describe: table + "/" + name, seat: s}
	opts = append(opts[:len(opts):len(opts)], spindle.WithLeader(s.lead))
	s.lock = spindle.New(db, table, name, opts...)
	if err := s.lock.Err(); err != nil {
		return nil, err
	}
	s.limits = limits(s.lock.Settings())
	var err error
	s.timing, err = s.limits.defaults()
	if err != nil {
		return nil, l.wrap(err)
	}
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
func (l *Lock) Spindle() *spindle.Lock { return l.seat.lock }

// Token returns the fencing token of the current term, or zero if client-go does not lead. Use it in programs that
// don't receive the ctx of OnStartedLeading, for example with controller-runtime. Call Token once, when the work
// begins. Don't call it before each write, because a later call may return the token of a newer term.
func (l *Lock) Token() spindle.Token {
	l.seat.mu.Lock()
	defer l.seat.mu.Unlock()
	if t := l.seat.tenure; t != nil && l.seat.held(t) {
		return t.token
	}
	return 0
}

// Config returns a complete configuration for leaderelection.NewLeaderElector, with the given callbacks. The
// LeaseDuration is spindle's lease. With the default heartbeat, the RenewDeadline is about 43% of the lease, and the
// RetryPeriod about 11%. If Accept has accepted your own settings, Config returns these instead. ReleaseOnCancel is
// set. You may change Name, WatchDog and ReleaseOnCancel. If you change anything else, pass the configuration to
// Accept.
//
// The ctx of OnStartedLeading contains the fencing token (see TokenOf), and ends under the same conditions as a ctx
// from Context. The spindle lock is not released until OnStartedLeading has returned. If the function does not return,
// the lock is kept for at least one lease after its ctx has ended, unless the lock was lost. If the term ends before
// OnStartedLeading can be called, it is not called.
func (l *Lock) Config(callbacks leaderelection.LeaderCallbacks) leaderelection.LeaderElectionConfig {
	if started := callbacks.OnStartedLeading; started != nil {
		callbacks.OnStartedLeading = l.guarded(started)
	}
	l.seat.mu.Lock()
	c := l.seat.timing
	l.seat.mu.Unlock()
	c.Lock, c.Callbacks, c.ReleaseOnCancel, c.Name = l, callbacks, true, l.name
	return c
}

// Accept checks your own settings. If they are valid, l accepts an elector that uses them. Otherwise, the error says
// what is wrong and how to fix it. Call Accept with the elector's configuration before the elector runs. For
// controller-runtime, copy LeaseDuration, RenewDeadline and RetryPeriod from the manager's options to c.
//
// The elector must use either accepted settings or the settings from Config. It is rejected if its LeaseDuration, in
// whole seconds, is different. Once it leads, it is also rejected if its RenewDeadline is longer. Its RetryPeriod can't
// be checked.
func (l *Lock) Accept(c leaderelection.LeaderElectionConfig) error {
	if c.Lock != nil && c.Lock != l {
		return l.wrap(fmt.Errorf("these settings are for a different Lock, %s; each elector needs its own Lock", c.Lock.Describe()))
	}
	if err := l.seat.limits.check(c); err != nil {
		return l.wrap(err)
	}
	l.seat.mu.Lock()
	defer l.seat.mu.Unlock()
	l.seat.timing = leaderelection.LeaderElectionConfig{LeaseDuration: c.LeaseDuration, RenewDeadline: c.RenewDeadline, RetryPeriod: c.RetryPeriod}
	l.seat.foreign = nil
	return nil
}

// Context returns a ctx to pass to an elector's Run method, or to the Start method of a controller-runtime manager. The
// ctx ends when parent ends, when cancel is called, or when the spindle lock is lost while client-go leads. If the lock
// was lost, the cause of ctx is the reason, usually spindle.ErrExpired or spindle.ErrSuperseded.
//
// Without such a ctx, an elector continues to lead for one RenewDeadline after its renewals begin to fail. If they fail
// because heartbeats fail, this is harmless: client-go stops before the lease expires. However, it can do harm if the
// process was suspended, or if an operator took the lock away. Call cancel when Run has returned, and create a new ctx
// for the next Run.
func (l *Lock) Context(parent context.Context) (ctx context.Context, cancel context.CancelFunc) {
	ctx, end := context.WithCancelCause(parent)
	l.seat.mu.Lock()
	defer l.seat.mu.Unlock()
	l.seat.watching[&end] = struct{}{}
	return ctx, func() {
		end(context.Canceled)
		l.seat.mu.Lock()
		defer l.seat.mu.Unlock()
		delete(l.seat.watching, &end)
	}
}

// tokenKey is the key for the token in the ctx of OnStartedLeading.
type tokenKey struct{}

// TokenOf returns the fencing token that is stored in the ctx of OnStartedLeading (see Config). For any other ctx, it
// returns the zero Token, and every write with the zero Token is rejected.
func TokenOf(ctx context.Context) spindle.Token {
	token, _ := ctx.Value(tokenKey{}).(spindle.Token)
	return token
}

// guarded wraps the given OnStartedLeading function, and gives it a ctx of its own, as Config describes.
func (l *Lock) guarded(started func(context.Context)) func(context.Context) {
	return func(ctx context.Context) {
		ctx, cancel := l.Context(ctx)
		defer cancel()
		if t := l.seat.begin(ctx); t != nil {
			defer l.seat.end(t)
			started(context.WithValue(ctx, tokenKey{}, t.token))
		}
	}
}

// Stop releases the lock if it is still held, and returns once all goroutines of l have ended. Call Stop after the
// elector's Run has returned, and before you close the Spanner client. While the elector leads, Stop only returns an
// error. Stop waits for the OnStartedLeading function, but not for longer than the lock is kept for that function (see
// Config).
//
// Usually, little is left to do. If ReleaseOnCancel is set, a leader releases the lock once the elector's ctx is
// canceled and OnStartedLeading has returned. A candidate only has to finish its last poll.
//
// If ctx ends first, Stop returns its cause. If the release fails, Stop returns the error, and the lock expires by
// itself. Electors may use l again afterwards.
func (l *Lock) Stop(ctx context.Context) error { return l.wrap(l.seat.stop(ctx)) }

// Identity implements resourcelock.Interface. It returns the id of the spindle lock (spindle.WithID).
func (l *Lock) Identity() string { return l.seat.limits.ID }

// Describe implements resourcelock.Interface. It returns the table and the name.
func (l *Lock) Describe() string { return l.describe }

// RecordEvent implements resourcelock.Interface. It only notes that the elector has stopped. Spindle itself logs and
// measures each term.
func (l *Lock) RecordEvent(event string) {
	if event != "became leader" {
		l.seat.vacate()
	}
}

// Get implements resourcelock.Interface. While the elector leads, Get returns immediately. Otherwise, Get makes the
// spindle lock compete, and waits until one of these events occurs:
//   - This process may lead. Get returns a record without a holder, so that the elector acquires the lock.
//   - Another process leads under a token that Get has not reported yet. Get returns a record with that leader's id.
//     Its AcquireTime is the token's time.
//   - ctx ends. Get returns the record of the current leader or, if none is known, an error.
//
// If the elector was rejected (see Accept), Get returns an error instead. LeaderTransitions is the number of leaders
// that this Lock has seen.
func (l *Lock) Get(ctx context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	r, err := l.seat.get(ctx)
	if err != nil {
		return nil, nil, l.wrap(fmt.Errorf("get: %w", err))
	}
	raw, err := json.Marshal(r)
	return &r, raw, err
}

// Create implements resourcelock.Interface. It is the same as Update, because a record always exists.
func (l *Lock) Create(ctx context.Context, r resourcelock.LeaderElectionRecord) error {
	return l.Update(ctx, r)
}

// Update implements resourcelock.Interface. It makes no RPC, except to release the lock. After a successful Update,
// client-go may lead for some time without another Update. So Update succeeds only if the spindle lock will be held for
// longer than that.
func (l *Lock) Update(ctx context.Context, r resourcelock.LeaderElectionRecord) error {
	if r.HolderIdentity == "" {
		return l.wrap(l.seat.release(ctx))
	}
	return l.wrap(l.seat.renew(ctx, r))
}
