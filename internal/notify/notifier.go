// Package notify sends datagrams that tell waiters that a lock is free, or that its holder is alive, so that waiters
// can poll less often. A message can affect only the time of a waiter's next poll or claim. A lost, late, repeated or
// forged message costs extra requests or a bounded delay. Messages never decide who holds a lock.
//
// A Notifier has one socket. For each lock, it records what waiters of this process have heard (Ear), and which waiters a
// holder in this process must notify (Book). Its mutex guards these records, and no message is sent while the mutex is held.
//
//   - message.go, address.go: messages and their addresses
//   - ear.go: a waiter; line.go: its exchange with the holder of one lock; book.go: a holder
//   - socket.go: the UDP socket
package notify

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"net/netip"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/spindle-lock/spindle/internal/elect"
)

// Notifier sends and receives the messages of a process.
type Notifier struct {
	own    netip.AddrPort // the address that it announces
	send   func(b []byte, to netip.AddrPort)
	hangUp func() // closes the socket, if there is one
	secret [32]byte
	clock  elect.Clock

	reported sync.Once // guards Report
	mu       sync.Mutex
	talk
}

// talk is what a Notifier's mutex guards.
type talk struct {
	talkers map[id][]talker
	out     []packet
	seq     uint64 // of the last question
	closed  bool
	counters
	limits
}

// talker receives the messages about one lock. It is either a *line, which connects a waiter to the holder, or a *page,
// which is the part of a holder's Book for one current or recent term.
type talker interface {
	receive(m message, b []byte, from netip.AddrPort) fate
}

// limits counts what a Notifier currently does for other processes.
type limits struct {
	read    window                 // messages received
	unasked map[netip.Addr]*window // messages sent that nobody asked for, by receiver
	noted   int                    // waiters in the books of current terms
}

type packet struct {
	b  []byte
	to netip.AddrPort
}

// The most that a Notifier does for other processes.
const (
	mostRead    = 20_000 // messages a second
	mostUnasked = 200    // messages a second that nobody asked for, to one address
	mostNoted   = 4_096  // waiters that a process remembers, for all its locks
	mostTold    = 64     // waiters that a process remembers for one lock; all of them are told when a key is done
)

// New returns a Notifier. The Notifier announces own as its address, and calls send for each message to another
// address. The function send must not block for long. The caller must pass messages that arrive at own to Receive.
func New(own netip.AddrPort, clock elect.Clock, send func(b []byte, to netip.AddrPort)) *Notifier {
	n := &Notifier{own: own, send: send, hangUp: func() {}, clock: clock}
	n.talk = talk{talkers: map[id][]talker{}, counters: uncounted, limits: limits{unasked: map[netip.Addr]*window{}}}
	_, _ = rand.Read(n.secret[:]) // never fails
	return n
}

// do runs f while holding the mutex, and then sends the messages that f has queued. A message to this process itself is
// delivered directly, which can queue further messages.
func (n *Notifier) do(f func()) {
	n.mu.Lock()
	f()
	var out []packet
	for i := 0; i < len(n.out) && !n.closed; i++ { // n.out may grow
		if p := n.out[i]; p.to == n.own {
			n.receive(p.b, n.own)
		} else {
			out = append(out, p)
		}
	}
	n.out = nil
	n.mu.Unlock()
	for _, p := range out {
		n.send(p.b, p.to)
	}
}

// after runs f once d has passed, unless the Notifier was closed.
func (n *Notifier) after(d time.Duration, f func()) *time.Timer {
	return n.clock.AfterFunc(d, func() {
		n.do(func() {
			if !n.closed {
				f()
			}
		})
	})
}

// Close ends the Notifier. After that, its waiters poll as they would without it.
func (n *Notifier) Close() {
	elect.Sleep(context.Background(), n.clock, again+time.Millisecond) // second copies are sent first
	n.do(func() {
		n.closed = true
		for _, all := range n.talkers {
			for _, t := range all {
				if l, ok := t.(*line); ok {
					l.ear.alarm()
				}
			}
		}
		clear(n.talkers)
	})
	n.hangUp()
}

// Place identifies a table in a database.
type Place string

// PlaceOf returns a table's place.
func PlaceOf(database, table string) Place {
	return Place(strconv.Quote(database) + strconv.Quote(table))
}

// Contact returns the text that a process puts into a row so that others can notify it: an address, and a key for this
// row only.
func (n *Notifier) Contact(p Place, row string) string {
	return contact{at: n.own, key: n.keyOf(p, row)}.String()
}

// keyOf derives the key of a row of this process.
func (n *Notifier) keyOf(p Place, row string) key {
	mac := hmac.New(sha256.New, n.secret[:])
	mac.Write([]byte(string(p) + strconv.Quote(row)))
	return key(mac.Sum(nil)[:len(key{})])
}

// begin makes a talker receive the messages about a lock until end is called.
func (n *Notifier) begin(lock id, t talker) { n.talkers[lock] = append(n.talkers[lock], t) }

func (n *Notifier) end(lock id, t talker) {
	all := slices.DeleteFunc(n.talkers[lock], func(other talker) bool { return other == t })
	if n.talkers[lock] = all; len(all) == 0 {
		delete(n.talkers, lock)
	}
}

// Receive handles a message. It drops invalid messages without an answer and without a log line.
func (n *Notifier) Receive(b []byte, from netip.AddrPort) {
	n.do(func() {
		outcome := flooded
		if n.read.admits(n.clock.Now(), mostRead, time.Second) {
			outcome = n.receive(b, netip.AddrPortFrom(from.Addr().Unmap(), from.Port()))
		}
		add(n.received, ofFates[outcome])
	})
}

// receive handles a message, and returns its fate.
func (n *Notifier) receive(b []byte, from netip.AddrPort) fate {
	m, ok := decode(b)
	if !ok {
		return malformed
	}
	outcome := unknown
	for _, t := range slices.Clone(n.talkers[m.lock]) {
		outcome = max(outcome, t.receive(m, b, from))
	}
	return outcome
}

// post queues a message for do, which sends it. It does not use the network for a message to this process itself. The
// argument asked must be true for questions, and for answers to waiters in the Book. The rate of all other messages is
// limited, and post drops messages that exceed the limit.
func (n *Notifier) post(m message, to contact, asked bool) {
	if to.at != n.own {
		if !usable(n.own, to.at) || !asked && !n.sentTo(to.at.Addr()).admits(n.clock.Now(), mostUnasked, time.Second) {
			return
		}
		add(n.sent, ofKinds[m.kind])
	}
	m.from = n.own
	m.flags |= to.under
	n.out = append(n.out, packet{m.signed(to.key), to.at})
}

// twice sends a message now and once more soon, because its receiver would not ask for it again.
func (n *Notifier) twice(m message, to contact) {
	n.post(m, to, false)
	if to.at != n.own {
		n.after(again, func() { n.post(m, to, false) })
	}
}

// again is the time between the two copies of a message.
const again = 3 * time.Millisecond

// window counts events within a period.
type window struct {
	began elect.Instant
	count int
}

func (w *window) admits(now elect.Instant, most int, within time.Duration) bool {
	if w.count == 0 || now.Since(w.began) >= within {
		*w = window{began: now}
	}
	w.count++
	return w.count <= most
}

func (n *Notifier) sentTo(to netip.Addr) *window {
	if len(n.unasked) > mostNoted { // mostly addresses of processes that have ended
		clear(n.unasked)
	}
	if n.unasked[to] == nil {
		n.unasked[to] = &window{}
	}
	return n.unasked[to]
}
