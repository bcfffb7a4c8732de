package lock

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/spindle-lock/spindle"
	"github.com/spindle-lock/spindle/internal/elect"
	"github.com/spindle-lock/spindle/internal/notify"
	"github.com/spindle-lock/spindle/internal/options"
	"github.com/spindle-lock/spindle/internal/testkit/network"
)

// post carries messages, with faults.
type post struct {
	mu     sync.Mutex
	faults network.Faults
	random *rand.Rand
	addrs  []netip.AddrPort
	all    map[netip.AddrPort]*notify.Notifier
	cut    map[netip.AddrPort]bool // nobody receives what it sends
	deaf   map[netip.AddrPort]bool // it receives nothing
	out    bool                    // nobody receives anything
}

func (p *post) turn(out bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.out = out
}

// oneWay cuts one direction of a process's network.
func (p *post) oneWay(ways map[netip.AddrPort]bool, process int, cut bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	ways[p.addrs[process]] = cut
}

func (p *post) process() *notify.Notifier {
	p.mu.Lock()
	defer p.mu.Unlock()
	at := netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, 0, byte(len(p.addrs))}), 7700)
	p.addrs = append(p.addrs, at)
	p.all[at] = notify.New(at, elect.SystemClock{}, func(b []byte, to netip.AddrPort) { p.carry(b, at, to) })
	return p.all[at]
}

func (p *post) carry(b []byte, from, to netip.AddrPort) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.out || p.cut[from] {
		return
	}
	for _, d := range p.faults.Arriving(network.Datagram{Bytes: b, From: from, To: to, After: time.Millisecond / 2}, p.addrs, p.random) {
		if !p.deaf[d.To] {
			time.AfterFunc(d.After, func() { p.all[d.To].Receive(d.Bytes, d.From) })
		}
	}
}

// drawn are the faults of a seed.
type drawn struct {
	hold   time.Duration
	faults network.Faults
	mute   bool // nobody receives what one of the processes sends
	deaf   bool // one of them receives nothing
	closed bool // one Notifier is closed while its process waits or holds
	old    bool // one process has none
	outage bool // for a while no message arrives
}

func draw(seed uint64) drawn {
	r := rand.New(rand.NewPCG(seed, 0))
	holds := []time.Duration{20 * time.Millisecond, 200 * time.Millisecond, 2 * time.Second, 6 * time.Second}
	d := drawn{hold: holds[r.IntN(len(holds))], faults: network.Drawn(r, []time.Duration{20 * time.Millisecond, time.Second, notifiedLease}[r.IntN(3)])}
	for _, b := range []*bool{&d.mute, &d.closed, &d.old, &d.outage, &d.deaf} {
		*b = r.IntN(4) == 0
	}
	return d
}

// monitored is a lock whose holders are counted, and whose tokens must grow.
type monitored struct {
	locking
	n     *notified
	most  int32                // holders at a time
	token func() spindle.Token // nil: tokens of several locks
	*watched
}

// watched is what all processes of a race know.
type watched struct {
	last   spindle.Token
	since  map[*monitored]time.Time // when those who wait began
	passed int                      // how often one got the lock before another who had waited for longer
}

func (m *monitored) Lock(ctx context.Context) error {
	m.n.mu.Lock()
	m.since[m] = time.Now()
	m.n.mu.Unlock()
	err := m.locking.Lock(ctx)
	m.n.mu.Lock()
	defer m.n.mu.Unlock()
	began := m.since[m]
	delete(m.since, m)
	if err != nil {
		return err
	}
	if m.n.inside.Add(1) > m.most {
		m.n.Error("too many hold it")
	}
	for _, other := range m.since {
		if began.Sub(other) > 50*time.Millisecond { // by then it has a ticket
			m.passed++
		}
	}
	if m.token != nil {
		if t := m.token(); t != 0 && t <= m.last {
			m.n.Errorf("token %v after %v", t, m.last)
		} else {
			m.last = max(m.last, t)
		}
	}
	return nil
}

func (m *monitored) Unlock(ctx context.Context) error {
	m.n.inside.Add(-1)
	return m.locking.Unlock(ctx)
}

// onceLock is held while the work of the next key runs. Whoever waits for a key that another has done waits for the one after it.
type onceLock struct {
	*Once
	done  *atomic.Int64 // the last key
	run   Run
	end   chan struct{}
	ended chan error
}

