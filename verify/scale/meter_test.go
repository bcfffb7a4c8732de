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
	since  time.Time
	steps  map[string]int
	writes map[string]int // by row
	reads  map[string]int // by key or first key of a range
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
	m.since, m.steps, m.writes, m.reads = time.Now(), map[string]int{}, map[string]int{}, map[string]int{}
}

func (m *meter) note(step string, f func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.steps[step]++
	f()
}

func (m *meter) noteReads(keys table.Keys) {
	for _, name := range keys.Names {
		m.reads[name]++
	}
	for _, r := range keys.Ranges {
		m.reads[r.From]++
	}
}

func (m *meter) noteWrites(writes []table.Write) {
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
	m.note(step, func() { m.noteReads(keys) })
	return m.Locking.Read(ctx, step, bound, keys)
}

// Commit implements table.Store.
func (m *meter) Commit(ctx context.Context, step string, writes []table.Write) error {
	m.note(step, func() { m.noteWrites(writes) })
	return m.Locking.Commit(ctx, step, writes)
}

// Transact implements table.Store.
func (m *meter) Transact(ctx context.Context, step string, fn func(context.Context, table.Reader) ([]table.Write, error)) (time.Time, error) {
	return m.Locking.Transact(ctx, step, func(ctx context.Context, r table.Reader) ([]table.Write, error) {
		writes, err := fn(ctx, r)
		m.note(step, func() { m.noteWrites(writes) })
		return writes, err
	})
}

// rate is a number of requests a second.
type rate float64

func (r rate) String() string { return fmt.Sprintf("%.3g/s", float64(r)) }

// rates returns the requests a second by step since the last reset, and their sum.
func (m *meter) rates() (all rate, by map[string]rate) {
	m.mu.Lock()
	defer m.mu.Unlock()
	by = map[string]rate{}
	for step, n := range m.steps {
		by[step] = rate(float64(n) / time.Since(m.since).Seconds())
		all += by[step]
	}
	return all, by
}

var digits = regexp.MustCompile(`\d+`)

// hottest returns the row that is written most often, how often, and how many rows are written at all. Numbers in the
// row's key are shown as N.
func (m *meter) hottest() (row string, writes rate, rows int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	most := 0
	for name, n := range m.writes {
		if n > most || n == most && name < row {
			row, most = name, n
		}
	}
	return digits.ReplaceAllString(row, "N"), rate(float64(most) / time.Since(m.since).Seconds()), len(m.writes)
}

// costs describes what the load has cost since the last reset.
func (m *meter) costs() string {
	all, by := m.rates()
	var steps []string
	for step, r := range by {
		steps = append(steps, fmt.Sprint(step, " ", r))
	}
	slices.Sort(steps)
	row, writes, rows := m.hottest()
	return fmt.Sprintf("%v (%s); hottest row %s: %v of the writes to %d rows", all, strings.Join(steps, ", "), row, writes, rows)
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
