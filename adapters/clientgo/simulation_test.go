package clientgo

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/spindle-lock/spindle"
)

// Whatever the network does, and whenever electors are started, cancelled and asked to hand over, client-go's own
// terms never overlap, though nothing but client-go's clock ends its work here, and somebody leads again in the end.
func TestNoTwoLeadWhateverHappens(t *testing.T) {
	for seed := range uint64(20) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			inVirtualTime(t, func(w *world) {
				r := rand.New(rand.NewPCG(seed, 0))
				var all []*machine
				for _, id := range []string{"a", "b", "c", "d"} {
					m := w.machine(id, spindle.WithHandover()).unguarded()
					m.config.ReleaseOnCancel = r.IntN(2) == 0
					all = append(all, m.run())
				}
				for range 200 {
					time.Sleep(time.Duration(r.Int64N(int64(lease))))
					trouble(r, all[r.IntN(len(all))])
				}
				for _, m := range all {
					m.link.Mend()
				}
				w.until(5*lease, func() bool { return leader(all) != nil })
				assert.Greater(t, len(w.all()), 10)
			})
		})
	}
}

func trouble(r *rand.Rand, m *machine) {
	switch {
	case m.hasEnded():
		m.run()
	case r.IntN(3) == 0:
		m.link.Mend()
	case r.IntN(3) == 0:
		m.cancel()
	case r.IntN(3) == 0:
		m.link.Cut()
	case r.IntN(2) == 0:
		m.link.Lose(nil, func(string) bool { return true })
	default:
		go func() { _ = m.lock.Spindle().StepDown(m.w.t.Context()) }()
	}
}

func leader(all []*machine) *machine {
	for _, m := range all {
		if m.isLeading() {
			return m
		}
	}
	return nil
}
