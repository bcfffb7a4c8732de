package model

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

// Whatever reads take, the pause is never shorter than what the user asked for, nor longer than the limit or, if that is
// longer, what the user asked for. It grows only if two reads in a row were slow, and then keeps reads to their share of the time.
func TestThePauseBetweenReadsKeepsItsBounds(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 0))
	took := []time.Duration{0, time.Millisecond, 100 * time.Millisecond, 100*time.Millisecond + 1, 200 * time.Millisecond, time.Second, 3 * time.Second, 7 * time.Second, time.Hour}
	for range 2000 {
		every := []time.Duration{10 * time.Millisecond, time.Second, 5 * time.Second, 2 * time.Minute}[random.IntN(4)]
		p := Pace{Every: every, Longest: time.Minute, Share: 10}
		assert.Equal(t, every, p.Next(), "before the first read")
		last := time.Duration(0)
		for range 20 {
			d := took[random.IntN(len(took))]
			want := every
			if random.IntN(4) == 0 {
				p.Failed(d)
				if d > every {
					want = max(every, min(d, time.Minute))
				}
			} else {
				p.Took(d)
				if d > 100*time.Millisecond && last > 100*time.Millisecond {
					want = max(every, min(9*min(d, last), time.Minute))
				}
				last = d
			}
			assert.Equal(t, want, p.Pause)
			assert.Equal(t, want+last, p.Next(), "a page takes it for stale only after this")
		}
	}
}
