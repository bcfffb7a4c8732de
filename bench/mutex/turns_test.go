package mutex

import (
	"cmp"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// turns contains the reports of all processes that use one lock. A turn is one period of holding the lock.
type turns struct {
	processes int
	held      []turn   // in order
	unserved  []report // waits that were still in progress when the benchmark ended
}

type turn struct {
	report
	by int
}

// collect starts the workers, and collects their reports until they end.
func collect(b *testing.B, workers []*worker) turns {
	b.Helper()
	t := turns{processes: len(workers)}
	tell(b, workers, "go")
	for i, p := range workers {
		for r := p.hear(b); !r.End; r = p.hear(b) {
			if r.Got == 0 {
				t.unserved = append(t.unserved, r)
			} else {
				t.held = append(t.held, turn{r, i})
			}
		}
	}
	slices.SortFunc(t.held, func(a, b turn) int { return cmp.Compare(a.Got, b.Got) })
	require.Greater(b, len(t.held), t.processes)
	require.Positive(b, slices.Min(t.idle()), "two processes held the lock at the same time")
	return t
}

// of returns the number of turns of each process.
func (t turns) of() []int {
	n := make([]int, t.processes)
	for _, h := range t.held {
		n[h.by]++
	}
	return n
}

// idle returns the times between two turns, from just before Unlock is called until the next call of Lock returns.
func (t turns) idle() []time.Duration {
	var all []time.Duration
	for i := 1; i < len(t.held); i++ {
		all = append(all, time.Duration(t.held[i].Got-t.held[i-1].Gave))
	}
	return all
}

// longestWait returns the longest wait of a process, in rounds. A round is one turn for every process. The length of a
// wait is the number of turns that began during the wait, including the turn of the waiting process itself.
func (t turns) longestWait() (rounds float64) {
	began := make([]int64, len(t.held))
	for i, h := range t.held {
		began[i] = h.Got
	}
	count := func(asked, until int64) {
		first, _ := slices.BinarySearch(began, asked)
		end, _ := slices.BinarySearch(began, until)
		rounds = max(rounds, float64(end-first)/float64(t.processes))
	}
	for _, h := range t.held {
		count(h.Asked, h.Got+1)
	}
	for _, r := range t.unserved {
		count(r.Asked, began[len(began)-1]+1)
	}
	return rounds
}

// waited returns the longest time that a process waited before it got the lock.
func (t turns) waited() (longest time.Duration) {
	for _, h := range t.held {
		longest = max(longest, time.Duration(h.Got-h.Asked))
	}
	return longest
}

// quantile returns the q-quantile. It sorts its argument.
func quantile(all []time.Duration, q float64) time.Duration {
	slices.Sort(all)
	return all[int(q*float64(len(all)-1)+0.5)]
}

func ms(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
