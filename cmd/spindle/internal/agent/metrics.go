package agent

import (
	"net/http"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// counts counts the holds that are over, by outcome.
type counts struct {
	mu      *sync.Mutex
	outcome map[string]float64
}

func newCounts() counts {
	return counts{new(sync.Mutex), map[string]float64{"released": 0, "lost": 0, "refused": 0, "unknown": 0}}
}

func (c counts) end(h *hold) {
	s := h.status()
	outcome := s.outcome()
	if outcome == "released" && s.failure != nil {
		outcome = "unknown"
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.outcome[outcome]++
}

var (
	descHolds = prometheus.NewDesc("spindle_agent_holds", "Programs that hold a lock of this agent, or wait for one, by state.", []string{"state"}, nil)
	descEnded = prometheus.NewDesc("spindle_agent_holds_ended_total", "Holds that ended, by outcome: released, lost, refused, or unknown if the release was not confirmed.", []string{"outcome"}, nil)
	descHeld  = prometheus.NewDesc("spindle_agent_held", "1 for each lock that a program of this agent holds.", []string{"spindle_lock"}, nil)
)

// metrics returns the handler for the metrics: all of them, or only those that do not name locks.
func (a *Agent) metrics(names bool) http.Handler {
	r := prometheus.NewRegistry()
	r.MustRegister(collector{a, names})
	return promhttp.HandlerFor(r, promhttp.HandlerOpts{MaxRequestsInFlight: 4, ErrorHandling: promhttp.ContinueOnError})
}

type collector struct {
	*Agent
	names bool
}

// Describe implements prometheus.Collector.
func (c collector) Describe(to chan<- *prometheus.Desc) {
	to <- descHolds
	to <- descEnded
	to <- descHeld
}

// Collect implements prometheus.Collector.
func (c collector) Collect(to chan<- prometheus.Metric) {
	gauge := func(d *prometheus.Desc, n float64, label string) {
		to <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, n, label)
	}
	count, held := map[string]float64{"waiting": 0, "held": 0, "stopping": 0, "orphaned": 0, "releasing": 0}, map[string]bool{}
	for _, h := range c.all() {
		j := h.describe()
		if _, known := count[j.State]; known {
			count[j.State]++
		}
		for _, name := range j.Names {
			if c.names && j.Token != 0 && !held[name] {
				held[name] = true
				gauge(descHeld, 1, name)
			}
		}
	}
	for state, n := range count {
		gauge(descHolds, n, state)
	}
	c.counts.mu.Lock()
	defer c.counts.mu.Unlock()
	for outcome, n := range c.counts.outcome {
		to <- prometheus.MustNewConstMetric(descEnded, prometheus.CounterValue, n, outcome)
	}
}
