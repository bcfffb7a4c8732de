package simulation

import (
	"math"
	"time"
)

// dice is a splitmix64 generator. Its state is only a few bytes, so each decision can have its own generator.
type dice uint64

// seeded mixes the parts of a seed.
func seeded(parts ...uint64) dice {
	var d dice
	for _, p := range parts {
		d = dice(uint64(d) ^ p)
		d = dice(d.next())
	}
	return d
}

func (d *dice) next() uint64 {
	*d += 0x9e3779b97f4a7c15
	z := uint64(*d)
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}

func (d *dice) float() float64 { return float64(d.next()>>11) / (1 << 53) }

func (d *dice) chance(p float64) bool { return d.float() < p }

func (d *dice) below(n int) int { return int(d.next() % uint64(n)) }

// between is uniform. spread is equally likely to be short or long, that is, of the order of lo or of hi.
func (d *dice) between(lo, hi time.Duration) time.Duration {
	return lo + time.Duration(d.float()*float64(hi-lo))
}

func (d *dice) spread(lo, hi time.Duration) time.Duration {
	return time.Duration(float64(lo) * math.Exp(d.float()*math.Log(float64(hi)/float64(lo))))
}

func pick[T any](d *dice, from ...T) T { return from[d.below(len(from))] }
