package batch

import (
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
)

// Each request is sent once, together with others that came before or after it, and in time, whatever is in progress meanwhile. A heartbeat
// that is lost or late costs a lease.
func TestEachRequestIsSentOnceAndInTime(t *testing.T) {
	for seed := range uint64(200) {
		synctest.Test(t, func(t *testing.T) {
			const n = 40
			r, began := rand.New(rand.NewPCG(seed, 8)), time.Now()
			var g gathering[int]
			var mu sync.Mutex
			sent, latest, takes := map[int]int{}, [n]time.Duration{}, [n]time.Duration{}
			send := func(all []int) {
				at := time.Since(began)
				time.Sleep(takes[all[0]] / 2) // others come before it has read them
				mu.Lock()
				for _, i := range all {
					sent[i]++
					assert.LessOrEqual(t, at, latest[i], "seed %d: request %d", seed, i)
				}
				mu.Unlock()
				time.Sleep(takes[all[0]] / 2)
			}
			promptly := seed%2 == 0 // as polls, or else as heartbeats
			for i := range n {
				window, busy := time.Duration(1+r.IntN(5))*time.Millisecond, time.Duration(r.IntN(100))*time.Millisecond
				mu.Lock()
				latest[i], takes[i] = time.Since(began)+window, time.Duration(r.IntN(30))*time.Millisecond
				if promptly {
					g.addPromptly(i, window, send)
				} else {
					latest[i] = max(latest[i], time.Since(began)+busy)
					g.add(i, window, busy, send)
				}
				mu.Unlock()
				time.Sleep(time.Duration(r.IntN(3)*r.IntN(20)) * time.Millisecond)
			}
			time.Sleep(time.Second)
			mu.Lock()
			defer mu.Unlock()
			for i := range n {
				assert.Equal(t, 1, sent[i], "seed %d: request %d", seed, i)
			}
		})
	}
}