func (o *onceLock) Lock(ctx context.Context) error {
	for {
		key, began := o.done.Load()+1, make(chan Run)
		end, ended := make(chan struct{}), make(chan error, 1)
		o.end, o.ended = end, ended
		go func() {
			_, err := o.Do(ctx, KeyOf(fmt.Sprintf("%06d", key)), func(_ context.Context, run Run) error {
				began <- run
				<-end
				return nil
			})
			if err == nil {
				o.done.CompareAndSwap(key-1, key)
			}
			ended <- err
		}()
		select {
		case o.run = <-began:
			return nil
		case err := <-ended:
			if err != nil && !errors.Is(err, ErrPassed) {
				return err
			}
		}
	}
}

func (o *onceLock) Unlock(context.Context) error {
	close(o.end)
	return <-o.ended
}

// race lets six processes take turns. It returns the longest time that a lock was idle, the number of turns, and how often a
// process was passed over.
func (d drawn) race(t *testing.T, seed uint64, kind string, with bool) (idle time.Duration, turns, passed int) {
	withNotifications(t, func(n *notified) {
		p := &post{faults: d.faults, random: rand.New(rand.NewPCG(seed, 1)), all: map[netip.AddrPort]*notify.Notifier{}}
		p.cut, p.deaf = map[netip.AddrPort]bool{}, map[netip.AddrPort]bool{}
		shared := &watched{since: map[*monitored]time.Time{}}
		var done atomic.Int64
		for i := range 6 {
			name := fmt.Sprint("process ", i)
			own := p.process()
			if !with || d.old && i == 1 {
				own = nil
			}
			opts := []Option{silent, spindleLease(notifiedLease), options.Option(func(c *options.Config) {
				c.Store, c.Process, c.Notifier = far{n.spanner, n.fairground, 0}, n.Name()+" "+name, own
			})}
			m := &monitored{n: n, most: 1, watched: shared}
			switch kind {
			case "mutex":
				mutex := New(nil, "locktable", "m", opts...)
				m.locking, m.token = mutex, func() spindle.Token { return mutex.now.Load().token() }
			case "set":
				m.locking = All(nil, "locktable", []string{"m", fmt.Sprint("other ", i%2)}, opts...)
			case "semaphore":
				m.locking, m.most = &slotLock{NewSemaphore(nil, "locktable", "s", 2, opts...), nil}, 2
			case "once":
				once := &onceLock{Once: NewOnce(nil, "locktable", "o", opts...), done: &done}
				m.locking, m.token = once, func() spindle.Token { return once.run.Token() }
			}
			n.loop(name, m, d.hold)
			if with && d.closed && i == 2 && own != nil {
				time.AfterFunc(20*time.Second, own.Close)
			}
		}
		p.oneWay(p.cut, 3, d.mute)
		p.oneWay(p.deaf, 4, d.deaf)
		length := max(8*time.Second, 12*d.hold)
		if d.outage {
			time.AfterFunc(length/3, func() { p.turn(true) })
			time.AfterFunc(length*2/3, func() { p.turn(false) })
		}
		n.run(length)
		n.mu.Lock()
		defer n.mu.Unlock()
		idle, turns, passed = slices.Max(n.idle), len(n.idle), shared.passed
	})
	return idle, turns, passed
}

// Faults of the messages are drawn at random, for all kinds of locks. Too many never hold a lock, tokens grow, hardly
// anybody is passed over, and a lock is not idle for longer than without notifications by more than a third of a lease and a few
// round trips.
func TestDrawnFaultsOfNotificationsCostLittle(t *testing.T) {
	for _, kind := range []string{"mutex", "set", "semaphore", "once"} {
		for _, i := range rand.Perm(12)[:4] {
			seed := uint64(i)
			d := draw(seed)
			t.Run(fmt.Sprintf("%s %d", kind, seed), func(t *testing.T) {
				without, before, passedBefore := d.race(t, seed, kind, false)
				with, turns, passed := d.race(t, seed, kind, true)
				t.Logf("%+v: idle %v and %v, turns %d and %d, passed over %d and %d", d, without, with, before, turns, passedBefore, passed)
				assert.LessOrEqual(t, with, without+notifiedLease/3+100*time.Millisecond)
				assert.GreaterOrEqual(t, float64(turns), 0.8*float64(before))
				if kind != "once" { // all begin anew after each key
					assert.LessOrEqual(t, passed, passedBefore+turns/6)
				}
			})
		}
	}
}
