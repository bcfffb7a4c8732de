package doctor

import (
	"fmt"
	"slices"
	"time"
)

// RoundTrip is how long requests of one kind took. The requests were sent one after another.
type RoundTrip struct {
	P50 time.Duration `json:"p50_ns"` // the median, in nanoseconds
	P99 time.Duration `json:"p99_ns"` // the 99th percentile, in nanoseconds
	N   int           `json:"n"`      // how many requests there were
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

func round(d time.Duration) time.Duration {
	switch {
	case d.Abs() >= time.Second:
		return d.Round(10 * time.Millisecond)
	case d.Abs() >= 10*time.Millisecond:
		return d.Round(100 * time.Microsecond)
	}
	return d.Round(time.Microsecond)
}
