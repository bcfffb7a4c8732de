package doctor

import (
	"fmt"
	"slices"
	"time"
)

// RoundTrip summarizes how long N requests of one kind took. The requests were sent one after the other.
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

// Lease returns the shortest lease that the measured round trips allow. It is ten times as long as an election, which
// is an observation, a claim and a confirmation, each as slow as the slowest one measured.
//
// With this lease, a takeover lasts at most a tenth longer than the lease itself. A heartbeat is sent every third of
// the lease and is less work than an election. It can take six times as long as the slowest one measured, and still
// leave time for another attempt. The result accounts only for the database. A lease must also be longer than any pause
// of the process that it should survive, and longer than a failover of the database, which takes seconds.
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

// Cost is the number of requests that one lock costs at a given lease in 30 days, if its holder does not change.
// Spanner charges for provisioned capacity and not for requests. What a request costs depends on the instance, so the
// report contains no prices.
type Cost struct {
	Lease   time.Duration `json:"lease_ns"`
	Commits int64         `json:"commits_a_month"` // by the holder
	Reads   int64         `json:"reads_a_month"`   // by each waiting candidate
}

// Price returns the monthly price of the lock with one candidate in addition to the holder, given your price for a
// million commits and for a million reads.
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
