package notify

import (
	"context"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/spindle-lock/spindle/internal/elect"
	"github.com/spindle-lock/spindle/internal/table"
)

// Lock is what a poll has shown about a lock that a waiter wants.
type Lock struct {
	Name    string
	Token   table.Token
	Held    bool
	Leaving bool           // its holder is about to hand it over
	Contact string         // the holder's, from its lease row
	Lease   time.Duration  // the holder's
	Ahead   []table.Ticket // the tickets of the waiters ahead
}

// Seen is what a poll has shown to a waiter.
type Seen struct {
	Locks    []Lock
	Ticket   table.Ticket  // the waiter's own
	Follower bool          // of an elector, without a ticket
	Rank     int           // of a follower
	Trip     time.Duration // how long the poll took
}

// Ear exchanges messages for a waiter: it asks the holders of the locks whether they are alive, and hears when the
// locks become free. A nil Ear hears nothing. Only the waiter's goroutine may call its methods.
type Ear struct {
	n     *Notifier
	nonce uint64 // names it as a follower
	place Place
	lease time.Duration
	wake  chan struct{} // buffers one value: when the next poll is due may have changed

	lines map[string]*line // by lock
	seen  Seen
	self  waiter

	polled elect.Instant     // when the last poll began
	told   bool              // the waiter polls because a message has said that a lock is free
	vain   window            // polls that messages caused and that found nothing new
	passed map[string]passed // by lock
}

// passed records that a waiter has told others that a lock is free.
type passed struct {
	token table.Token
	at    elect.Instant
}

// Listen returns an Ear for a waiter with the given lease. The caller must close it.
func (n *Notifier) Listen(p Place, lease time.Duration) *Ear {
	if n == nil {
		return nil
	}
	return &Ear{n: n, nonce: rand.Uint64(), place: p, lease: lease, wake: make(chan struct{}, 1), lines: map[string]*line{}, passed: map[string]passed{}}
}

const (
	mostVain  = 3                    // how many polls messages may cause in vain within 0.3 leases
	soonest   = 2 * time.Millisecond // the shortest time between a poll and the next, if a message causes the next
	mostAsked = 32                   // locks whose holders a waiter asks
	repeats   = 3                    // how often an unanswered question is repeated
	relays    = 3                    // waiters ahead to which a message is passed on
)

// interval returns the longest time between two questions of a waiter. An answer stays valid slightly longer.
func interval(lease time.Duration) time.Duration { return min(lease/4, 20*time.Second) }

// Learn tells the Ear what a poll has shown.
func (e *Ear) Learn(s Seen, began elect.Instant) {
	if e != nil {
		e.n.do(func() { e.learn(s, began) })
	}
}

func (e *Ear) learn(s Seen, began elect.Instant) {
	e.seen = s
	e.self, _ = waiterOf(s.Ticket)
	if s.Follower {
		e.self = waiter{nonce: e.nonce}
	}
	news := false
	for _, l := range s.Locks {
		news = e.update(l) || news
	}
	for name, l := range e.lines {
		if !slices.ContainsFunc(s.Locks, func(s Lock) bool { return s.Name == name }) {
			e.hangUp(l)
		}
	}
	if e.told && !news {
		e.inVain()
	}
	e.told, e.polled = false, began
	if e.n.closed || e.self == (waiter{}) || len(s.Locks) > mostAsked {
		return
	}
	for _, l := range e.lines {
		if l.Held && l.contact.at.IsValid() && l.timer == nil {
			l.ask()
		}
	}
}

// update records what a poll has shown about one lock, and reports whether this is news.
func (e *Ear) update(s Lock) (news bool) {
	l := e.lines[s.Name]
	if news = l == nil || l.Token != s.Token || l.Held != s.Held; news {
		next := &line{ear: e, id: idOf(e.place, s.Name)}
		if l != nil {
			next.early = l.early
			e.hangUp(l)
		}
		l = next
		e.lines[s.Name] = l
		e.n.begin(l.id, l)
	}
	l.Lock = s
	l.leaving = l.leaving || s.Leaving
	if c := contactOf(s.Contact, 0); c != (contact{}) {
		l.contact = c
	}
	return news
}

// hangUp ends the exchange of messages about a lock under a token.
func (e *Ear) hangUp(l *line) {
	if l.timer != nil {
		l.timer.Stop()
	}
	l.timer = nil
	delete(e.lines, l.Name)
	e.n.end(l.id, l)
}

// inVain counts a poll that a message caused and that found nothing new. After too many such polls, the waiter ignores
// messages that say that a lock is free, and polls as it would without messages. When a lock changes hands, the waiter
// listens to messages about that lock again.
func (e *Ear) inVain() {
	add(e.n.vain)
	if !e.vain.admits(e.n.clock.Now(), mostVain-1, mostVain*e.lease/10) {
		for _, l := range e.lines {
			l.deaf = true
		}
	}
}

// passOn tells the first waiters in line that a lock is free, because the messages from the last holder may not have
// reached them.
func (e *Ear) passOn(lock id, token table.Token, ahead []table.Ticket) {
	for _, t := range ahead[:min(relays, len(ahead))] {
		if w, ok := waiterOf(t); ok {
			e.n.post(message{kind: free, flags: relayed, lock: lock, token: token, waiter: w}, contactOf(t.Notify, byTicket), false)
		}
	}
}

