package notify

import (
	"net/netip"
	"time"

	"github.com/spindle-lock/spindle/internal/elect"
)

// line is what an Ear knows about one lock under one token.
type line struct {
	Lock
	ear     *Ear
	id      id
	contact contact // with the key of the waiter's own ticket if the holder is known only from its message
	questions

	early   elect.Instant // when the next poll is due because of a message; zero: there was none
	told    bool          // a message has said that the lock is free
	exempt  elect.Instant // until when the holder told the waiter to leave the lock to others; zero: it did not
	deaf    bool          // messages about this token have too often led to nothing
	leaving bool          // the holder or a poll has said that a handover is about to begin
}

// questions records the questions to a holder, and its answers.
type questions struct {
	first, last uint64        // the sequence numbers of the last question, and of its last repeat
	sent        int           // how often the last question was sent without an answer; 0: no question is open
	asked       elect.Instant // when it was first sent
	answered    elect.Instant // when the last question that was answered had been sent; zero: the holder is silent
	alone       bool          // no other waiter that the holder hears from is ahead
	trip        time.Duration // the last time between a question and its answer
	timer       *time.Timer   // the next question, or the next repeat
}

// ask sends a question to the holder, or repeats it.
func (l *line) ask() {
	n := l.ear.n
	n.seq = max(n.seq+1, uint64(n.clock.Now().Wall)) // another Notifier of this process may have asked with the same ticket
	l.last = n.seq
	if l.sent++; l.sent == 1 {
		l.first, l.asked = l.last, n.clock.Now()
	}
	n.post(l.says(waiting), l.contact, true)
	// A waiter without an answer gives up after at most a quarter of the interval, or 50 ms if that is longer.
	l.later(time.Duration(l.sent) * max(min(2*l.trip, interval(l.shorter())/40), 5*time.Millisecond))
}

func (l *line) later(d time.Duration) {
	if l.timer != nil {
		l.timer.Stop()
	}
	var t *time.Timer
	t = l.ear.n.after(d, func() {
		if l.timer == t {
			l.tick()
		}
	})
	l.timer = t
}

// tick asks the holder again, or gives up because the holder does not answer.
func (l *line) tick() {
	if l.sent <= repeats {
		l.ask()
		return
	}
	l.sent, l.answered = 0, elect.Instant{}
	l.later(l.untilQuestion())
	l.ear.alarm()
}

// untilQuestion returns the time until the next question. A waiter that is first in line asks more often.
func (l *line) untilQuestion() time.Duration {
	every := interval(l.shorter())
	if len(l.Ahead) == 0 && !l.ear.seen.Follower || l.alone {
		every = min(every, max(250*time.Millisecond, l.shorter()/10))
	}
	clock := l.ear.n.clock
	return max(every-clock.Random(every/10+1)-clock.Now().Since(l.asked), 0)
}

func (l *line) shorter() time.Duration {
	if l.Lease == 0 {
		return l.ear.lease
	}
	return min(l.ear.lease, l.Lease)
}

// says returns a message to the holder.
func (l *line) says(k kind) message {
	e := l.ear
	m := message{kind: k, flags: toHolder, lock: l.id, token: l.Token, seq: l.last, waiter: e.self, rank: uint8(e.seen.Rank), trip: e.seen.Trip}
	if e.seen.Ticket.Set && !e.seen.Ticket.Ready {
		m.flags |= unready
	}
	return m
}

// ownKey returns the key of the waiter's ticket. A waiter for several locks has a ticket in each lock's queue.
func (l *line) ownKey() key {
	t := l.ear.seen.Ticket
	if t.Set {
		t.Queue = l.Name
	}
	return l.ear.n.keyOf(l.ear.place, t.Row())
}

func (l *line) receive(m message, b []byte, _ netip.AddrPort) fate {
	if m.flags&toHolder != 0 || m.waiter != l.ear.self {
		return unknown
	}
	secret := l.ownKey()
	if m.flags&byTicket == 0 {
		secret = l.contact.key
	}
	switch {
	case !secret.isFrom(b) || m.flags&byTicket == 0 && m.token != l.Token:
		return unsigned
	case m.token < l.Token:
		return stale
	}
	switch m.kind {
	case heard:
		return l.heard(m)
	case leaving:
		l.leaves()
	case free:
		l.free(m)
	case taken:
		return l.ear.taken(l, m)
	default:
		return malformed
	}
	return valid
}

// heard records that the holder has answered a question. The holder counts as alive at the time of the question.
func (l *line) heard(m message) fate {
	if m.token != l.Token || m.seq < l.first || m.seq > l.last {
		return stale
	}
	l.alone = m.ahead == 0
	if m.seq == l.first {
		l.trip = l.ear.n.clock.Now().Since(l.asked)
	}
	l.hears(l.asked)
	if m.flags&handover != 0 {
		l.leaves()
	}
	l.ear.alarm()
	return valid
}

// hears records that the holder was alive at the given time.
func (l *line) hears(at elect.Instant) {
	l.sent, l.answered = 0, at
	l.later(l.untilQuestion())
}

// leaves records that the leader is about to hand the lock over. The follower polls as soon as it can. Until the lock
// changes hands, it then polls at the normal pace, because the announcement may not be in the lock row yet.
func (l *line) leaves() {
	if !l.leaving {
		l.leaving = true
		l.pollIn(0)
	}
}

// pollIn makes the next poll due after d, unless it is due sooner.
func (l *line) pollIn(d time.Duration) {
	at := later(l.ear.n.clock.Now(), d)
	if l.early == (elect.Instant{}) || l.early.Since(at) > 0 {
		l.early = at
	}
	l.ear.alarm()
}

func (l *line) free(m message) {
	e := l.ear
	if l.deaf || l.told && m.token == l.Token {
		return
	}
	l.pollIn(m.after)
	if m.after > l.shorter()/4 { // many are ahead, so this waiter need not ask before it polls
		l.hears(e.n.clock.Now())
		return
	}
	l.told = true
	if m.flags&relayed == 0 {
		l.exempt = later(e.n.clock.Now(), m.after)
		if m.after > 0 {
			e.passOn(l.id, m.token, l.Ahead)
		}
	}
}
