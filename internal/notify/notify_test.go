package notify

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/metric/noop"

	"github.com/spindle-lock/spindle/internal/elect"
	"github.com/spindle-lock/spindle/internal/table"
)

// The tests in this file let one holder and its waiters talk over a network of the test, in virtual time, with a lease of four
// seconds and datagrams of half a millisecond. What a poll shows is what the test says.

const lease = 4 * time.Second

var site = PlaceOf("db", "locks")

// world is a network.
type world struct {
	*testing.T
	processes []*process

	translated bool // all processes but the first are behind network address translation: what is sent to the address that they announce is lost

	mu      sync.Mutex
	drop    func(from, to int, m message) bool // nil: nothing is lost
	carried []message
}

// process is a Notifier of the world.
type process struct {
	*Notifier
	w     *world
	at    netip.AddrPort // where it is reached, and where its messages come from
	i     int
	fates tally // of messages that it received
}

// tally counts by attribute.
type tally map[string]int

type tallied struct {
	noop.Int64Counter
	tally
}

func (c tallied) Add(_ context.Context, n int64, opts ...metric.AddOption) {
	of := metric.NewAddConfig(opts).Attributes()
	for _, a := range of.ToSlice() {
		c.tally[a.Value.AsString()] += int(n)
	}
}

func inWorld(t *testing.T, f func(w *world)) {
	synctest.Test(t, func(t *testing.T) {
		w := &world{T: t}
		f(w)
		for _, p := range w.processes {
			p.Close()
		}
		time.Sleep(time.Minute)
		for _, p := range w.processes {
			assert.Zero(t, p.noted, "nobody is noted after the last term")
		}
	})
}

func (w *world) process() *process {
	w.mu.Lock()
	defer w.mu.Unlock()
	p := &process{w: w, i: len(w.processes), fates: tally{}}
	p.at = netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, 0, byte(p.i + 1)}), 7700)
	p.Notifier = New(p.at, elect.SystemClock{}, func(b []byte, to netip.AddrPort) { w.carry(p, b, to) })
	if w.translated && p.i > 0 {
		p.at = netip.AddrPortFrom(p.at.Addr(), 9999)
	}
	p.received = tallied{tally: p.fates}
	w.processes = append(w.processes, p)
	return p
}

func (w *world) carry(from *process, b []byte, to netip.AddrPort) {
	m, ok := decode(b)
	require.True(w, ok)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.carried = append(w.carried, m)
	for _, p := range w.processes {
		if p.at == to && (w.drop == nil || !w.drop(from.i, p.i, m)) {
			time.AfterFunc(time.Millisecond/2, func() { p.Receive(b, from.at) })
		}
	}
}

// loses makes the network drop the messages for which drop returns true.
func (w *world) loses(drop func(from, to int, m message) bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.drop = drop
}

// sent returns the messages for which of returns true, and forgets all.
func (w *world) sent(of func(m message) bool) (all []message) {
	synctest.Wait()
	w.mu.Lock()
	defer w.mu.Unlock()
	all, w.carried = slices.DeleteFunc(w.carried, func(m message) bool { return !of(m) }), nil
	return all
}

// only returns a function that returns true for the messages of a kind.
func only(k kind) func(message) bool { return func(m message) bool { return m.kind == k } }

// ticket returns a ticket of the process.
func (p *process) ticket(at int) table.Ticket {
	t := table.Ticket{Queue: "m", Time: table.Token(at), Nonce: fmt.Sprint("a", at), Grace: 100 * time.Millisecond}
	t.Notify = p.Contact(site, t.Row())
	return t
}

// tickets returns n tickets of the process. On average, one in sets of them is a set's, and half of those are ready.
func (p *process) tickets(r *rand.Rand, n, sets int) (all []table.Ticket) {
	for i := range n {
		one := p.ticket(10 + i)
		one.Set = r.IntN(sets) == 0
		one.Ready = one.Set && r.IntN(2) == 0
		all = append(all, one)
	}
	return all
}

// termOf returns a term under token 1 whose holder is alive.
func termOf(name string) Term {
	return Term{Place: site, Name: name, Token: 1, Lease: lease, Alive: func() bool { return true }}
}

