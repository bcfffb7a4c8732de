package health

import (
	"strings"

	"github.com/prometheus/client_golang/prometheus"
)

// Metrics and labels that the library also has mean the same here, so that one alert works for both.
var (
	gauges = []struct {
		name, help string
		value      func(Report) float64
	}{
		{"spindle_held", "1 if this process holds the lock.", func(r Report) float64 { return number(r.Held) }},
		{"spindle_lease_left_seconds", "Time until this process loses the lock if no heartbeat is acknowledged, or 0 if it does not hold the lock.",
			func(r Report) float64 { return max(r.Left, 0).Seconds() }},
		{"spindle_ready", "1 if /readyz answers 200.", func(r Report) float64 { return number(r.Ready) }},
		{"spindle_stuck", "1 if a program or service that should have ended may still be running.", func(r Report) float64 { return number(r.Stuck) }},
	}
	counters = []struct {
		name, help string
		of         Counter
	}{
		{"spindle_terms_begun_total", "Terms of this process that began.", Begun},
		{"spindle_terms_lost_total", "Terms in which this process lost the lock instead of releasing it.", Lost},
		{"spindle_heartbeat_failures_total", "Heartbeats that this process sent but that were not acknowledged.", HeartbeatFailed},
	}
	token = []string{"spindle_token", "The fencing token of the term in which this process holds the lock."}
	hooks = []string{"spindle_hook_failures_total", "Hooks that failed or were killed."}
)

// collector generates all series from one report.
type collector struct{ *Probe }

// Describe implements prometheus.Collector. It sends nothing, because the token is only there while the lock is held.
func (c collector) Describe(chan<- *prometheus.Desc) {}

// Collect implements prometheus.Collector.
func (c collector) Collect(to chan<- prometheus.Metric) {
	add := func(name, help string, kind prometheus.ValueType, value float64, labels prometheus.Labels) {
		desc := prometheus.NewDesc(name, help, []string{"spindle_table", "spindle_lock"}, labels)
		to <- prometheus.MustNewConstMetric(desc, kind, value, valid(c.Table), valid(c.Lock))
	}
	now := c.Report()
	for _, g := range gauges {
		add(g.name, g.help, prometheus.GaugeValue, g.value(now), nil)
	}
	if now.Held {
		add(token[0], token[1], prometheus.GaugeValue, float64(now.Token), nil)
	}
	for _, n := range counters {
		add(n.name, n.help, prometheus.CounterValue, float64(c.counts[n.of].Load()), nil)
	}
	for _, hook := range c.Hooks {
		add(hooks[0], hooks[1], prometheus.CounterValue, float64(c.counts[Counter(hook)].Load()), prometheus.Labels{"hook": hook})
	}
}

// valid makes a text valid as a label value. The exposition format escapes all other special characters.
func valid(s string) string { return strings.ToValidUTF8(s, "\ufffd") }

func number(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
