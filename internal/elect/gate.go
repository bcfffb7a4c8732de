package elect

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"
)

// Gate limits how many claims one Spanner client sends to a table at once. Without it, the claims of a thousand new
// locks would abort each other and the claims of other processes. A claim keeps its place in the gate while it is being
// confirmed, so confirmations never wait for a place. The zero value is ready to use. A nil Gate has no limit.
//
// At first, there is no limit. An abort is wasted if the next poll shows that the lock can still be claimed. The gate
// counts wasted aborts in samples of 8 to 64 consecutive claims. If more than an eighth of a sample's claims had wasted
// aborts, the new limit is the largest number of claims that were in flight at a time, reduced by the share of claims
// with wasted aborts. After 16 samples in which claims had to wait and no abort was wasted, the limit is doubled.
// Spanner itself aborts few claims of different locks, but the emulator runs only one transaction at a time.
type Gate struct {
	mu       sync.Mutex
	flying   int               // claims that have a place
	beats    int               // commits of heartbeats in flight
	limit    int               // 0: none
	waiting  []*place          // the most urgent one first
	owners   map[string]*owner // owners that have places or wait for one
	order    int               // the latest round in which a place was given
	given    int               // the number of places that were given
	arrivals int               // the number of claims that have arrived
	typical  time.Duration     // how long a claim and its confirmation take

	sample
	calm int // how many samples had waiting claims and no wasted abort since the limit last changed
}

// sample is what has happened since the gate last considered the limit.
type sample struct {
	ended  int // claims that were not aborted, or whose abort was wasted
	vain   int // claims whose abort was wasted
	most   int // the largest number of claims in flight at a time
	waited bool
}

// The number of claims in a sample equals the limit, within these bounds. The limit rises only after several samples
// without wasted aborts, because a limit that is too high costs more than one that is too low.
const (
	shortestSample = 8
	longestSample  = 64
	calmSamples    = 16
)

// Entrance is where an owner's claims enter a gate. The zero Entrance is always open.
type Entrance struct {
	*Gate
	Owner string // who makes the claims; "": the process itself
}

// Urgency says how urgent a claim is. More urgent claims get a place first, with one exception: every fourth place goes
// to the claim that has waited longest.
type Urgency int

const (
	Urgent  Urgency = iota // the claims of electors and groups
	InTurn                 // the claim of the first waiter in a queue, because the others wait for it
	Patient                // the claims of the other waiters
)

// place allows one claim to be in flight, once the gate has given out the place.
type place struct {
	*Gate
	clock   Clock
	urgency Urgency
	owner   *owner
	order   int // the round in which it is given; each owner gets one place per round
	arrived int
	turn    chan struct{} // closed when the place is given
	began   Instant
	timer   *time.Timer // ends a place whose claim is not answered
	over    bool
}

// owner counts the claims of one owner that have places or wait for places.
type owner struct {
	name   string
	places int // including those that it waits for
	flying int
	order  int // the round of its last place
}

// mostOfOwner is how many claims of one owner may be in flight. The owner "" has no such limit.
const mostOfOwner = 32

func (o *owner) mayFly() bool { return o.name == "" || o.flying < mostOfOwner }

// Enter waits for a place for a request other than a claim. It returns an error only if ctx ends first.
func (g *Gate) Enter(ctx context.Context, clock Clock, urgency Urgency, owner string) (leave func(), err error) {
	p, err := g.enter(ctx, clock, urgency, owner, false)
	return p.leave, err
}

// enter waits for a place. It returns an error only if ctx ends first. If the argument again is true, the candidate's
// last claim had a wasted abort.
func (g *Gate) enter(ctx context.Context, clock Clock, urgency Urgency, owner string, again bool) (*place, error) {
	if g == nil {
		return nil, nil
	}
	p := &place{Gate: g, clock: clock, urgency: urgency, turn: make(chan struct{})}
	g.mu.Lock()
	if again {
		g.count(1)
	}
	p.join(owner)
	g.serve()
	g.waited = g.waited || p.began == Instant{}
	g.mu.Unlock()
	select {
	case <-p.turn:
		return p, nil
	case <-ctx.Done():
		p.leave()
		return nil, ctx.Err()
	}
}

// join puts the place into the queue. Among equally urgent places, the first place of each owner comes before any
// owner's second place, and so on.
func (p *place) join(name string) {
	if p.owners == nil {
		p.owners = map[string]*owner{}
	}
	if p.owner = p.owners[name]; p.owner == nil {
		p.owner = &owner{name: name}
		p.owners[name] = p.owner
	}
	p.order = max(p.Gate.order, p.owner.order+1)
	p.owner.order = p.order
	p.owner.places++
	p.arrivals++
	p.arrived = p.arrivals
	at, _ := slices.BinarySearchFunc(p.waiting, p, func(q, p *place) int {
		return cmp.Or(cmp.Compare(q.urgency, p.urgency), cmp.Compare(q.order, p.order), -1)
	})
	p.waiting = slices.Insert(p.waiting, at, p)
}

