package mutex

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// BenchmarkAlone measures how long it takes to lock and unlock a mutex that only one process uses. Calls of the two
// systems alternate, so that both are measured under the same conditions.
func BenchmarkAlone(b *testing.B) {
	const turns = 300
	var took [2][]time.Duration
	var rpcs [2]float64
	var cycles [2]func() time.Duration
	var clients [2]*client
	for i, system := range systems {
		clients[i] = mustConnect(b, system.start(b))
		m, err := clients[i].mutex("alone")
		require.NoError(b, err)
		cycles[i] = func() time.Duration {
			start := time.Now()
			require.NoError(b, m.Lock(context.Background()))
			require.NoError(b, m.Unlock(context.Background()))
			return time.Since(start)
		}
		for range 10 { // create the connections and the lock's rows
			cycles[i]()
		}
		rpcs[i] = -float64(clients[i].rpcs.Load())
	}
	for range turns {
		for i, cycle := range cycles {
			took[i] = append(took[i], cycle())
		}
	}
	for i, system := range systems {
		rpcs[i] = (rpcs[i] + float64(clients[i].rpcs.Load())) / turns
		median := quantile(took[i], 0.5)
		b.Logf("%-8s Lock and Unlock %6.2f ms (median), p95 %6.2f ms, %.2f RPCs", system.name, ms(median), ms(quantile(took[i], 0.95)), rpcs[i])
		b.ReportMetric(ms(median), system.name+"-ms")
	}
	b.ReportMetric(float64(quantile(took[0], 0.5))/float64(quantile(took[1], 0.5)), "times-etcd")
	b.ReportMetric(rpcs[0], "rpcs")
	b.ReportMetric(0, "ns/op")
	assert.InDelta(b, 3, rpcs[0], 0.1, "RPCs of spindle")
}

// BenchmarkTenLong and BenchmarkTenShort run ten processes that lock, hold and unlock one mutex.
func BenchmarkTenLong(b *testing.B)  { ten(b, 500*time.Millisecond, 40*time.Second, 1) }
func BenchmarkTenShort(b *testing.B) { ten(b, 20*time.Millisecond, 20*time.Second, 2) }

func ten(b *testing.B, hold, during time.Duration, apart int) {
	for _, system := range systems {
		b.Run(system.name, func(b *testing.B) {
			w := work{Kind: "loop", Server: system.start(b), Goroutines: 1, Hold: hold, For: during}
			t := collect(b, startWorkers(b, slices.Repeat([]work{w}, 10)...))
			least, most, idle := slices.Min(t.of()), slices.Max(t.of()), t.idle()
			early := slices.Clone(idle[:(len(idle)+3)/4]) // while the emulator is still fast
			b.Logf("%-8s turns of a process %3d to %3d, longest wait %6.0f ms, %4.1f rounds, idle between turns %5.1f ms (median), p95 %5.1f ms; of the first quarter %5.1f ms, %5.1f ms",
				system.name, least, most, ms(t.waited()), t.longestWait(), ms(quantile(idle, 0.5)), ms(quantile(idle, 0.95)),
				ms(quantile(early, 0.5)), ms(quantile(early, 0.95)))
			b.ReportMetric(float64(least), "least-turns")
			b.ReportMetric(float64(most), "most-turns")
			b.ReportMetric(t.longestWait(), "longest-rounds")
			b.ReportMetric(ms(quantile(idle, 0.5)), "idle-ms")
			b.ReportMetric(ms(quantile(idle, 0.95)), "idle-p95-ms")
			b.ReportMetric(ms(quantile(early, 0.5)), "early-idle-ms")
			b.ReportMetric(ms(quantile(early, 0.95)), "early-idle-p95-ms")
			b.ReportMetric(0, "ns/op")
			assert.LessOrEqual(b, most-least, apart, "turns, most minus least")
			assert.LessOrEqual(b, t.longestWait(), 2.0, "longest wait, in rounds")
		})
	}
}

