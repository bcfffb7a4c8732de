package agent

import (
	"fmt"
	"hash/fnv"
	"math"
	"math/rand/v2"
	"time"
)

// dice are the random choices of one decision. They depend on the seed and on what the decision is about, but not on the
// order in which goroutines make their decisions.
type dice struct{ *rand.Rand }

func diceOf(seed uint64, about ...any) dice {
	h := fnv.New64a()
	_, _ = fmt.Fprint(h, about...)
	return dice{rand.New(rand.NewPCG(seed, h.Sum64()))}
}

func (d dice) chance(p float64) bool { return d.Float64() < p }

// between is uniform. spread is equally likely to be short or long, that is, of the order of lo or of hi.
func (d dice) between(lo, hi time.Duration) time.Duration {
	return lo + time.Duration(d.Float64()*float64(hi-lo))
}

func (d dice) spread(lo, hi time.Duration) time.Duration {
	return time.Duration(float64(lo) * math.Exp(d.Float64()*math.Log(float64(hi)/float64(lo))))
}

func pick[T any](d dice, from ...T) T { return from[d.IntN(len(from))] }
