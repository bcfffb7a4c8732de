package serve

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/spindle-lock/spindle/internal/table"
)

// metrics answers Prometheus. Series of locks are those of the last look. Once that is out of date they are left out,
// since they would be guesses.
type metrics struct {
	server   *Server
	registry *prometheus.Registry

	failures prometheus.Counter
	reads    prometheus.Histogram
	pages    prometheus.Gauge
	bytes    prometheus.Counter
}

func newMetrics(s *Server) *metrics {
	m := &metrics{
		server: s, registry: prometheus.NewRegistry(),
		failures: prometheus.NewCounter(prometheus.CounterOpts{Name: "spindle_table_read_failures_total", Help: "Reads of the table that failed."}),
		reads: prometheus.NewHistogram(prometheus.HistogramOpts{Name: "spindle_table_read_duration_seconds", Help: "How long successful reads of the table took.",
			Buckets: []float64{.005, .01, .02, .05, .1, .2, .5, 1, 2, 5, 10}}),
		pages: prometheus.NewGauge(prometheus.GaugeOpts{Name: "spindle_serve_pages", Help: "Pages that are open."}),
		bytes: prometheus.NewCounter(prometheus.CounterOpts{Name: "spindle_serve_page_bytes_total", Help: "Bytes that were sent to pages."}),
	}
	m.registry.MustRegister(m, m.failures, m.reads, m.pages, m.bytes, collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return m
}

func (m *metrics) looked(took time.Duration, err error) {
	if err != nil {
		m.failures.Inc()
		return
	}
	m.reads.Observe(took.Seconds())
}

var byLock = []string{"table", "lock"}

var (
	descUp         = describe("spindle_table_up", "1 if the table was read lately; else 0, and there are no series of locks.", "table")
	descLocks      = describe("spindle_table_locks", "Locks in the table, by state.", "table", "state")
	descHeld       = describe("spindle_lock_held", "1 if the lock has a holder.", byLock...)
	descState      = describe("spindle_lock_state", "1, for the state that the lock is in.", "table", "lock", "state")
	descHolder     = describe("spindle_lock_holder", "1, for the id of who holds the lock.", "table", "lock", "holder")
	descAge        = describe("spindle_lock_heartbeat_age_seconds", "How long ago the last heartbeat was, of locks that are held or expired.", byLock...)
	descLease      = describe("spindle_lock_lease_seconds", "How long the holder may be silent, of locks that are held or expired.", byLock...)
	descToken      = describe("spindle_lock_token", "The token of the term, of locks that are held or expired: when it began, in microseconds since 1970.", byLock...)
	descChanges    = describe("spindle_lock_changes_total", "Terms that began since this process was started.", byLock...)
	descJeopardies = describe("spindle_lock_jeopardies_total", "How often a holder was silent for two thirds of its lease.", byLock...)
	descDone       = describe("spindle_done_timestamp_seconds", "When what is done once under the lock was done last, in seconds since 1970.", byLock...)
	descWaiters    = describe("spindle_lock_waiters", "Processes that wait for the lock; of a semaphore, at its first slot only.", byLock...)
	descLongest    = describe("spindle_lock_longest_wait_seconds", "How long the first of them has waited, of locks that somebody waits for.", byLock...)
)

func describe(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc(name, help, labels, nil)
}

// Describe implements prometheus.Collector.
func (m *metrics) Describe(to chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{descUp, descLocks, descHeld, descState, descHolder, descAge, descLease, descToken, descChanges, descJeopardies, descDone,
		descWaiters, descLongest, descMembers, descPartitions, descNobody} {
		to <- d
	}
}

// Collect implements prometheus.Collector.
func (m *metrics) Collect(to chan<- prometheus.Metric) {
	for _, x := range m.collect() {
		to <- x
	}
}

// collect makes all series at once, so that a slow reader does not hold the lock.
func (m *metrics) collect() (all []prometheus.Metric) {
	s := m.server
	s.mu.Lock()
	defer s.mu.Unlock()
	add := func(d *prometheus.Desc, kind prometheus.ValueType, value float64, labels ...string) {
		all = append(all, prometheus.MustNewConstMetric(d, kind, value, append([]string{s.Table}, labels...)...))
	}
	gauge, counter := prometheus.GaugeValue, prometheus.CounterValue
	if s.looked.IsZero() || s.stale() != nil {
		add(descUp, gauge, 0)
		return all
	}
	add(descUp, gauge, 1)
	groups := map[string]*group{}
	count := noneInAnyState()
	for name, k := range s.history.locks {
		if k.Done.Key != "" {
			add(descDone, gauge, float64(k.Done.At.UnixMilli())/1000, name)
		}
		state := k.State()
		if state == table.Free && len(k.Waiters) == 0 {
			continue // it has no row any more
		}
		if n := len(k.Waiters); n > 0 || !k.IsPart() {
			add(descWaiters, gauge, float64(n), name)
		}
		if len(k.Waiters) > 0 {
			add(descLongest, gauge, k.LongestWait().Seconds(), name)
		}
		if state != table.Free { // nobody has claimed what somebody waits for
			count[state]++
		}
		if part, _ := table.PartOf(name); k.IsPart() && state != table.Free {
			if groups[part.Group] == nil {
				groups[part.Group] = newGroup()
			}
			groups[part.Group].add(part, k)
			if part.Partition != "" && !s.PartitionMetrics {
				continue
			}
		}
		held := 0.
		if k.IsHeld() {
			held = 1
			add(descHolder, gauge, 1, name, k.holder())
		}
		add(descHeld, gauge, held, name)
		add(descState, gauge, 1, name, string(state))
		add(descChanges, counter, float64(k.changes), name)
		add(descJeopardies, counter, float64(k.jeopardies), name)
		if k.IsHeld() || state == table.Expired {
			add(descAge, gauge, k.At.Sub(k.Heartbeat).Seconds(), name)
			add(descLease, gauge, k.Promise.Lease.Seconds(), name)
			add(descToken, gauge, float64(k.Token), name)
		}
	}
	for name, g := range groups {
		add(descMembers, gauge, float64(g.members), name)
		for state, n := range g.partitions {
			add(descPartitions, gauge, float64(n), name, string(state))
		}
		add(descNobody, gauge, float64(g.nobody), name)
	}
	for state, n := range count {
		add(descLocks, gauge, float64(n), string(state))
	}
	return all
}
