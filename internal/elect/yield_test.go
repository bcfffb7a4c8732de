package elect

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/spindle-lock/spindle/internal/table"
)

// A candidate leaves its locks to others until the last of its pauses is over. When another candidate holds a lock, only the cool-down
// of a yield ends, and a preference was in vain until somebody of higher priority has kept the lock.
func TestACandidateRestsUntilTheLastOfItsPausesIsOver(t *testing.T) {
	for seed := range 300 {
		random := rand.New(rand.NewPCG(uint64(seed), 5))
		clock := &stillClock{now: Instant{Wall: 1, Mono: 1}}
		c := candidate("me", nil, "a", "b")
		c.Clock, c.LeaseRecord.Rank, c.past = clock, 3, past{own: tokenOne, names: []string{heldBy(tokenOne, 0, nil).Name}}
		var now, cool, rest time.Duration // how long it has run, and until when it leaves all locks alone
		yielded, spurned, holdOff := false, false, map[string]time.Duration{}
		if random.IntN(2) == 0 {
			c.HoldOff = func(name string) time.Duration { return holdOff[name] }
		}
		for n := range 40 {
			length := time.Duration(random.Int64N(int64(2 * lease)))
			what := random.IntN(8)
			switch what {
			case 0:
				asked := []table.Request{"", table.ByOperator, table.ByPreference}[random.IntN(3)]
				c.Yield(true, asked)
				cool, yielded, spurned = now+lease/3, true, asked == table.ByPreference
			case 1:
				c.Yield(false, "")
				cool, yielded, spurned = now+lease, true, false
			case 2:
				c.cool(length)
				cool, yielded = now+length, false
			case 3:
				c.Rest(length)
				rest = now + length
			case 4:
				holdOff["a"], holdOff["b"] = length, time.Duration(random.Int64N(int64(2*lease)))
			case 5, 6: // another candidate holds a lock
				ago := time.Duration(random.Int64N(int64(lease))) // the last heartbeat
				o := heldBy(table.TokenAt(origin.Add(-length*2)), ago, &table.LeaseRecord{Lease: lease, Rank: random.IntN(6)})
				c.recognise(o)
				if yielded {
					cool, yielded = 0, false
				}
				if o.LeaseRecord.Rank < 3 && 2*length-ago >= 3*lease {
					spurned = false
				}
			case 7: // none does: it is its own last term, a bare claim, or released
				c.recognise([]table.Observation{heldBy(tokenOne, 0, nil), bareClaim(0), released()}[random.IntN(3)])
			}
			for _, name := range c.Names {
				want := max(cool-now, rest-now, 0)
				if c.HoldOff != nil {
					want = max(want, holdOff[name])
				}
				assert.Equal(t, want, max(c.restsFor(name), 0), fmt.Sprintf("seed %d, step %d, %d, lock %s", seed, n, what, name))
			}
			assert.Equal(t, spurned, c.preference.spurned)
			pause := time.Duration(random.Int64N(int64(lease / 4)))
			now += pause
			clock.now.Wall += int64(pause)
			if random.IntN(2) == 0 { // otherwise the machine was suspended
				clock.now.Mono += int64(pause)
			}
		}
	}
}
