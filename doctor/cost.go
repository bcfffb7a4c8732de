package doctor

import (
	"fmt"
	"slices"
	"time"
)

// RoundTrip summarizes how long N requests of one kind took. The requests were sent one after another.
type RoundTrip struct {
	P50 time.Duration `json:"p50_ns"`
	P99 time.Duration `json:"p99_ns"`
	N   int           `json:"n"`
}

func (r RoundTrip) String() string {
	return fmt.Sprintf("p50 %v, p99 %v of %d", round(r.P50), round(r.P99), r.N)
}

func roundTripOf(took []time.Duration) RoundTrip {
	slices.Sort(took)
	at := func(percent int) time.Duration { return took[(len(took)-1)*percent/100] }
	if len(took) < 100 {
		return RoundTrip{P50: at(50), P99: took[len(took)-1], N: len(took)}
	}
	return RoundTrip{P50: at(50), P99: at(99), N: len(took)}
}

// RoundTrips has the round trips for each kind of request that locks make.
type RoundTrips struct {
	Read        RoundTrip `json:"read"`        // an observation
	Commit      RoundTrip `json:"commit"`      // a heartbeat, which is a blind commit
	Transaction RoundTrip `json:"transaction"` // a claim or a confirmation, which is a read and a commit
}

// Lease returns the shortest lease that the measured round trips allow, which is ten times the duration of an election.
// An election consists of an observation, a claim and a confirmation. Lease assumes that each of them is as slow as the
// slowest one measured.
//
// With this lease, a takeover takes at most 10 % longer than the lease itself. A heartbeat, which is sent every third
// of the lease, may take six times as long as the slowest one measured, and still leave time for a retry.
//
// The result takes only the database into account. Also make the lease longer than any pause that the process should
// survive, and longer than a failover of the database, which takes seconds.
func (r RoundTrips) Lease() time.Duration {
	const step = 100 * time.Millisecond // the shortest lease that locks accept
	election := r.Read.P99 + 2*r.Transaction.P99
	heartbeat := r.Commit.P99
	return (10*max(election, heartbeat) + step - 1) / step * step
}

const (
	defaultLease  = 10 * time.Second
	commitsALease = 3.0 // heartbeats, at the default interval
	readsALease   = 3.1 // observations by one waiting candidate; the extra tenth is jitter
	month         = 30 * 24 * time.Hour
)

// Cost is the number of requests that one lock makes in 30 days with a given lease, if the holder stays the same. It
// contains no prices, because Spanner charges for provisioned capacity and not for requests.
type Cost struct {
	Lease   time.Duration `json:"lease_ns"`
	Commits int64         `json:"commits_a_month"` // by the holder
	Reads   int64         `json:"reads_a_month"`   // by each waiting candidate
}

// Price returns the monthly price of a lock that has a holder and one waiting candidate. The arguments are the caller's
// own prices for a million commits and for a million reads.
func (c Cost) Price(millionCommits, millionReads float64) float64 {
	return float64(c.Commits)/1e6*millionCommits + float64(c.Reads)/1e6*millionReads
}

// CostAt returns the measured cost of a lock at the given lease, which must be positive.
func CostAt(lease time.Duration) Cost {
	leases := float64(month) / float64(lease)
	return Cost{Lease: lease, Commits: int64(leases * commitsALease), Reads: int64(leases * readsALease)}
}

func (r RoundTrips) costs() []Cost {
	costs := []Cost{CostAt(r.Lease())}
	if r.Lease() != defaultLease {
		costs = append(costs, CostAt(defaultLease))
	}
	return costs
}

func round(d time.Duration) time.Duration {
	switch {
	case d.Abs() >= time.Second:
		return d.Round(10 * time.Millisecond)
	case d.Abs() >= 10*time.Millisecond:
		return d.Round(100 * time.Microsecond)
	}
	return d.Round(time.Microsecond)
}