// holds begins a term with a token.
func (p *process) holds(token table.Token, waiters ...table.Ticket) Book {
	term := termOf("m")
	term.Token, term.Waiters = token, waiters
	term.After = func(ahead []table.Ticket) time.Duration { return time.Duration(len(ahead)) * 50 * time.Millisecond }
	return p.Hold(term)
}

// hears gives the process a waiter's message about a term of its own, and returns it.
func (p *process) hears(b *page, m message) message {
	m.flags, m.lock, m.token = m.flags|toHolder, b.lock, b.Token
	p.Receive(m.signed(b.key), m.from)
	return m
}

// listener is an Ear whose waiter polls in a loop.
type listener struct {
	*Ear
	p     *process
	polls atomic.Int32
	stop  context.CancelFunc
}

// waits begins a loop: after each poll, learn says what it has shown. Without messages, it polls every 100 ms.
func (p *process) waits(own table.Ticket, learn func() Seen) *listener {
	ctx, stop := context.WithCancel(context.Background())
	l := &listener{Ear: p.Listen(site, lease), p: p, stop: stop}
	go func() {
		for ctx.Err() == nil {
			l.polls.Add(1)
			began := elect.SystemClock{}.Now()
			s := learn()
			s.Ticket = own
			l.Learn(s, began)
			l.Sleep(ctx, elect.SystemClock{}, 100*time.Millisecond, lease)
		}
		l.Ear.Close()
	}()
	p.w.Cleanup(stop)
	return l
}

func (l *listener) named() (w waiter) {
	l.p.do(func() { w = l.self })
	return w
}

// during returns how often it polled in the next d.
func (l *listener) during(d time.Duration) int {
	synctest.Wait()
	before := l.polls.Load()
	time.Sleep(d)
	synctest.Wait()
	return int(l.polls.Load() - before)
}

// sleeps lets a waiter sleep until it polls again, and returns how long it has slept.
func sleeps(e *Ear, short, long time.Duration) time.Duration {
	began := time.Now()
	e.Sleep(context.Background(), elect.SystemClock{}, short, long)
	return time.Since(began)
}

// held is what a poll shows of a lock that the process holds.
func (p *process) held(token table.Token, ahead ...table.Ticket) Seen {
	return Seen{Locks: []Lock{{Name: "m", Token: token, Held: true, Contact: p.Contact(site, table.LeaseKey("m", token)), Lease: lease, Ahead: ahead}}, Trip: 5 * time.Millisecond}
}

// pair is a holder under token 1 and a waiter that has read its lease row.
func pair(w *world) (holder *process, book Book, waiter *listener, seen *atomic.Pointer[Seen]) {
	holder, other := w.process(), w.process()
	s := holder.held(1)
	seen = new(atomic.Pointer[Seen])
	seen.Store(&s)
	book = holder.holds(1)
	waiter = other.waits(other.ticket(10), func() Seen { return *seen.Load() })
	return holder, book, waiter, seen
}

func TestAWaiterPollsOnceALeaseWhileItsHolderAnswers(t *testing.T) {
	inWorld(t, func(w *world) {
		holder, book, waiter, _ := pair(w)
		time.Sleep(lease)
		assert.LessOrEqual(t, waiter.during(10*lease), 11)
		assert.GreaterOrEqual(t, waiter.during(10*lease), 9, "but that often, however alive its holder is")
		w.loses(func(from, _ int, _ message) bool { return from == holder.i })
		assert.GreaterOrEqual(t, waiter.during(lease), 25, "without answers it soon polls as without messages")
		w.loses(nil)
		time.Sleep(lease)
		assert.LessOrEqual(t, waiter.during(10*lease), 11, "and seldom again once it is answered")
		book.Free(false)
	})
}

// Holder and waiter may be in one process, which talks to itself without the network.
func TestAWaiterHearsAHolderOfItsOwnProcess(t *testing.T) {
	inWorld(t, func(w *world) {
		p := w.process()
		book := p.holds(1)
		seen := p.held(1)
		waiter := p.waits(p.ticket(10), func() Seen { return seen })
		time.Sleep(lease)
		assert.LessOrEqual(t, waiter.during(10*lease), 11)
		book.Free(false)
		assert.Positive(t, waiter.during(5*time.Millisecond))
		assert.Empty(t, w.sent(func(message) bool { return true }))
	})
}

