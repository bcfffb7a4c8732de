package notify

import (
	"cmp"
	"net/netip"
	"slices"
	"time"

	"github.com/spindle-lock/spindle/internal/elect"
	"github.com/spindle-lock/spindle/internal/table"
)

// Term describes a holder's term to the Notifier, for one lock.
type Term struct {
	Place   Place
	Name    string
	Token   table.Token
	Lease   time.Duration
	Waiters []table.Ticket                           // the tickets that the poll before the claim read, in order
	Alive   func() bool                              // whether the holder may answer waiters: it is not in jeopardy, and most of the lease is left
	After   func(ahead []table.Ticket) time.Duration // nil for an elector's term: its followers have ranks instead of tickets
}

// Book records which waiters a holder tells when it frees its locks. An empty Book tells nobody.
type Book []*page

// page is the part of a Book that is about one lock.
type page struct {
	Term
	n       *Notifier
	lock    id
	key     key
	entries map[waiter]*entry // nil if all were told at once
	leaving bool
	over    bool
}

// entry is a waiter that the holder knows from its ticket, from its questions, or from both.
type entry struct {
	ticket  table.Ticket
	contact               // where to send messages to it, and their key
	set     bool          // it waits for several locks, and is not first in all their queues: nobody waits for it
	last    contact       // where it asked from last, if it announces another address
	seq     uint64        // of its last question
	asked   elect.Instant // zero: never
	rank    uint8
}

// Hold begins the Book for a term that holds these locks.
func (n *Notifier) Hold(locks ...Term) (b Book) {
	if n == nil {
		return nil
	}
	n.do(func() {
		for _, t := range locks {
			if n.closed {
				return
			}
			p := &page{Term: t, n: n, lock: idOf(t.Place, t.Name), entries: map[waiter]*entry{}}
			p.key = n.keyOf(t.Place, table.LeaseKey(t.Name, t.Token))
			n.begin(p.lock, p)
			p.noteTickets()
			b = append(b, p)
		}
	})
	return b
}

// noteTickets records the waiters whose tickets were read by the poll before the claim. It tells them that the lock is
// taken, except those that wait for several locks, which keep polling.
func (p *page) noteTickets() {
	ahead := uint32(0)
	for _, t := range p.Waiters[:min(len(p.Waiters), table.MostTickets)] {
		w, ok := waiterOf(t)
		if !ok {
			continue
		}
		e := p.note(w)
		if e == nil {
			break
		}
		e.ticket, e.contact, e.set = t, contactOf(t.Notify, byTicket), t.Set && !t.Ready
		if !t.Set {
			p.n.post(message{kind: taken, lock: p.lock, token: p.Token, waiter: w, ahead: ahead, after: p.Lease}, e.contact, false)
			ahead++
		}
	}
	p.Waiters = nil
}

// note adds a waiter to the page. It returns nil if there are too many.
func (p *page) note(w waiter) *entry {
	if p.isFull() {
		p.forgetSilent()
	}
	if p.isFull() {
		return nil
	}
	e := &entry{ticket: table.Ticket{Time: w.time, Grace: table.MaxGrace}}
	p.entries[w] = e
	p.n.noted++
	return e
}

func (p *page) isFull() bool { return len(p.entries) >= mostTold || p.n.noted >= mostNoted }

// forgetSilent removes the followers that have not asked lately, because most of them have died.
func (p *page) forgetSilent() {
	for w, e := range p.entries {
		if p.isSilent(e) {
			delete(p.entries, w)
			p.n.noted--
		}
	}
}

// isSilent reports whether an entry is a follower that has not asked lately.
func (p *page) isSilent(e *entry) bool { return p.After == nil && !p.lately(e) }

func (p *page) receive(m message, b []byte, from netip.AddrPort) fate {
	if m.flags&toHolder == 0 || m.token != p.Token {
		return unknown
	}
	e, secret := p.entries[m.waiter], p.key
	if m.flags&byTicket != 0 {
		secret = key{}
		if e != nil {
			secret = contactOf(e.ticket.Notify, byTicket).key
		}
	}
	answer := contact{from, secret, m.flags & byTicket}
	switch {
	case !secret.isFrom(b):
		return unsigned
	case p.over && m.kind != waiting:
		return stale
	case p.over:
		p.answer(m, answer, false)
	case e != nil && (m.seq < e.seq || m.seq == e.seq && m.kind != gone):
		return stale
	case m.kind == gone:
		if e != nil {
			delete(p.entries, m.waiter)
			p.n.noted--
		}
	case m.kind == waiting:
		if e == nil {
			e = p.note(m.waiter)
		}
		if e != nil {
			e.asks(m, answer, p.n.clock.Now())
		}
		p.answer(m, answer, e != nil)
	default:
		return malformed
	}
	return valid
}

// asks records that the waiter has asked, and where the answer goes.
func (e *entry) asks(m message, answer contact, now elect.Instant) {
	e.contact, e.last = answer, contact{}
	if answer.at != m.from { // the waiter is behind network address translation
		e.contact.at, e.last = m.from, answer
	}
	e.seq, e.asked, e.rank, e.set = m.seq, now, m.rank, m.flags&unready != 0
	e.ticket.RoundTrip = min(m.trip, table.MaxGrace)
}