// serve gives out places as long as the limit allows.
func (g *Gate) serve() {
	for g.limit == 0 || g.flying < g.limit && g.beats == 0 {
		i := g.next()
		if i < 0 {
			break
		}
		p := g.waiting[i]
		g.waiting = slices.Delete(g.waiting, i, i+1)
		p.owner.flying++
		g.flying, g.given, g.order = g.flying+1, g.given+1, max(g.order, p.order)
		p.began = p.clock.Now()
		p.timer = p.clock.AfterFunc(g.patience(), p.leave) // a limit may follow while the claim is in flight
		close(p.turn)
	}
	g.most = max(g.most, g.flying)
}

// next returns the index of the waiting place that is given next, or -1.
func (g *Gate) next() int {
	next := slices.IndexFunc(g.waiting, func(p *place) bool { return p.owner.mayFly() })
	if g.given%4 == 3 {
		for i, p := range g.waiting {
			if p.owner.mayFly() && p.arrived < g.waiting[next].arrived {
				next = i
			}
		}
	}
	return next
}

// patience returns how long a claim without an answer keeps its place: ten round trips. A confirmed claim takes four.
func (g *Gate) patience() time.Duration {
	return max(cmp.Or(g.typical*10/4, time.Second), 100*time.Millisecond)
}

// leave gives up a place, or stops waiting for it. Only the first call has an effect.
func (p *place) leave() {
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.over {
		return
	}
	p.over = true
	if p.owner.places--; p.owner.places == 0 {
		delete(p.owners, p.owner.name)
	}
	if i := slices.Index(p.waiting, p); i >= 0 {
		p.giveUpTurn(i)
		return
	}
	if p.timer != nil {
		p.timer.Stop()
	}
	p.flying--
	p.owner.flying--
	p.serve()
}

// giveUpTurn removes the place from the queue, where it has the given index. The owner's later claims of the same
// urgency move up. Otherwise, an owner whose claims often time out would wait ever longer for its next turn.
func (p *place) giveUpTurn(i int) {
	for j := i + 1; j < len(p.waiting); j++ {
		if q := p.waiting[j]; q.owner == p.owner && q.urgency == p.urgency {
			p.waiting[i], p.order, q.order, i = q, q.order, p.order, j
		}
	}
	p.waiting = slices.Delete(p.waiting, i, i+1)
	if p.owner.order == p.order {
		p.owner.order--
	}
}

// answered records that a claim was not aborted, and gives up its place.
func (p *place) answered() {
	if p == nil {
		return
	}
	p.mu.Lock()
	took := p.clock.Now().Ran(p.began)
	p.typical += (took - cmp.Or(p.typical, took)) / 8
	p.typical = cmp.Or(p.typical, took)
	p.count(0)
	p.mu.Unlock()
	p.leave()
}

// count adds a claim to the sample, and changes the limit when the sample is complete.
func (g *Gate) count(vain int) {
	g.ended, g.vain = g.ended+1, g.vain+vain
	if g.ended < min(max(g.limit, shortestSample), longestSample) {
		return
	}
	switch {
	case 8*g.vain > g.ended:
		g.limit, g.calm = max(g.most*(g.ended-g.vain)/g.ended, 1), 0
	case g.vain == 0 && g.waited:
		if g.calm++; g.calm >= calmSamples {
			g.limit, g.calm = 2*g.limit, 0
		}
	}
	g.sample = sample{most: g.flying, waited: len(g.waiting) > 0}
}

// Beat records that a commit of heartbeats is in flight. If the gate has a limit, no further claim gets a place until
// the commit is answered, because the claim could abort the heartbeats. The caller must call the returned function when
// the commit has been answered.
func (g *Gate) Beat() (done func()) {
	g.add(0, 1)
	return func() { g.add(0, -1) }
}

// Bounded reports whether there is a limit.
func (g *Gate) Bounded() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.limit > 0
}

// Count counts a commit of claims that does not wait for a place, because a group itself limits how many claims of
// partitions it sends. The caller must call the returned function after the commit is answered.
func (g *Gate) Count() (done func()) {
	if g == nil {
		return func() {}
	}
	g.add(1, 0)
	return func() { g.add(-1, 0) }
}

func (g *Gate) add(claims, beats int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.flying, g.beats = g.flying+claims, g.beats+beats
	g.serve()
}
