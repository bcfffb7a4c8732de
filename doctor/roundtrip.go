package doctor

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/spindle-lock/spindle/internal/table"
)

// RoundTrip is a summary of how long requests of one kind took, sent one after another.
type RoundTrip struct {
	P50 time.Duration `json:"p50_ns"` // the median, in nanoseconds
	P99 time.Duration `json:"p99_ns"` // the 99th percentile, or the slowest of fewer than 100 requests, in nanoseconds
	N   int           `json:"n"`      // how many requests there were
}

func (r RoundTrip) String() string {
	return fmt.Sprintf("p50 %v, p99 %v of %d", round(r.P50), round(r.P99), r.N)
}

func roundTripOf(took []time.Duration) RoundTrip {
	slices.Sort(took)
	n := len(took)
	slowest := n - 1
	if n >= 100 {
		slowest = (n - 1) * 99 / 100
	}
	return RoundTrip{P50: took[(n-1)/2], P99: took[slowest], N: n}
}

// RoundTrips contains the measurements for each kind of request that locks make.
type RoundTrips struct {
	Read        RoundTrip `json:"read"`        // an observation
	Commit      RoundTrip `json:"commit"`      // a heartbeat, which is a blind commit
	Transaction RoundTrip `json:"transaction"` // a claim or a confirmation, which is a read and a commit
}

// Lease returns the shortest lease that the measured round trips allow. This is ten times the duration of an election,
// or ten times the duration of a heartbeat if that is longer, rounded up to a multiple of 100 ms. An election consists
// of an observation, a claim and a confirmation. For each of these, and for a heartbeat, Lease uses P99.
//
// With this lease, an election that is no slower than measured takes at most a tenth of the lease. By default, a holder
// sends three heartbeats per lease. If one of them is not answered, at least a third of the lease is left for the next.
// That is more than three times the P99 of a heartbeat.
//
// The result takes only the database into account. Choose a lease that is also clearly longer than any pause during
// which a process should keep its lock, and longer than a failover of the database, which takes seconds.
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

const (
	trips     = 30
	tripsTime = 10 * time.Second // the time after which to stop early on a slow network
	enough    = 5
)

// measure measures the round trips of each kind of request.
func measure(e *exam) string {
	name := e.base + "/round-trips"
	e.insert(name, "")
	keys := table.Keys{Names: []string{name}}
	beat := []table.Write{{Kind: table.Update, Name: name, Set: now(table.ColHeartbeat)}}
	kinds := []func() error{
		func() error { _, _, err := e.Read(e.ctx, "doctor-read", table.Present, keys); return err },
		func() error { return e.Commit(e.ctx, "doctor", beat) },
		func() error {
			_, err := e.Transact(e.ctx, "doctor", func(ctx context.Context, r table.Reader) ([]table.Write, error) {
				_, err := r.Read(ctx, keys)
				return beat, err
			})
			return err
		},
	}
	took := make([][]time.Duration, len(kinds))
	for start := time.Now(); len(took[0]) < trips && (len(took[0]) < enough || time.Since(start) < tripsTime); {
		for i, do := range kinds {
			sent := time.Now()
			if err := do(); !overrun(err) {
				must(err)
			}
			took[i] = append(took[i], time.Since(sent))
		}
	}
	r := &RoundTrips{roundTripOf(took[0]), roundTripOf(took[1]), roundTripOf(took[2])}
	e.roundTrips = r
	return fmt.Sprintf("read: %v; commit: %v; transaction: %v; shortest possible lease: %v", r.Read, r.Commit, r.Transaction, r.Lease())
}
