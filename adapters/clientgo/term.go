package clientgo

import (
	"context"
	"time"

	"github.com/spindle-lock/spindle"
)

// candidacy is one Run of the spindle lock on behalf of an elector that tries to acquire. It ends when the elector
// stops trying, or when it has led and stopped.
type candidacy struct {
	ctx    context.Context
	cancel context.CancelFunc
	forget func() bool   // stops watching the elector's ctx
	told   spindle.Token // the token of the last leader that the elector has learned of
	done   chan struct{} // closed once the candidacy has ended
	err    error         // why the lock could not be released; valid once done is closed
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
	until   time.Time // when the elector will have stopped by itself or, before the term is granted, when the offer ends
	freed   bool      // whether client-go has certainly stopped leading under the term
	work    int       // how many calls to OnStartedLeading have not returned
	over    bool      // whether the term has been released, or is about to be, so that it is no longer granted
}

// compete begins a candidacy, unless there is one already. The ctx is that of the elector's attempt to acquire the
// lock. When it ends, so does the candidacy, unless the elector leads by then.
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
		if l.term == nil || l.term.granted.IsZero() { // the elector gave up without acquiring
			l.retire(c)
		}
	})
	return c, nil
}

// retire ends a candidacy whose elector does not lead. It waits for the work to return, but not for the term to end.
func (l *Lock) retire(c *candidacy) {
	if l.term != nil && l.term.candidacy == c {
		l.term.freed = true
	}
	if l.term == nil || l.term.granted.IsZero() {
		c.cancel()
	}
	l.notify()
}

// lead is the leader function of the spindle lock. It runs for as long as client-go may lead under the token. It locks
// mu itself.
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
		t.cancel() // each period of leadership gets its own token
	}
	l.term = nil
	l.notify()
}

// keep returns how much longer the term must be kept if nothing changes.
func (l *Lock) keep(t *term) time.Duration {
	switch {
	case t.granted.IsZero() && (t.lost.Err() != nil || t.ctx.Err() != nil):
		return 0
	case t.freed && t.work == 0:
		return 0
	}
	left := time.Until(t.until)
	if left <= 0 && (t.work > 0 || l.tenure == t) { // a late elector leads until it reports that it has stopped
		left += l.settings.Lease
	}
	return left
}

// sleep unlocks mu until something changes, but for at most d.
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

// ended cancels the work under a term that was lost. If the term is only about to be given up, the work continues until
// client-go stops by itself. It locks mu itself.
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
		return spindle.ErrExpired // the deadline has passed, but its timer has not fired yet
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