// The loss of a few messages does not make a waiter poll: it asks again.
func TestALostQuestionIsAskedAgain(t *testing.T) {
	inWorld(t, func(w *world) {
		_, book, waiter, _ := pair(w)
		n := 0
		w.loses(func(int, int, message) bool { n++; return n%3 == 0 })
		time.Sleep(lease)
		assert.LessOrEqual(t, waiter.during(20*lease), 30)
		book.Free(false)
	})
}

func TestAHolderThatMayLoseTheLockDoesNotAnswer(t *testing.T) {
	inWorld(t, func(w *world) {
		holder, book, waiter, _ := pair(w)
		var alive atomic.Bool
		alive.Store(true)
		holder.do(func() { book[0].Alive = alive.Load })
		time.Sleep(lease)
		alive.Store(false)
		time.Sleep(lease / 2)
		assert.GreaterOrEqual(t, waiter.during(lease), 35)
		book.Free(false)
	})
}

// A waiter behind network address translation is told at the address that its questions come from: nobody reaches the one that it announces.
func TestWhoFreesALockTellsThoseWhoWait(t *testing.T) {
	for _, translated := range []bool{false, true} {
		inWorld(t, func(w *world) {
			w.translated = translated
			_, book, waiter, seen := pair(w)
			time.Sleep(lease * 5 / 2)
			freed := *seen.Load()
			freed.Locks = []Lock{{Name: "m", Token: 2}}
			seen.Store(&freed)
			book.Free(false)
			assert.Equal(t, 1, waiter.during(5*time.Millisecond), "once, however many copies arrive")
		})
	}
}

// A waiter that was not told asks about a term that is over, and learns that.
func TestAQuestionAboutATermThatIsOverIsAnswered(t *testing.T) {
	inWorld(t, func(w *world) {
		_, book, waiter, _ := pair(w)
		time.Sleep(lease * 5 / 2)
		freed := time.Now()
		w.loses(func(_, _ int, m message) bool { return m.kind == free && time.Since(freed) < 5*time.Millisecond })
		book.Free(false)
		time.Sleep(4 * time.Millisecond)
		w.sent(func(message) bool { return false })
		assert.Positive(t, waiter.during(lease/10+20*time.Millisecond))
		assert.NotEmpty(t, w.sent(only(free)))
	})
}

func TestWaitersAreToldInTheOrderOfTheirTickets(t *testing.T) {
	inWorld(t, func(w *world) {
		holder := w.process()
		var tickets []table.Ticket
		var all []*listener
		for i := range 12 {
			p := w.process()
			tickets = append(tickets, p.ticket(10+i))
			ahead := tickets[:i]
			all = append(all, p.waits(tickets[i], func() Seen { return holder.held(1, ahead...) }))
		}
		book := holder.holds(1, tickets...)
		time.Sleep(lease * 5 / 2)
		assert.Len(t, w.sent(only(taken)), 12)
		w.loses(func(from, _ int, _ message) bool { return from == 2 || from == 3 }) // they have died
		time.Sleep(lease)
		book.Free(false)
		w.loses(nil)
		told := w.sent(func(m message) bool { return m.kind == free && m.flags&relayed == 0 })
		require.Len(t, told, 5, "until three who have asked lately are told")
		for i, m := range told {
			assert.Equal(t, table.Token(10+i), m.waiter.time)
			assert.Equal(t, time.Duration(i)*50*time.Millisecond, m.after)
		}
		time.Sleep(20 * time.Millisecond)
		assert.NotEmpty(t, w.sent(func(m message) bool { return m.flags&relayed != 0 && m.waiter.time == 10 }), "who is told and is not first passes it on")
		time.Sleep(interval(lease))
		late := w.sent(func(m message) bool { return m.kind == free && m.flags&relayed == 0 })
		assert.GreaterOrEqual(t, len(late), 5, "the others learn it with their next question")
		for _, m := range late {
			if m.waiter.time < 20 { // fewer than eight who live are ahead
				assert.Zero(t, m.after)
			} else {
				assert.InDelta(t, lease*6/10, m.after, float64(lease*12/100))
			}
		}
		for _, l := range all {
			l.stop()
		}
	})
}

