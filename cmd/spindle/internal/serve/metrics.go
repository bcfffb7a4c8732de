package serve

import (
	"slices"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/spindle-lock/spindle/cmd/spindle/internal/model"
	"github.com/spindle-lock/spindle/cmd/spindle/internal/terminal"
	"github.com/spindle-lock/spindle/internal/operator"
	"github.com/spindle-lock/spindle/internal/table"
)

// metrics exports metrics to Prometheus. The metrics of locks come from the last successful read of the table. If that
// read was too long ago, the metrics of locks are left out, because they would be out of date.
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
		failures: prometheus.NewCounter(prometheus.CounterOpts{Name: "spindle_table_read_failures_total", Help: "Failed reads of the table."}),
		reads: prometheus.NewHistogram(prometheus.HistogramOpts{Name: "spindle_table_read_duration_seconds", Help: "Duration of successful reads of the table.",
			Buckets: []float64{.005, .01, .02, .05, .1, .2, .5, 1, 2, 5, 10}}),
		pages: prometheus.NewGauge(prometheus.GaugeOpts{Name: "spindle_serve_pages", Help: "Open pages."}),
		bytes: prometheus.NewCounter(prometheus.CounterOpts{Name: "spindle_serve_page_bytes_total", Help: "Bytes sent to pages."}),
	}
	m.registry.MustRegister(m, m.failures, m.reads, m.pages, m.bytes, collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return m
}

var byLock = []string{"table", "lock"}

var (
	descUp         = describe("spindle_table_up", "1 if the table was read recently, else 0. While the value is 0, there are no metrics of locks.", "table")
	descLocks      = describe("spindle_table_locks", "Locks in the table, by state.", "table", "state")
	descAsOf       = describe("spindle_table_read_age_seconds", "Time since the start of the last successful read of the table.", "table")
	descPause      = describe("spindle_table_read_pause_seconds", "Pause between two reads of the table. It is longer if reads are slow.", "table")
	descExpected   = describe("spindle_lock_expected", "1 for each lock that should have a holder (--expect), even if it has no row.", byLock...)
	descKind       = describe("spindle_lock_kind", "Always 1. The label kind is elector, exec, guard, mutex or semaphore. Locks of groups, and locks of unknown kind, do not have this metric.", "table", "lock", "kind")
	descHeld       = describe("spindle_lock_held", "1 if the lock has a holder, else 0.", byLock...)
	descState      = describe("spindle_lock_state", "1 for the current state of the lock.", "table", "lock", "state")
	descHolder     = describe("spindle_lock_holder", "1 for the id of the lock's holder.", "table", "lock", "holder")
	descAge        = describe("spindle_lock_heartbeat_age_seconds", "Time since the last heartbeat, for locks that are held or expired.", byLock...)
	descLease      = describe("spindle_lock_lease_seconds", "Lease of the holder, for locks that are held or expired.", byLock...)
	descToken      = describe("spindle_lock_token", "Token of the term, for locks that are held or expired. It is the start of the term in microseconds since 1970.", byLock...)
	descChanges    = describe("spindle_lock_changes_total", "Terms that have begun since this process was started.", byLock...)
	descJeopardies = describe("spindle_lock_jeopardies_total", "Number of times that a holder sent no heartbeat for two thirds of its lease.", byLock...)
	descDone       = describe("spindle_done_timestamp_seconds", "When work was last done under the lock (by lock.Once, or by exec with --every, --cron or --once), in seconds since 1970.", byLock...)
	descWaiters    = describe("spindle_lock_waiters", "Processes that wait for the lock. Processes that wait for a semaphore are counted only at the first of its slots that has metrics.", byLock...)
	descLongest    = describe("spindle_lock_longest_wait_seconds", "Longest time that any process has waited for the lock, for locks that have waiting processes. Processes that wait for several locks at once do not count, because another of these locks may be held.", byLock...)
)

// The partitions of a group are counted by state, so that their number does not affect the number of series.
var (
	descMembers    = describe("spindle_table_group_members", "Members of the group whose leases have not expired.", "table", "group")
	descPartitions = describe("spindle_table_group_partitions", "Partitions of the group that have a row in the table, by state.", "table", "group", "state")
	descNobody     = describe("spindle_table_group_partitions_without_holder", "Partitions of the group that have a row in the table but no holder, not counting paused ones.", "table", "group")
)

// noneInAnyState returns a count of 0 for every state that a row can be in. If states with a count of 0 were left out,
// their series would disappear, and graphs would have gaps.
func noneInAnyState() map[operator.State]int {
	return map[operator.State]int{operator.Held: 0, operator.Leaving: 0, operator.Expired: 0, operator.Released: 0, operator.Paused: 0, operator.Unconfirmed: 0, operator.Orphaned: 0, operator.Unreadable: 0}
}

func describe(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc(name, help, labels, nil)
}

