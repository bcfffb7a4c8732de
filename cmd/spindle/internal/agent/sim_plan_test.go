package agent

import (
	"fmt"
	"strings"
	"time"
)

// plan describes a seed's hosts, programs and faults. A clock's rate is off by at most one percent, and no host is
// suspended in a run in which wall clocks are set back, as in the simulation of electors. Each kind of fault occurs only
// in some seeds, because a fault that always occurs together with all others could be hidden by them.
type plan struct {
	hosts    int
	roles    []role // of the programs
	longest  time.Duration
	operator bool // locks are released by hand; then there is one host, and its agent does not end (see barred.go)

	latency     time.Duration // of most requests and replies, at most
	uncertainty time.Duration // of Spanner's clock
	suspends    bool          // hosts are suspended and wall clocks are set forward; otherwise they are set to and fro
	slowest     float64       // of the clocks' rates
	fastest     float64

	chances
	driver map[string]int // weights of what the driver does
}

// chances are the probabilities of faults in one request to Spanner.
type chances struct{ lost, silent, slow, refused, again, abort float64 }

// role is what the programs of one slot do again and again.
type role struct {
	host   int
	kind   string
	path   string // of the request, without what is drawn for each turn
	lease  time.Duration
	fair   bool    // waiters get their turns in order
	floods bool    // it only floods its agent
	strays float64 // the chance that a tenure does not end with a release
}

// drivenFaults are what the driver does. Other faults happen to requests to Spanner, or are the programs' own.
var drivenFaults = []string{
	"program killed", "program dumps core", "program stopped", "program leaves a child with its socket",
	"agent killed", "agent stopped", "agent drained", "host suspended", "wall clock set",
	"descriptors run out", "network cut", "outage", "step down", "lock released by hand",
}

func drawPlan(d dice) plan {
	p := plan{hosts: 2 + d.IntN(2), latency: pick(d, 2*time.Millisecond, 10*time.Millisecond), slowest: 1, fastest: 1, driver: map[string]int{}}
	if p.operator = d.chance(0.2); p.operator {
		p.hosts = 1
	}
	p.drawRoles(d)
	p.uncertainty = pick(d, 0, 7*time.Millisecond)
	p.suspends = d.chance(0.5)
	if d.chance(0.7) {
		p.slowest, p.fastest = 0.99, 1.01
	}
	noisy := d.chance(0.7)
	for _, chance := range []*float64{&p.lost, &p.silent, &p.slow, &p.refused, &p.again, &p.abort} {
		if noisy && d.chance(0.5) {
			*chance = pick(d, 0.01, 0.03, 0.1)
		}
	}
	quiet := !noisy && d.chance(0.6) // agents are never disturbed
	for _, kind := range drivenFaults {
		if d.chance(0.6) && !(quiet && !strings.HasPrefix(kind, "program")) {
			p.driver[kind] = 1 + d.IntN(3)
		}
	}
	delete(p.driver, map[bool]string{true: "agent killed", false: "lock released by hand"}[p.operator])
	if p.operator {
		delete(p.driver, "agent drained")
		p.driver["lock released by hand"] = 3
	}
	if !p.suspends {
		delete(p.driver, "host suspended")
	}
	return p
}

func (p *plan) drawRoles(d dice) {
	base := pick(d, 500*time.Millisecond, time.Second, 3*time.Second)
	strays := pick(d, 0, 0.1, 0.4)
	mixed := d.chance(0.3)
	of := pick(d, locks, locks, "sets", elections, semaphores, onces)
	for i := range 3 + d.IntN(4) {
		r := role{host: i % p.hosts, kind: of, lease: base, strays: strays, fair: of == locks}
		if mixed {
			r.lease = time.Duration(float64(base) * pick(d, 1, 1.5, 3))
		}
		switch of {
		case locks:
			r.path = "/v1/locks?name=a"
		case "sets":
			r.kind, r.path = locks, "/v1/locks?name="+pick(d, "a&name=b", "b&name=c", "a&name=b&name=c", "a")
		case elections:
			r.path = "/v1/elections?name=a" + pick(d, "", "&handover=true", fmt.Sprint("&priority=", 8+d.IntN(2)))
		case semaphores:
			r.path = fmt.Sprint("/v1/semaphores?name=s&slots=", 2)
		case onces:
			r.path = "/v1/once?name=a"
		}
		p.roles = append(p.roles, r)
		p.longest = max(p.longest, r.lease)
	}
	if d.chance(0.3) {
		p.roles = append(p.roles, role{host: d.IntN(p.hosts), kind: locks, lease: base, floods: true})
	}
}