// BenchmarkCrowds runs three processes with 20 goroutines each, and a fourth process with a single goroutine. Spindle
// gives the lock to each process equally often. Etcd gives it to each goroutine equally often, because each goroutine
// has its own session.
func BenchmarkCrowds(b *testing.B) {
	for _, system := range systems {
		b.Run(system.name, func(b *testing.B) {
			one := work{Kind: "loop", Server: system.start(b), Goroutines: 1, Hold: 20 * time.Millisecond, For: 15 * time.Second}
			crowd := one
			crowd.Goroutines = 20
			t := collect(b, startWorkers(b, one, crowd, crowd, crowd))
			share := float64(t.of()[0]) / float64(len(t.held))
			b.Logf("%-8s turns of the one %3d, of the crowds %v: its share is %.3f", system.name, t.of()[0], t.of()[1:], share)
			b.ReportMetric(share, "share")
			b.ReportMetric(0, "ns/op")
			if system.name == "spindle" {
				assert.InDelta(b, 0.25, share, 0.025, "the share of the one")
			}
		})
	}
}

// BenchmarkTryAcquire makes ten simultaneous calls of TryAcquire while 100 slots are free, first from ten processes and
// then from one. Etcd has no semaphore to compare with.
func BenchmarkTryAcquire(b *testing.B) {
	const calls, rounds = 10, 5
	for _, processes := range []int{calls, 1} {
		b.Run(fmt.Sprintf("processes=%d", processes), func(b *testing.B) {
			w := work{Kind: "try", Server: startSpindle(b), Goroutines: calls / processes, Slots: 100}
			workers := startWorkers(b, slices.Repeat([]work{w}, processes)...)
			least := calls
			for round := range rounds {
				tell(b, workers, fmt.Sprint("slots-", round))
				got := 0
				for _, p := range workers {
					for range w.Goroutines {
						r := p.hear(b)
						assert.Empty(b, r.Error)
						if r.OK {
							got++
						}
					}
				}
				least = min(least, got)
			}
			b.Logf("%-8s of %d calls at once from %2d processes, at least %2d got a permit, in each of %d rounds", "spindle", calls, processes, least, rounds)
			b.ReportMetric(float64(least), "least-permits")
			b.ReportMetric(0, "ns/op")
			assert.Equal(b, calls, least)
		})
	}
}

// BenchmarkKilledWaiter measures how much longer a waiter waits if the waiter before it in the queue was killed.
// Spindle skips the killed waiter after a grace period of 200 ms and three round trips. With etcd, the killed waiter's
// session must expire first.
func BenchmarkKilledWaiter(b *testing.B) {
	for _, system := range systems {
		b.Run(system.name, func(b *testing.B) {
			s, rounds := system.start(b), 5
			if system.name == "etcd" {
				rounds = 1 // each takes ten seconds
			}
			var plain, after []time.Duration
			for round := range rounds {
				plain = append(plain, handover(b, s, fmt.Sprint("plain-", round), false))
				after = append(after, handover(b, s, fmt.Sprint("killed-", round), true))
			}
			longer := quantile(after, 0.5) - quantile(plain, 0.5)
			b.Logf("%-8s from Unlock to the next Lock %4.0f ms (median), after a kill %5.0f ms, at most %5.0f ms: %5.0f ms longer",
				system.name, ms(quantile(plain, 0.5)), ms(quantile(after, 0.5)), ms(quantile(after, 1)), ms(longer))
			b.ReportMetric(ms(longer), "longer-ms")
			b.ReportMetric(ms(quantile(after, 1)), "worst-ms")
			b.ReportMetric(0, "ns/op")
		})
	}
}

// handover returns the time from just before the holder's Unlock until a waiter gets the lock. If killed is set,
// another waiter is ahead in the queue, and is killed before the Unlock.
func handover(b *testing.B, s server, name string, killed bool) time.Duration {
	b.Helper()
	w := work{Kind: "step", Server: s}
	workers := startWorkers(b, w, w, w)
	holder, head, next := workers[0], workers[1], workers[2]
	defer holder.Kill()
	defer head.Kill()
	defer next.Kill()
	tell(b, []*worker{holder}, name)
	holder.hear(b)
	if killed {
		tell(b, []*worker{head}, name)
		time.Sleep(settle)
		head.Kill()
	}
	tell(b, []*worker{next}, name)
	time.Sleep(settle)
	tell(b, []*worker{holder}, "unlock")
	return time.Duration(next.hear(b).Got - holder.hear(b).Gave)
}

// settle is long enough for a process to join the queue. Neither system reports when a process has joined.
const settle = 500 * time.Millisecond