// A message that leads to nothing costs a few polls, and then those about this token no longer count.
func TestMessagesThatLeadToNothingAreSoonIgnored(t *testing.T) {
	inWorld(t, func(w *world) {
		holder, book, waiter, seen := pair(w)
		time.Sleep(lease * 5 / 2)
		before := waiter.polls.Load()
		to := contact{waiter.p.at, waiter.p.keyOf(site, waiter.p.ticket(10).Row()), byTicket}
		for i := range 50 { // each is about something new, as it seems
			holder.do(func() {
				holder.post(message{kind: free, lock: idOf(site, "m"), token: table.Token(2 + i), waiter: waiter.named()}, to, true)
			})
			time.Sleep(time.Millisecond)
		}
		assert.LessOrEqual(t, int(waiter.polls.Load()-before), mostVain+2)
		assert.GreaterOrEqual(t, waiter.during(lease), 35, "the waiter polls as without messages")
		later := holder.held(3)
		seen.Store(&later)
		book.Free(false)
		book = holder.holds(3)
		time.Sleep(lease)
		assert.LessOrEqual(t, waiter.during(5*lease), 6, "until the token is another one")
		book.Free(false)
	})
}

// The same holds for messages that come a while after each other.
func TestMessagesThatLeadToNothingNowAndThenAreIgnored(t *testing.T) {
	inWorld(t, func(w *world) {
		holder, book, waiter, _ := pair(w)
		time.Sleep(lease * 5 / 2)
		to := contact{waiter.p.at, waiter.p.keyOf(site, waiter.p.ticket(10).Row()), byTicket}
		for i := range mostVain + 1 {
			holder.do(func() {
				holder.post(message{kind: free, lock: idOf(site, "m"), token: table.Token(2 + i), waiter: waiter.named()}, to, true)
			})
			time.Sleep(lease * 11 / 100)
		}
		waiter.p.do(func() {
			for _, l := range waiter.lines {
				assert.True(t, l.deaf)
			}
		})
		book.Free(false)
	})
}

// A waiter that polls often, because its holder does not answer, still hears messages after one that led to nothing: its own polls
// are not in vain.
func TestOnePollInVainMakesNoWaiterDeaf(t *testing.T) {
	inWorld(t, func(w *world) {
		w.loses(func(_, _ int, m message) bool { return m.kind == heard })
		holder, book, waiter, _ := pair(w)
		time.Sleep(lease)
		to := contact{waiter.p.at, waiter.p.keyOf(site, waiter.p.ticket(10).Row()), byTicket}
		holder.do(func() {
			holder.post(message{kind: free, lock: idOf(site, "m"), token: 2, waiter: waiter.named()}, to, true)
		})
		assert.Greater(t, waiter.during(lease/2), mostVain)
		waiter.p.do(func() {
			for _, l := range waiter.lines {
				assert.False(t, l.deaf)
			}
		})
		book.Free(false)
	})
}

func TestForgedAndReflectedMessagesAreDropped(t *testing.T) {
	inWorld(t, func(w *world) {
		holder, book, waiter, _ := pair(w)
		time.Sleep(lease * 5 / 2)
		before := waiter.polls.Load()
		for k := kind(0); k <= kinds; k++ {
			for f := range flags(16) {
				m := message{kind: k, flags: f, lock: idOf(site, "m"), token: 1, waiter: waiter.named(), from: holder.at}
				for _, p := range []*process{holder, waiter.p} {
					p.Receive(m.signed(key{1}), holder.at)
					p.Receive(m.signed(p.keyOf(site, "another row")), holder.at)
				}
			}
		}
		asked := message{kind: waiting, flags: toHolder, lock: idOf(site, "m"), token: 1, seq: 1 << 40, waiter: waiter.named(), from: waiter.p.at}
		waiter.p.Receive(asked.signed(holder.keyOf(site, table.LeaseKey("m", 1))), holder.at)
		short := make([]byte, Size-1)
		holder.Receive(short, waiter.p.at)
		time.Sleep(100 * time.Millisecond)
		assert.Equal(t, before, waiter.polls.Load())
		waiter.p.do(func() { assert.Positive(t, waiter.p.fates["unsigned"]) })
		holder.do(func() { assert.Positive(t, holder.fates["malformed"]) })
		book.Free(false)
	})
}

