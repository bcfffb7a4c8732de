package elect

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/spindle-lock/spindle/internal/table"
)

// A caller gives up once a step was refused for a lease, or for 10 s if that is longer, and as often as that shows: a success, a gap or
// another step's refusals begin the time anew, outages and a suspended machine do not count. Giving up too early makes a short lapse
// of the credentials fatal, and too late hides a mistake.
func TestACallerGivesUpWhenAStepWasRefusedForSoLong(t *testing.T) {
	type refusal struct {
		step string
		at   time.Duration // by the monotonic clock
	}
	answers := []error{nil, context.DeadlineExceeded, errors.New("lost"), table.ErrChanged, errRefused, status.Error(codes.Unauthenticated, "no token"),
		status.Error(codes.Unauthenticated, "no token"), status.Error(codes.NotFound, "Table not found: locks"), table.ErrGroup}
	ends := map[bool]int{}
	for seed := range 2000 {
		random := rand.New(rand.NewPCG(uint64(seed), 4))
		clock := &stillClock{}
		own := []time.Duration{time.Second, 10 * time.Second, time.Minute}[random.IntN(3)]
		p := Patience{Clock: clock, Lease: own}
		limit := max(own, 10*time.Second)
		var refused []refusal // since the step's last success
		for n := range 30 {
			pause := []time.Duration{0, limit / 3, limit / 2, limit - 1, limit, 2 * limit, 2*limit + 1}[random.IntN(7)]
			clock.now.Mono += int64(pause)
			clock.now.Wall += int64(pause) + random.Int64N(int64(3*limit))
			step, err := []string{"observe", "claim"}[random.IntN(2)], answers[4+random.IntN(3)]
			if random.IntN(4) == 0 {
				err = answers[random.IntN(len(answers))]
			}
			if err == nil {
				p.Passed(step)
				var rest []refusal
				for _, r := range refused {
					if r.step != step {
						rest = append(rest, r)
					}
				}
				refused = rest
				continue
			}
			fault, now := table.FaultOf(err), time.Duration(clock.now.Mono)
			want := fault.Kind == table.Lasting || fault.Setup && n == 0
			if fault.Kind == table.Refusal && !want {
				refused = append(refused, refusal{step, now})
				first := now
				for i := len(refused) - 1; i >= 0; i-- {
					if r := refused[i]; r.step == step && first-r.at <= 2*limit {
						first = r.at
					} else if r.step == step {
						break
					}
				}
				want = now-first >= limit
			}
			ends[want]++
			if !assert.Equal(t, want, p.Ends(step, err), fmt.Sprintf("seed %d, call %d: %v", seed, n, err)) {
				return
			}
			if want {
				break
			}
		}
	}
	assert.Greater(t, ends[true], 500)
	assert.Greater(t, ends[false], 500)
}
