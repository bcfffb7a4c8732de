package doctor

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

func TestTheLeaseIsTenElectionsAndNoShorterThanTheShortestThereIs(t *testing.T) {
	far := RoundTrips{Read: RoundTrip{P99: 20 * time.Millisecond}, Commit: RoundTrip{P99: 60 * time.Millisecond}, Transaction: RoundTrip{P99: 101 * time.Millisecond}}
	assert.Equal(t, 2300*time.Millisecond, far.Lease(), "2.22 s, in steps of 100 ms")
	near := RoundTrips{Read: RoundTrip{P99: time.Millisecond}, Transaction: RoundTrip{P99: 2 * time.Millisecond}}
	assert.Equal(t, 100*time.Millisecond, near.Lease())
	slowCommits := RoundTrips{Commit: RoundTrip{P99: time.Second}}
	assert.Equal(t, 10*time.Second, slowCommits.Lease())
}

// The round trips blur what is known of the rate of the clock, and never lead to a wrong verdict.
func TestTheDriftIsKnownAsExactlyAsTheRoundTripsAllow(t *testing.T) {
	start := time.Unix(1763645616, 0)
	at := func(local, spanner, trip time.Duration) sample {
		return sample{sent: start.Add(local), received: start.Add(local + trip), at: start.Add(time.Hour + spanner)}
	}
	c := drift(at(0, 0, 0), at(10*time.Second, 10*time.Second, 0))
	assert.Zero(t, c.Drift)
	assert.Zero(t, c.Within)
	assert.Equal(t, time.Hour, c.Offset)
	c = drift(at(0, 0, 0), at(10*time.Second, 10500*time.Millisecond, 0))
	assert.InDelta(t, 0.05, c.Drift, 1e-9)
	for _, early := range []time.Duration{0, 100 * time.Millisecond} {
		c = drift(at(0, early, 100*time.Millisecond), at(10*time.Second, 10*time.Second+100*time.Millisecond-early, 100*time.Millisecond))
		assert.LessOrEqual(t, c.Drift-c.Within, 1e-9, "the clocks may agree")
		assert.GreaterOrEqual(t, c.Drift+c.Within, -1e-9, "the clocks may agree")
		assert.InDelta(t, 0.01, c.Within, 0.001)
	}
}
