package simulation

import (
	"time"

	"github.com/spindle-lock/spindle"
	"github.com/spindle-lock/spindle/group"
	"github.com/spindle-lock/spindle/internal/options"
	"github.com/spindle-lock/spindle/internal/table"
)

// plan describes a seed's fleet and its environment. The assumptions about clocks limit it: a clock's rate is off by at
// most one percent, and no machine is suspended and has its wall clock set back within the same lease, because neither
// of its clocks then shows how much time has passed (see the limits in docs/evidence.md). Each kind of fault occurs
// only in some seeds, because a fault that always occurs together with all others could be hidden by them.
type plan struct {
	leases    []time.Duration // by slot
	longest   time.Duration
	mixed     bool // the leases differ
	lockDelay time.Duration
	reclaim   bool
	heartbeat float64 // part of the lease; 0: the default
	poll      float64

	latency     time.Duration // of most requests and replies, at most
	uncertainty time.Duration // of Spanner's clock
	suspends    bool          // machines are suspended and wall clocks are set forward; otherwise to and fro
	slowest     float64       // of the clocks' rates
	fastest     float64

	// Chances per RPC.
	lost, silent, slow, refused, again, abort float64
	// Some steps are much slower than the others for a while, and then different ones.
	moody bool
	// Chance per await: an RPC about to be sent or just answered, a reading of the clock.
	pause float64
	// Chance per term: its work overruns.
	overrun float64
	// Chance per step of the work that it hangs. If it can, the work has to make progress (WithStall).
	hang float64

	sick  bool    // the first slot's processes can claim and can't confirm
	busy  bool    // other locks are written all the time
	idle  bool    // Spanner answers strong reads with the time of the last commit
	twice float64 // chance that a client runs a transaction again that was applied

	// Handovers occur only in some seeds. By slot: whether the process hands over when it stops, how far its priority
	// is below the highest, and whether its term continues when its leader function returns.
	handovers    bool
	handover     []bool
	rank         []int
	keepOnReturn []bool
	hunts        bool // something happens to who has announced that it leaves

	driver map[string]int // weights of what the driver does
	steps  []string
}

// A candidate waits at least a second for a reply, which is long compared with short leases.
var baseLeases = []time.Duration{200 * time.Millisecond, 200 * time.Millisecond, 500 * time.Millisecond, time.Second, 3 * time.Second, 10 * time.Second, time.Minute}

// draw draws a fleet of candidates.
func (w *world) draw(d *dice) plan {
	p := plan{steps: rpcSteps, mixed: d.chance(0.5), latency: pick(d, 2*time.Millisecond, 20*time.Millisecond), slowest: 1, fastest: 1}
	base := pick(d, baseLeases...)
	for range 2 + d.below(4) {
		l := base
		if p.mixed {
			l = time.Duration(float64(base) * pick(d, 1, 1.5, 3, 6))
		}
		p.leases = append(p.leases, l)
		p.longest = max(p.longest, l)
	}
	if d.chance(0.2) {
		p.lockDelay = d.between(0, 2*base)
	}
	p.reclaim = d.chance(0.25)
	p.heartbeat, p.poll = pick(d, 0, 0, 0, 0.1, 0.5, 0.9), pick(d, 0, 0, 0.05, 0.05, 0.9)
	if base < 3*time.Second {
		p.heartbeat = min(p.heartbeat, 0.5) // what is left of the lease is for several round trips
	}
	p.uncertainty = pick(d, 0, 7*time.Millisecond)
	p.suspends = d.chance(0.5)
	if d.chance(0.7) {
		p.slowest, p.fastest = 0.99, 1.01
	}
	for _, rate := range []*float64{&p.lost, &p.silent, &p.slow, &p.refused, &p.again, &p.abort} {
		if d.chance(0.5) {
			*rate = pick(d, 0.01, 0.03, 0.1)
		}
	}
	p.moody = d.chance(0.5)
	if d.chance(0.5) {
		p.pause = pick(d, 0.002, 0.01, 0.03)
	}
	p.overrun = pick(d, 0, 0.3, 0.9)
	p.driver = map[string]int{}
	for _, kind := range drivenFaults {
		if d.chance(0.6) {
			p.driver[kind] = 1 + d.below(3)
		}
	}
	if p.sick = d.chance(0.2); p.sick {
		p.leases[0] = max(p.leases[0]/2, 100*time.Millisecond)
	}
	p.busy, p.idle = d.chance(0.5), d.chance(0.5)
	if d.chance(0.5) {
		p.twice = pick(d, 0.01, 0.1)
	}
	p.planHandovers(seeded(uint64(*d)))
	hangs := seeded(uint64(*d), 1)
	p.hang = pick(&hangs, 0, 0, 0.05, 0.3)
	return p
}

func (p *plan) planHandovers(d dice) {
	p.handovers = d.chance(0.5)
	ranked, givenUp := d.chance(0.5), d.chance(0.5)
	spurns := p.sick && d.chance(0.5) // the preferred one can't hold the lock
	for slot := range p.leases {
		p.handover = append(p.handover, p.handovers && (spurns || d.chance(0.7)))
		p.keepOnReturn = append(p.keepOnReturn, !p.handovers || !givenUp || d.chance(0.3)) // only handovers' terms may end with nothing wrong
		rank := 0
		if p.handovers && ranked {
			rank = pick(&d, 0, 0, 4, 9)
		}
		if p.handovers && spurns && slot > 0 {
			rank = table.MaxRank
		}
		p.rank = append(p.rank, rank)
	}
	if !p.handovers {
		return
	}
	p.hunts = d.chance(0.5)
	for _, kind := range handoverFaults {
		if d.chance(0.7) {
			p.driver[kind] = 1 + d.below(3)
		}
	}
}

var rpcSteps = []string{"announce", "succeed", "ask", "asked", "observe", "lease-record", "claim's read", "claim", "confirm's read", "confirm", "withdraw", "heartbeat", "release", "fenced write"}

// options returns the options of the Lock in a slot.
func (p *plan) options(slot int, id string) []spindle.Option {
	opts := []spindle.Option{options.Join(p.member(slot, id)...), spindle.WithLockDelay(p.lockDelay)}
	if n := table.MaxRank - p.rank[slot]; n < table.MaxRank {
		opts = append(opts, spindle.WithPriority(n))
	}
	if p.poll > 0 {
		opts = append(opts, spindle.WithPoll(time.Duration(p.poll*float64(p.leases[slot]))))
	}
	return opts
}

// stall returns the option for work that hangs, whose steps take at most so long otherwise.
func (p *plan) stall(step time.Duration) spindle.CommonOption {
	if p.hang == 0 {
		return spindle.Options()
	}
	return spindle.WithStall(step * 4 / 3)
}

// member returns those that are for a member of a group, too.
func (p *plan) member(slot int, id string) []group.Option {
	lease := p.leases[slot]
	opts := []group.Option{spindle.WithID(id), spindle.WithLease(lease), spindle.WithValue("http://" + id)}
	if p.reclaim {
		opts = append(opts, spindle.WithReclaim())
	}
	if p.heartbeat > 0 {
		opts = append(opts, spindle.WithHeartbeat(time.Duration(p.heartbeat*float64(lease))))
	}
	if p.handover[slot] {
		opts = append(opts, spindle.WithHandover())
	}
	return opts
}
