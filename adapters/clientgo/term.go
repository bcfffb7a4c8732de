package clientgo

import (
	"context"
	"time"

	"github.com/spindle-lock/spindle"
)

// candidacy is one Run of the spindle lock, for an elector that tries to acquire. It ends when the elector no longer tries,
// or has led and stopped.
type candidacy struct {
	ctx    context.Context
	cancel context.CancelFunc
	forget func() bool   // about the ctx of the elector
	told   spindle.Token // of the leader that the elector learned of last
	done   chan struct{} // closed once it is over
	err    error         // then: why the lock could not be released
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
	lost    context.Context // ends when the term does, or is to be given up
	token   spindle.Token
	granted time.Time // when an Update last succeeded; zero: the elector has not taken it
	until   time.Time // when the elector under it has stopped by itself; ungranted: when it is offered no longer
	freed   bool      // client-go certainly does not lead under it any more
	work    int       // how many calls of OnStartedLeading have not returned
	over    bool      // it is released, or about to be: nothing is granted any more
}

// compete begins a candidacy, unless there is one. It does not outlive ctx, in which the elector acquires.
func (l *Lock) compete(ctx context.Context) (*candidacy, error) {
	c := l.latest
	if c == nil || closed(c.done) {
		c = &candidacy{done: make(chan struct{}), forget: func() bool { return true }}
		c.ctx, c.cancel = context.WithCancel(context.Background())
		over := make(chan error, 1)
		if err := l.lock.Run(c.ctx, over); err != nil {
			c.cancel()
			return nil, err
		}
		l.latest = c
		go func() {
			err := <-over
			c.cancel()
			l.mu.Lock()
			defer l.mu.Unlock()
			c.err = err
			close(c.done)
			l.notify()
		}()
	}
	c.forget()
	c.forget = context.AfterFunc(ctx, func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		if l.term == nil || l.term.granted.IsZero() { // it gave up, and did not acquire
			l.retire(c)
		}
	})
	return c, nil
}

// retire ends a candidacy whose elector does not lead: it waits for the work, but not for the term.
func (l *Lock) retire(c *candidacy) {
	if l.term != nil && l.term.candidacy == c {
		l.term.freed = true
	}
	if l.term == nil || l.term.granted.IsZero() {
		c.cancel()
	}
	l.notify()
}

// lead is the leader function of the spindle lock: it lasts as long as client-go may lead under the token. It does not need
// mu.
func (l *Lock) lead(ctx context.Context, under spindle.Term) {
	l.mu.Lock()
	defer l.mu.Unlock()
	t := &term{candidacy: l.latest, lost: ctx, token: under.Token(), until: time.Now().Add(l.settings.Lease)}
	l.term = t
	l.leaders++
	l.notify()
	defer context.AfterFunc(ctx, func() { l.ended(t) })()
	for {
		left := l.keep(t)
		if left <= 0 {
			break
		}
		l.sleep(left)
	}
	t.over = true
	if l.tenure == t && !t.freed {
		l.lose(t)
	}
	if !t.granted.IsZero() {
		t.cancel() // each time of leading gets a token of its own
	}
	l.term = nil
	l.notify()
}

// keep returns how long the term must still be kept, unless something changes.
func (l *Lock) keep(t *term) time.Duration {
	switch {
	case t.granted.IsZero() && (t.lost.Err() != nil || t.ctx.Err() != nil):
		return 0
	case t.freed && t.work == 0:
		return 0
	}
	left := time.Until(t.until)
	if left <= 0 && (t.work > 0 || l.tenure == t) { // an elector that is late leads until it says that it does not
		left += l.settings.Lease
	}
	return left
}

// sleep unlocks mu until a change, or for d.
func (l *Lock) sleep(d time.Duration) {
	changed := l.changed
	l.mu.Unlock()
	defer l.mu.Lock()
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-changed:
	case <-timer.C:
	}
}

// ended cancels the work under a lost term. Under a term that is only to be given up, work continues until client-go stops
// by itself. It does not need mu.
func (l *Lock) ended(t *term) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.notify()
	if l.tenure == t && l.left(t) <= 0 {
		l.lose(t)
	}
}

func (l *Lock) lose(t *term) {
	for cancel := range l.watching {
		(*cancel)(lossOf(t))
	}
}

// lossOf returns why the term was lost.
func lossOf(t *term) error {
	if t.lost.Err() == nil {
		return spindle.ErrExpired // by the clock, and the timer is due
	}
	return context.Cause(t.lost)
}

func closed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}