// Free is called when a poll has found a lock free. If other waiters are ahead, it tells the first of them, once for
// each token, because they may be polling only rarely. Free returns how long this waiter must leave the lock to them.
// If the last holder told this waiter how long to wait, Free returns zero after that time, because the holder has told
// the other waiters, too.
func (e *Ear) Free(lock string, token table.Token, ahead []table.Ticket, grace time.Duration) (wait time.Duration) {
	if e == nil || len(ahead) == 0 {
		return 0
	}
	e.n.do(func() {
		now := e.n.clock.Now()
		if e.passed[lock].token != token {
			e.passed[lock] = passed{token, now}
			if id := idOf(e.place, lock); !e.n.told(id, token) {
				e.passOn(id, token, ahead)
			}
		}
		if l := e.lines[lock]; !e.n.closed && (l == nil || l.exempt == (elect.Instant{}) || now.Since(l.exempt) < 0) {
			wait = min(grace, headStart) - now.Since(e.passed[lock].at)
		}
	})
	return max(wait, 0)
}

// told reports whether this process has freed the lock. If so, it has already told the waiters. The argument token is
// the token in the lock row since the release.
func (n *Notifier) told(lock id, token table.Token) bool {
	return slices.ContainsFunc(n.talkers[lock], func(t talker) bool {
		p, ok := t.(*page)
		return ok && p.over && p.Token+1 == token
	})
}

// headStart limits how long a waiter leaves a free lock to the waiters that it has told.
const headStart = 30 * time.Millisecond

// taken records that another waiter has claimed the lock. The message counts as an answer from the new holder, unless
// this waiter is next in the queue. In that case, this waiter ignores the message or, in a semaphore's queue, polls,
// because another slot may be free.
func (e *Ear) taken(l *line, m message) fate {
	switch {
	case m.token <= l.Token || m.ahead > uint32(len(l.Ahead)):
		return stale
	case m.ahead == 0:
		if e.seen.Ticket.Slots == 0 {
			return stale
		}
		l.free(message{token: m.token, flags: relayed})
		return valid
	case len(e.seen.Locks) > mostAsked: // this waiter asks no holder
		return stale
	}
	was := l.Lock
	was.Token, was.Held, was.Contact, was.Lease, was.Ahead = m.token, true, "", m.after, was.Ahead[len(was.Ahead)-int(m.ahead):]
	e.update(was)
	l = e.lines[was.Name]
	l.contact, l.early, l.asked = contact{m.from, l.ownKey(), byTicket}, elect.Instant{}, e.n.clock.Now()
	l.answered = l.asked
	l.later(interval(l.shorter())/2 + e.n.clock.Random(interval(l.shorter())/2+1))
	e.alarm()
	return valid
}

func later(i elect.Instant, d time.Duration) elect.Instant {
	return elect.Instant{Wall: i.Wall + int64(d), Mono: i.Mono + int64(d)}
}

// alarm makes a sleeping waiter check again when its next poll is due.
func (e *Ear) alarm() {
	select {
	case e.wake <- struct{}{}:
	default:
	}
}

// Sleep waits until the next poll is due: for the longer pause while the holders are answering, and for the shorter
// pause otherwise. It returns early if a message makes a poll due sooner, or if ctx ends.
func (e *Ear) Sleep(ctx context.Context, clock elect.Clock, short, long time.Duration) {
	if e == nil {
		elect.Sleep(ctx, clock, short)
		return
	}
	for began := clock.Now(); ctx.Err() == nil; {
		left := e.left(began, short, long)
		if left <= 0 {
			break
		}
		t := clock.Timer(left)
		select {
		case <-ctx.Done():
		case <-t.C:
		case <-e.wake:
		}
		t.Stop()
	}
	e.n.do(func() {
		for _, l := range e.lines {
			e.told = e.told || l.told && l.early != (elect.Instant{})
			l.early = elect.Instant{}
		}
	})
}

// left returns the time until the next poll is due.
func (e *Ear) left(began elect.Instant, short, long time.Duration) (left time.Duration) {
	e.n.do(func() {
		now := e.n.clock.Now()
		if left = short; e.slow() {
			left = max(short, long)
		}
		left -= now.Since(began)
		for _, l := range e.lines {
			if l.early != (elect.Instant{}) {
				left = min(left, max(-now.Since(l.early), soonest-now.Since(e.polled)))
			}
		}
	})
	return left
}

// slow reports whether the holders of all the locks are answering, so that the waiter need not poll to find out whether
// a holder has died. A waiter for several locks keeps polling, because its tickets must say whether it is first in all
// queues.
func (e *Ear) slow() bool {
	if e.n.closed || e.seen.Ticket.Set || len(e.lines) == 0 {
		return false
	}
	for _, l := range e.lines {
		if !l.Held || l.deaf || l.leaving || l.answered == (elect.Instant{}) {
			return false
		}
		if every := interval(l.shorter()); e.n.clock.Now().Since(l.answered) > every+every/4 { // an answer may still be on its way
			return false
		}
	}
	return true
}

// Close ends the Ear, and tells the holders that the waiter is gone.
func (e *Ear) Close() {
	if e == nil {
		return
	}
	e.n.do(func() {
		for _, l := range e.lines {
			if l.Held && l.asked != (elect.Instant{}) {
				e.n.twice(l.says(gone), l.contact)
			}
			e.hangUp(l)
		}
	})
}