// Describe implements prometheus.Collector. It describes nothing, because the series depend on the table.
func (m *metrics) Describe(chan<- *prometheus.Desc) {}

// Collect implements prometheus.Collector.
func (m *metrics) Collect(to chan<- prometheus.Metric) {
	for _, x := range m.collect() {
		to <- x
	}
}

// collect returns all series at once, so that a slow client does not keep the server's mutex locked.
func (m *metrics) collect() []prometheus.Metric {
	s := m.server
	s.mu.Lock()
	defer s.mu.Unlock()
	all := series{Server: s}
	if !s.looked.IsZero() {
		all.add(descAsOf, s.old().Seconds())
	}
	if s.stale() != nil {
		all.add(descUp, 0)
		return all.made
	}
	all.add(descUp, 1)
	all.add(descPause, s.pace.Pause.Seconds())
	all.ofLocks()
	return all.made
}

// series collects the series of one response.
type series struct {
	*Server
	made []prometheus.Metric
}

// add adds a value. It escapes the labels, because they come from the table and may be shown on a terminal.
func (all *series) add(d *prometheus.Desc, value float64, labels ...string) {
	shown := []string{all.Table}
	for _, label := range labels {
		shown = append(shown, terminal.Show(label))
	}
	kind := prometheus.GaugeValue
	if d == descChanges || d == descJeopardies {
		kind = prometheus.CounterValue
	}
	all.made = append(all.made, prometheus.MustNewConstMetric(d, kind, value, shown...))
}

func (all *series) ofLocks() {
	var parts []operator.Listing
	states := noneInAnyState()
	if !all.Released {
		delete(states, operator.Released) // their number is unknown, because reads skip them
	}
	for name, k := range all.history.locks {
		if k.Done.Key != "" {
			all.add(descDone, float64(k.Done.At.UnixMilli())/1000, name)
		}
		if !all.tellsOf(k) {
			continue
		}
		if _, counted := states[k.State()]; counted {
			states[k.State()]++
		}
		part, _ := table.PartOf(name)
		if k.IsPart() && k.State() != operator.Free {
			parts = append(parts, k.Listing)
		}
		all.ofLock(name, k, part.Partition != "" && k.IsPart())
	}
	slices.SortFunc(parts, func(a, b operator.Listing) int { return strings.Compare(a.Name, b.Name) })
	_, groups := model.Gather(parts, "")
	for _, g := range groups {
		all.ofGroup(g)
	}
	for state, n := range states {
		all.add(descLocks, float64(n), string(state))
	}
}

// tellsOf reports whether a lock has metrics other than the time of its last completed work. Without --released, a
// released lock has others only if it is expected, has waiters, or belongs to a group. There may be many more released
// locks, and their metrics would show nothing useful.
func (s *Server) tellsOf(k *lock) bool {
	return k.isTaken() || k.expected || len(k.Waiters) > 0 || k.IsPart() && k.State() != operator.Free || s.Released && k.State() != operator.Free
}

// ofLock adds the metrics of a lock. If counted is true, the lock is a partition, which the metrics of its group
// already count. In this case, unless the partition is expected, ofLock adds only the metrics of its waiters.
func (all *series) ofLock(name string, k *lock, counted bool) {
	if n := len(k.Waiters); n > 0 || !k.IsPart() {
		all.add(descWaiters, float64(n), name)
	}
	one := k.Listing
	one.Waiters = slices.DeleteFunc(slices.Clone(k.Waiters), func(t table.Ticket) bool { return t.Set })
	if len(one.Waiters) > 0 {
		all.add(descLongest, one.LongestWait().Seconds(), name)
	}
	if counted && !k.expected {
		return
	}
	if k.expected {
		all.add(descExpected, 1, name)
	}
	if k.kind != "" && k.kind != table.GroupPart {
		all.add(descKind, 1, name, string(k.kind))
	}
	held := 0.
	if k.IsHeld() {
		held = 1
		all.add(descHolder, 1, name, k.holder())
	}
	all.add(descHeld, held, name)
	all.add(descState, 1, name, string(k.State()))
	all.add(descChanges, float64(k.changes), name)
	all.add(descJeopardies, float64(k.jeopardies), name)
	if k.IsHeld() || k.State() == operator.Expired {
		all.add(descAge, k.At.Sub(k.Heartbeat).Seconds(), name)
		all.add(descLease, k.LeaseRecord.Lease.Seconds(), name)
		all.add(descToken, float64(k.Token), name)
	}
}

func (all *series) ofGroup(g *model.Group) {
	all.add(descMembers, float64(g.JSON.Members), g.JSON.Group)
	for state := range noneInAnyState() {
		all.add(descPartitions, float64(g.PerState[state]), g.JSON.Group, string(state))
	}
	all.add(descNobody, float64(g.JSON.WithoutHolder), g.JSON.Group)
}