// A waiter that gives up says so. Its questions, sent again by somebody else, do not make it count any more than once.
func TestWhoHasGoneIsNotNoted(t *testing.T) {
	inWorld(t, func(w *world) {
		holder, book, gone, _ := pair(w)
		time.Sleep(lease)
		gone.stop()
		time.Sleep(100 * time.Millisecond)
		holder.do(func() { assert.Empty(t, book[0].entries) })
		asked := message{kind: waiting, flags: toHolder, lock: idOf(site, "m"), token: 1, seq: 7, waiter: waiter{10, 1}, from: netip.MustParseAddrPort("10.0.0.9:7700")}
		for range 3 {
			holder.Receive(asked.signed(book[0].key), asked.from)
		}
		assert.Len(t, w.sent(func(m message) bool { return m.kind == heard && m.waiter.nonce == 1 }), 1)
		holder.do(func() { assert.EqualValues(t, 2, holder.fates["stale"]) })
		book.Free(false)
	})
}

// Several programs of one agent can be candidates of one election.
func TestFollowersOfOneProcessAreNotedApart(t *testing.T) {
	inWorld(t, func(w *world) {
		holder, other := w.process(), w.process()
		book := holder.holds(1)
		follow := func() Seen { s := holder.held(1); s.Follower = true; return s }
		stays, leaves := other.waits(table.Ticket{}, follow), other.waits(table.Ticket{}, follow)
		time.Sleep(lease)
		holder.do(func() { assert.Len(t, book[0].entries, 2) })
		leaves.stop()
		time.Sleep(100 * time.Millisecond)
		holder.do(func() { assert.Len(t, book[0].entries, 1) })
		book.Free(false)
		assert.Positive(t, stays.during(5*time.Millisecond))
	})
}

func FuzzReceive(f *testing.F) {
	m := message{kind: waiting, flags: toHolder, lock: idOf(site, "m"), token: 1, seq: 7, from: netip.MustParseAddrPort("10.0.0.1:7700")}
	f.Add(m.signed(key{1}))
	f.Add([]byte{version})
	f.Fuzz(func(t *testing.T, b []byte) {
		sent := 0
		n := New(netip.MustParseAddrPort("10.0.0.1:7700"), elect.SystemClock{}, func([]byte, netip.AddrPort) { sent++ })
		book := n.Hold(termOf("m"))
		e := n.Listen(site, lease)
		e.Learn(Seen{Locks: []Lock{{Name: "m", Token: 2, Held: true}}, Follower: true}, elect.Instant{})
		n.Receive(b, netip.MustParseAddrPort("10.0.0.2:7700"))
		if m, ok := decode(b); ok {
			_ = m.signed(key{})
		}
		if sent > 0 {
			t.Error("a message that nobody signed was answered")
		}
		book.Free(false)
		e.Close()
	})
}

// Whoever can write to the table can't make a process send to system services, to everybody, or to its own machine.
func TestAddressesThatAreNotUsed(t *testing.T) {
	own := netip.MustParseAddrPort("10.0.0.1:7700")
	for text, want := range map[string]bool{"10.0.0.2:7700": true, "[fd00::2]:7700": true, "10.0.0.2:53": false, "127.0.0.1:7700": false, "[::1]:7700": false,
		"169.254.1.1:7700": false, "[fe80::1]:7700": false, "224.0.0.1:7700": false, "255.255.255.255:7700": false, "0.0.0.0:7700": false, "[::ffff:10.0.0.2]:7700": true,
		"[::ffff:255.255.255.255]:7700": false, "[::ffff:0.0.0.0]:7700": false, "[::ffff:127.0.0.1]:7700": false} {
		sent := 0
		n := New(own, elect.SystemClock{}, func([]byte, netip.AddrPort) { sent++ })
		waiter := table.Ticket{Queue: "m", Time: 10, Nonce: "a10", Notify: contact{at: netip.MustParseAddrPort(text)}.String()}
		n.Hold(Term{Place: site, Name: "m", Token: 1, Lease: lease, Waiters: []table.Ticket{waiter}})
		assert.Equal(t, want, sent == 1, text)
	}
	assert.True(t, usable(netip.MustParseAddrPort("127.0.0.1:7700"), netip.MustParseAddrPort("127.0.0.1:7701")))
	for _, text := range []string{"", "10.0.0.2:7700", "host:7700 AAAAAAAAAAAAAAAAAAAAAA", "10.0.0.2:7700 AAAA", "10.0.0.2 AAAAAAAAAAAAAAAAAAAAAA"} {
		assert.Zero(t, contactOf(text, 0), text)
	}
	c := contact{at: own, key: key{1, 2, 3}}
	assert.Equal(t, c, contactOf(c.String(), 0))
}

