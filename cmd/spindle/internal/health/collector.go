package health

import (
	"strings"

	"github.com/prometheus/client_golang/prometheus"
)

// gauges are the metrics that are computed from a report. A metric or label has the same meaning as the one with the
// same name in the library, so that one alert works for both.
var gauges = []struct {
	name, help string
	value      func(Report) float64
	held       bool // only while the lock is held
}{
	{name: "spindle_held", help: "1 if this process holds the lock.", value: func(r Report) float64 { return number(r.Held) }},
	{name: "spindle_lease_left_seconds", help: "Time until this process loses the lock if no heartbeat is acknowledged, or 0 if it does not hold the lock.",
		value: func(r Report) float64 { return max(r.Left, 0).Seconds() }},
	{name: "spindle_ready", help: "1 if /readyz answers 200.", value: func(r Report) float64 { return number(r.Ready) }},
	{name: "spindle_stuck", help: "1 if a program or service that should have ended may still be running.", value: func(r Report) float64 { return number(r.Stuck) }},
	{name: "spindle_token", help: "The fencing token of the term in which this process holds the lock.", value: func(r Report) float64 { return float64(r.Token) }, held: true},
}

// counters are what a Probe counts.
type counters struct {
	Begun           prometheus.Counter     // terms
	Lost            prometheus.Counter     // terms
	HeartbeatFailed prometheus.Counter     // heartbeats that were not acknowledged
	HookFailed      *prometheus.CounterVec // by the hook's name
}

func newCounters(hooks []string) counters {
	c := counters{
		Begun:           counter("spindle_terms_begun_total", "Terms of this process that began."),
		Lost:            counter("spindle_terms_lost_total", "Terms in which this process lost the lock instead of releasing it."),
		HeartbeatFailed: counter("spindle_heartbeat_failures_total", "Heartbeats that this process sent but that were not acknowledged."),
		HookFailed:      prometheus.NewCounterVec(prometheus.CounterOpts{Name: "spindle_hook_failures_total", Help: "Hooks that failed or were killed."}, []string{"hook"}),
	}
	for _, name := range hooks {
		c.HookFailed.WithLabelValues(name)
	}
	return c
}

func counter(name, help string) prometheus.Counter {
	return prometheus.NewCounter(prometheus.CounterOpts{Name: name, Help: help})
}

// collector takes all gauges from one report.
type collector func() Report

// Describe implements prometheus.Collector. It sends nothing, because spindle_token exists only while the lock is held.
func (collector) Describe(chan<- *prometheus.Desc) {}

// Collect implements prometheus.Collector.
func (c collector) Collect(to chan<- prometheus.Metric) {
	now := c()
	for _, g := range gauges {
		if now.Held || !g.held {
			to <- prometheus.MustNewConstMetric(prometheus.NewDesc(g.name, g.help, nil, nil), prometheus.GaugeValue, g.value(now))
		}
	}
}

// metrics returns the registry of all metrics of a probe.
func (p *Probe) metrics() *prometheus.Registry {
	all := prometheus.NewRegistry()
	labels := prometheus.Labels{"spindle_table": valid(p.table), "spindle_lock": valid(p.lock)}
	prometheus.WrapRegistererWith(labels, all).MustRegister(collector(p.report), p.Begun, p.Lost, p.HeartbeatFailed, p.HookFailed)
	return all
}

// valid replaces invalid UTF-8, which a label value can't contain. The exposition format escapes special characters.
func valid(s string) string { return strings.ToValidUTF8(s, "\ufffd") }

func number(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