// answer answers a waiter's question, unless the holder may lose the lock soon. If the term is over, the answer says
// that the lock is free. Such answers, and answers to waiters that are not in the Book, are rate-limited like
// unsolicited messages, because somebody may have replayed an old question.
func (p *page) answer(m message, to contact, noted bool) {
	said := message{kind: heard, lock: p.lock, token: p.Token, seq: m.seq, waiter: m.waiter}
	for w, e := range p.entries {
		if compare(w, m.waiter) < 0 && !e.set && p.lately(e) {
			said.ahead++
		}
	}
	switch {
	case p.over:
		if said.kind = free; said.ahead >= mostFirst {
			said.after = p.Lease*48/100 + p.n.clock.Random(p.Lease*24/100)
		}
	case !p.Alive():
		return
	case p.leaving:
		said.flags |= handover
	}
	p.n.post(said, to, noted)
}

// compare orders waiters by their tickets. The followers of an elector come last, because they have no tickets.
func compare(a, b waiter) int {
	return cmp.Or(cmp.Compare(a.turn(), b.turn()), cmp.Compare(a.nonce, b.nonce))
}

// turn returns the time of the waiter's ticket, or the largest value if the waiter has no ticket.
func (w waiter) turn() uint64 { return uint64(w.time - 1) }

// lately reports whether a waiter has asked in the last two intervals.
func (p *page) lately(e *entry) bool {
	return e.asked != (elect.Instant{}) && p.n.clock.Now().Since(e.asked) < 2*interval(p.Lease)
}

const (
	mostFirst  = 8 // waiters in a queue that are told that a lock is free, at most
	enough     = 3 // no more are told once this many have asked lately
	remembered = 2 // leases for which a holder answers questions about a term that is over, at most
)

// Leaving tells the followers that the leader is about to hand the lock over.
func (b Book) Leaving() {
	for _, p := range b {
		p.n.do(func() {
			p.leaving = true
			for w, e := range p.entries {
				p.tell(w, e, message{kind: leaving})
			}
		})
	}
}

// Free tells the next waiters that the locks are free. Call it when the release has been applied, or when its outcome
// is unknown. The argument done says whether the term has recorded a key as done. If it has, Free tells all waiters in
// the Book, because they may be waiting for that key.
func (b Book) Free(done bool) {
	for _, p := range b {
		p.n.do(func() { p.free(done) })
	}
}

func (p *page) free(done bool) {
	if p.over {
		return
	}
	p.over = true
	var ahead []table.Ticket // the tickets that count
	heard := 0
	for k, w := range p.inOrder() {
		e, after := p.entries[w], time.Duration(0)
		if !done && len(ahead) > 0 {
			after = p.after(ahead)
		}
		p.tell(w, e, message{kind: free, after: after})
		if e.set || p.isSilent(e) {
			continue
		}
		ahead = append(ahead, e.ticket)
		if p.lately(e) {
			heard++
		}
		if !done && p.After != nil && (heard >= enough || k >= mostFirst-1) {
			break
		}
	}
	p.n.noted -= len(p.entries)
	if p.After, p.Alive = nil, nil; done {
		p.entries = nil
	}
	p.n.after(min(remembered*p.Lease, 3*interval(p.Lease)+time.Second), func() { p.n.end(p.lock, p) })
}

// inOrder returns the waiters in the order in which they should claim the lock. Followers of an elector have ranks
// instead of tickets, and come after the waiters in the queue. Among followers of the same rank, the one with the
// shortest round trip comes first. Silent followers come last.
func (p *page) inOrder() (order []waiter) {
	for w := range p.entries {
		order = append(order, w)
	}
	silence := func(e *entry) int {
		if p.isSilent(e) {
			return 1
		}
		return 0
	}
	slices.SortFunc(order, func(a, b waiter) int {
		x, y := p.entries[a], p.entries[b]
		return cmp.Or(cmp.Compare(silence(x), silence(y)), cmp.Compare(x.rank, y.rank), cmp.Compare(a.turn(), b.turn()), cmp.Compare(x.ticket.RoundTrip, y.ticket.RoundTrip), cmp.Compare(a.nonce, b.nonce))
	})
	return order
}

// after returns how long a waiter should leave the lock to the waiters ahead of it.
func (p *page) after(ahead []table.Ticket) time.Duration {
	switch k := len(ahead); {
	case p.After != nil:
		return p.After(ahead)
	case k >= mostRanked:
		return p.Lease/4 + 1 + p.n.clock.Random(p.Lease/4)
	default:
		slowest := slices.MaxFunc(ahead, func(a, b table.Ticket) int { return cmp.Compare(a.RoundTrip, b.RoundTrip) })
		return time.Duration(k) * max(4*slowest.RoundTrip, p.Lease/100)
	}
}

// mostRanked is how many followers of an elector are told to claim the lock one after the other.
const mostRanked = 5

// tell sends a message that a waiter has not asked for.
func (p *page) tell(w waiter, e *entry, m message) {
	m.lock, m.token, m.waiter = p.lock, p.Token, w
	p.n.twice(m, e.contact)
	p.n.twice(m, e.last)
}