// A process that was stopped finds an answer in its socket that was sent long ago. It says nothing about now.
func TestAnAnswerIsAsOldAsItsQuestion(t *testing.T) {
	for _, late := range []time.Duration{lease, 100 * lease} {
		inWorld(t, func(w *world) {
			holder, book, waiter, _ := pair(w)
			var kept [][]byte
			send := holder.send
			holder.do(func() {
				holder.send = func(b []byte, to netip.AddrPort) {
					if m, _ := decode(b); m.kind == heard {
						w.mu.Lock()
						kept = append(kept, b)
						w.mu.Unlock()
					} else {
						send(b, to)
					}
				}
			})
			time.Sleep(late)
			synctest.Wait()
			w.mu.Lock()
			old := slices.Clone(kept)
			w.mu.Unlock()
			for _, b := range old {
				waiter.p.Receive(b, holder.at)
			}
			waiter.p.do(func() { assert.Contains(t, []elect.Instant{{}, waiter.lines["m"].asked}, waiter.lines["m"].answered) })
			assert.GreaterOrEqual(t, waiter.during(lease), 25)
			holder.do(func() { holder.send = send })
			book.Free(false)
		})
	}
}

// A waiter that was told that another has claimed the lock knows the new holder by that message only. It is told of the release
// under the key that it knows.
func TestAWaiterThatHasNotReadTheLeaseRowIsToldToo(t *testing.T) {
	inWorld(t, func(w *world) {
		first, second, other := w.process(), w.process(), w.process()
		next, dead, own := second.ticket(7), second.ticket(8), other.ticket(10)
		book := first.holds(1, next, dead, own)
		var seen atomic.Pointer[Seen]
		shows := func(s Seen) { seen.Store(&s) }
		shows(first.held(1, next, dead))
		waiter := other.waits(own, func() Seen { return *seen.Load() })
		time.Sleep(lease * 5 / 2)
		book.Free(false)
		book = second.holds(2, dead, own)
		polled := waiter.during(lease / 4)
		assert.LessOrEqual(t, polled, 1)
		waiter.p.do(func() { assert.Equal(t, byTicket, waiter.lines["m"].contact.under) })
		shows(Seen{Locks: []Lock{{Name: "m", Token: 3}}})
		book.Free(false)
		assert.Equal(t, 1, waiter.during(60*time.Millisecond), "in its turn")
	})
}

// Who waits for several locks has a ticket in each queue, and hears what is signed with any of them.
func TestASetHearsOfEachOfItsLocks(t *testing.T) {
	inWorld(t, func(w *world) {
		holder, other := w.process(), w.process()
		own := other.ticket(10)
		own.Set = true
		waiter := other.waits(own, func() Seen { return Seen{Locks: []Lock{{Name: "m", Token: 1}, {Name: "second", Token: 1}}} })
		time.Sleep(lease)
		for _, name := range []string{"m", "second"} {
			read := own
			read.Queue = name
			read.Notify = other.Contact(site, read.Row())
			e := holder.Listen(site, lease)
			other.do(func() { other.fates["valid"] = 0 })
			e.Free(name, 2, []table.Ticket{read}, time.Second)
			synctest.Wait()
			time.Sleep(time.Millisecond)
			synctest.Wait()
			other.do(func() { assert.Equal(t, 1, other.fates["valid"], name) })
			e.Close()
		}
		waiter.stop()
	})
}
