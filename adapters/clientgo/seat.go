package clientgo

import (
	"context"
	"errors"
	"sync"
	"time"

	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"

	"github.com/spindle-lock/spindle"
)

// seat connects an elector with the spindle lock. Several goroutines change it, and wait for each other's changes.
type seat struct {
	lock   *spindle.Lock
	limits limits

	mu       sync.Mutex
	changed  chan struct{}                       // closed and replaced whenever a field below changes
	timing   leaderelection.LeaderElectionConfig // the elector's timing
	foreign  error                               // set if an elector has used a different timing
	latest   *candidacy                          // the current candidacy, or the last one
	term     *term                               // the spindle lock's current term, or nil
	tenure   *term                               // the elector's term, until the elector says that it has stopped
	record   resourcelock.LeaderElectionRecord   // the last record that the elector wrote
	watching map[*context.CancelCauseFunc]struct{}
	leaders  int           // how many leaders there have been, here or elsewhere, as far as this Lock has seen
	counted  spindle.Token // the token of the last leader elsewhere that counts
}

// notify wakes all goroutines that are waiting for a change. Callers of notify and of the methods below must hold mu,
// unless the method locks mu itself.
func (s *seat) notify() {
	close(s.changed)
	s.changed = make(chan struct{})
}

// left returns the time until the term's local deadline, or zero once the term has ended. As in package spindle, the
// deadline is 0.99 leases after the last acknowledged heartbeat was sent. The caller does not have to hold mu.
func (s *seat) left(t *term) time.Duration {
	leader, age, ok := s.lock.Seen()
	if !ok || leader.Token != t.token {
		return 0
	}
	return max(leader.Lease-leader.Lease/100-age, 0)
}

// held reports whether t is the spindle lock's current term.
func (s *seat) held(t *term) bool { return t == s.term && s.left(t) > 0 }

// candidacy is one run of the spindle lock. It begins when an elector tries to acquire the lock. It ends when the
// elector stops trying or, if the elector has led, when the term ends.
type candidacy struct {
	ctx     context.Context
	cancel  context.CancelFunc
	forget  func() bool   // stops watching the elector's ctx
	attempt int           // how many attempts to acquire the lock there have been; only the last one can end the candidacy
	told    spindle.Token // the token of the last leader that the elector has learned of
	done    chan struct{} // closed once the candidacy has ended
	err     error         // why the lock could not be released; valid once done is closed
}

func (c *candidacy) wait(ctx context.Context) error {
	select {
	case <-c.done:
		return c.err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// term is a term of the spindle lock.
type term struct {
	*candidacy
	lost    context.Context // ends when the term ends or is about to be given up
	token   spindle.Token
	granted time.Time // when an Update last succeeded; zero if the elector has not acquired the term
	until   time.Time // when the elector will have stopped by itself or, before an Update succeeds, when the offer ends
	freed   bool      // whether client-go has certainly stopped leading under the term
	work    int       // how many calls to OnStartedLeading have not returned
}

// compete starts a candidacy, unless one is already running. The argument ctx belongs to the elector's attempt to
// acquire the lock. If ctx ends and the elector does not lead, the candidacy ends, too.
func (s *seat) compete(ctx context.Context) (*candidacy, error) {
	c := s.latest
	if c == nil || closed(c.done) {
		c = &candidacy{done: make(chan struct{}), forget: func() bool { return true }}
		c.ctx, c.cancel = context.WithCancel(context.Background())
		over := make(chan error, 1)
		if err := s.lock.Run(c.ctx, over); err != nil {
			c.cancel()
			return nil, err
		}
		s.latest = c
		go func() {
			err := <-over
			c.cancel()
			s.mu.Lock()
			defer s.mu.Unlock()
			c.err = err
			close(c.done)
			s.notify()
		}()
	}
	c.forget()
	c.attempt++
	attempt := c.attempt
	c.forget = context.AfterFunc(ctx, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if c.attempt == attempt && (s.term == nil || s.term.granted.IsZero()) { // the elector gave up without acquiring
			s.retire(c)
		}
	})
	return c, nil
}

// retire ends a candidacy whose elector does not lead. A term that is still kept ends as soon as its work has returned.
func (s *seat) retire(c *candidacy) {
	if s.term != nil && s.term.candidacy == c {
		s.term.freed = true
	}
	if s.term == nil || s.term.granted.IsZero() {
		c.cancel()
	}
	s.notify()
}

// lead is the leader function of the spindle lock. It returns when client-go can no longer be leading under the term's
// token. lead locks mu itself.
func (s *seat) lead(ctx context.Context, under spindle.Term) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t := &term{candidacy: s.latest, lost: ctx, token: under.Token(), until: time.Now().Add(s.limits.Lease)}
	s.term = t
	s.leaders++
	s.notify()
	defer context.AfterFunc(ctx, func() { // if spindle only wants to give up the lock, the work continues until client-go stops
		s.mu.Lock()
		defer s.mu.Unlock()
		s.notify()
		if s.tenure == t && s.left(t) <= 0 {
			s.lose(t)
		}
	})()
	for {
		left := s.keep(t)
		if left <= 0 {
			break
		}
		s.sleep(left)
	}
	s.term = nil // from now on, no Update acquires it
	if s.tenure == t && !t.freed {
		s.lose(t)
	}
	if !t.granted.IsZero() {
		t.cancel() // each period of leadership gets its own token
	}
	s.notify()
}

// keep returns how much longer the term must be kept if nothing changes.
func (s *seat) keep(t *term) time.Duration {
	switch {
	case t.granted.IsZero() && (t.lost.Err() != nil || t.ctx.Err() != nil):
		return 0
	case t.freed && t.work == 0:
		return 0
	}
	left := time.Until(t.until)
	if left <= 0 && (t.work > 0 || s.tenure == t) { // a late elector leads until it reports that it has stopped
		left += s.limits.Lease
	}
	return left
}

// sleep unlocks mu until something changes, but for at most d.
func (s *seat) sleep(d time.Duration) {
	changed := s.changed
	s.mu.Unlock()
	defer s.mu.Lock()
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-changed:
	case <-timer.C:
	}
}

func (s *seat) lose(t *term) {
	for cancel := range s.watching {
		(*cancel)(lossOf(t))
	}
}

// lossOf returns why the term was lost.
func lossOf(t *term) error {
	if t.lost.Err() == nil {
		return spindle.ErrExpired // the deadline has passed, but its timer has not fired yet
	}
	return context.Cause(t.lost)
}

// begin counts a call to OnStartedLeading as work, unless its term has ended.
func (s *seat) begin(ctx context.Context) *term {
	s.mu.Lock()
	defer s.mu.Unlock()
	t := s.tenure
	if t == nil || ctx.Err() != nil || !s.held(t) {
		return nil
	}
	t.work++
	return t
}

func (s *seat) end(t *term) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t.work--
	s.notify()
}

func (s *seat) stop(ctx context.Context) error {
	s.mu.Lock()
	c := s.latest
	if s.tenure != nil {
		s.mu.Unlock()
		return errors.New("stop: the elector still leads; cancel its ctx, and wait for its Run method to return")
	}
	if c == nil || closed(c.done) {
		s.mu.Unlock()
		return nil
	}
	s.retire(c)
	s.mu.Unlock()
	return c.wait(ctx)
}

func closed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}
