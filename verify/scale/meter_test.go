package scale

import (
	"context"
	"fmt"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/spindle-lock/spindle/internal/table"
	"github.com/spindle-lock/spindle/internal/testkit/memstore"
)

// meter is a table that counts the requests of all processes by step, and the writes to each row.
type meter struct {
	*memstore.Locking

	mu     sync.Mutex
	steps  map[string]int
	writes map[string]int // by row
}

// newMeter returns a meter of a table whose commits and reads take as long as in one region.
func newMeter() *meter {
	m := &meter{Locking: memstore.NewLocking(&memstore.Store{})}
	m.reset()
	return m
}

// overRegions returns a meter of a table in an instance over several regions: a read at the leader's region takes 60 ms,
// and a commit 100 ms.
func overRegions() *meter {
	m := newMeter()
	m.OneWay, m.Paxos = 30*time.Millisecond, 40*time.Millisecond
	return m
}

func (m *meter) reset() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.steps, m.writes = map[string]int{}, map[string]int{}
}

func (m *meter) note(step string, writes []table.Write) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.steps[step]++
	rows := map[string]bool{}
	for _, w := range writes {
		rows[w.Name] = true
	}
	for name := range rows {
		m.writes[name]++
	}
}

// Read implements table.Store.
func (m *meter) Read(ctx context.Context, step string, bound table.Bound, keys table.Keys) ([]table.Row, time.Time, error) {
	m.note(step, nil)
	return m.Locking.Read(ctx, step, bound, keys)
}

// Commit implements table.Store.
func (m *meter) Commit(ctx context.Context, step string, writes []table.Write) error {
	m.note(step, writes)
	return m.Locking.Commit(ctx, step, writes)
}

// Transact implements table.Store.
func (m *meter) Transact(ctx context.Context, step string, fn func(context.Context, table.Reader) ([]table.Write, error)) (time.Time, error) {
	return m.Locking.Transact(ctx, step, func(ctx context.Context, r table.Reader) ([]table.Write, error) {
		writes, err := fn(ctx, r)
		m.note(step, writes)
		return writes, err
	})
}

// rate is a number of requests a second.
type rate float64

func (r rate) String() string { return fmt.Sprintf("%.3g/s", float64(r)) }

var digits = regexp.MustCompile(`\d+`)

// over lets time pass, and returns how many requests all processes sent in each lease, and a description of what the load
// cost. It names the row that is written most often, with N for each number in its key.
func (m *meter) over(d time.Duration) (perLease float64, costs string) {
	m.reset()
	time.Sleep(d)
	m.mu.Lock()
	defer m.mu.Unlock()
	all, steps := 0, []string(nil)
	for step, n := range m.steps {
		all += n
		steps = append(steps, fmt.Sprint(step, " ", rate(float64(n)/d.Seconds())))
	}
	slices.Sort(steps)
	row, most := "", 0
	for name, n := range m.writes {
		if n > most || n == most && name < row {
			row, most = name, n
		}
	}
	return float64(all) * float64(lease) / float64(d), fmt.Sprintf("%v (%s); hottest row %s: %v of the writes to %d rows", rate(float64(all)/d.Seconds()),
		strings.Join(steps, ", "), digits.ReplaceAllString(row, "N"), rate(float64(most)/d.Seconds()), len(m.writes))
}

// memory returns the bytes that each of n processes adds to what was in use before them.
func memory(t *testing.T, n int, start func()) (each int) {
	t.Helper()
	used := func() int {
		runtime.GC()
		var s runtime.MemStats
		runtime.ReadMemStats(&s)
		return int(s.HeapAlloc + s.StackInuse)
	}
	before := used()
	start()
	return (used() - before) / n
}
