package doctor

import (
	"fmt"
	"slices"
	"time"
)

// RoundTrip is how long N requests of one kind took, sent one after the other.
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

// RoundTrips has the round trips of each kind of request that locks make.
type RoundTrips struct {
	Read        RoundTrip `json:"read"`        // an observation
	Commit      RoundTrip `json:"commit"`      // a heartbeat: a blind commit
	Transaction RoundTrip `json:"transaction"` // a claim or a confirmation: a read and a commit
}

// Lease returns the shortest lease that the round trips allow: ten elections, each an observation, a claim and a
// confirmation, all as slow as the slowest ones seen.
//
// So a takeover takes at most a tenth of the lease longer than the lease itself. A heartbeat, sent every third of a
// lease, is less work than an election. It may take six times as long as the slowest one seen and still leave time for
// another. This is about the database alone: a lease must also be longer than the pauses of the process that you want
// to survive, and than a failover of the database, which take seconds.
func (r RoundTrips) Lease() time.Duration {
	const step = 100 * time.Millisecond // the shortest lease that there is
	election := r.Read.P99 + 2*r.Transaction.P99
	heartbeat := r.Commit.P99
	return (10*max(election, heartbeat) + step - 1) / step * step
}

const (
	defaultLease  = 10 * time.Second
	commitsALease = 3.0 // heartbeats, at the default interval
	readsALease   = 3.1 // observations of one waiting candidate; the tenth is jitter
	month         = 30 * 24 * time.Hour
)

// Cost is what one lock costs at a lease, in 30 days in which it does not change hands. Spanner charges for what is
// provisioned, not for requests. A request's share of that depends on the instance, so the report has no prices.
type Cost struct {
	Lease   time.Duration `json:"lease_ns"`
	Commits int64         `json:"commits_a_month"` // of the holder
	Reads   int64         `json:"reads_a_month"`   // of each other candidate
}

// Price returns what the lock costs a month with one candidate beside the holder, for your price of a million commits
// and of a million reads.
func (c Cost) Price(millionCommits, millionReads float64) float64 {
	return float64(c.Commits)/1e6*millionCommits + float64(c.Reads)/1e6*millionReads
}

// CostAt returns the measured cost of a lock at a lease. The lease must be positive.
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
