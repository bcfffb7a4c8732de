package probe

import (
	"strings"

	"github.com/prometheus/client_golang/prometheus"
)

// Metrics and labels that the library also has mean the same here, so that one alert works for both.
var (
	descHeld       = describe("spindle_held", "1 if this process holds the lock.")
	descToken      = describe("spindle_token", "The fencing token under which this process holds the lock.")
	descLeft       = describe("spindle_lease_left_seconds", "How long this process still holds the lock if no heartbeat is acknowledged, or 0 if it does not hold the lock.")
	descReady      = describe("spindle_ready", "1 if /readyz answers 200.")
	descStuck      = describe("spindle_stuck", "1 if a program or service that should have ended may still be running.")
	descBegun      = describe("spindle_terms_begun_total", "Terms of this process that began.")
	descLost       = describe("spindle_terms_lost_total", "Terms of this process that were lost rather than released.")
	descHeartbeats = describe("spindle_heartbeat_failures_total", "Heartbeats of this process that were not acknowledged.")
	descHooks      = describe("spindle_hook_failures_total", "Hooks of this process that failed or were killed.", "hook")
)

func describe(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc(name, help, append([]string{"spindle_table", "spindle_lock"}, labels...), nil)
}

func (p *Probe) registry() *prometheus.Registry {
	r := prometheus.NewRegistry()
	r.MustRegister(collector{p})
	return r
}

// collector generates all series from one report.
type collector struct{ *Probe }

// Describe implements prometheus.Collector.
func (c collector) Describe(to chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{descHeld, descToken, descLeft, descReady, descStuck, descBegun, descLost, descHeartbeats, descHooks} {
		to <- d
	}
}

// Collect implements prometheus.Collector.
func (c collector) Collect(to chan<- prometheus.Metric) {
	add := func(d *prometheus.Desc, kind prometheus.ValueType, value float64, labels ...string) {
		to <- prometheus.MustNewConstMetric(d, kind, value, append([]string{valid(c.Table), valid(c.Lock)}, labels...)...)
	}
	now := c.Report()
	add(descHeld, prometheus.GaugeValue, number(now.Held))
	if now.Held {
		add(descToken, prometheus.GaugeValue, float64(now.Token))
	}
	add(descLeft, prometheus.GaugeValue, max(now.Left, 0).Seconds())
	add(descReady, prometheus.GaugeValue, number(now.Ready))
	add(descStuck, prometheus.GaugeValue, number(now.Stuck))
	add(descBegun, prometheus.CounterValue, float64(c.begun.Load()))
	add(descLost, prometheus.CounterValue, float64(c.lost.Load()))
	add(descHeartbeats, prometheus.CounterValue, float64(c.heartbeats.Load()))
	for _, name := range c.Hooks {
		add(descHooks, prometheus.CounterValue, float64(c.hooks[name].Load()), name)
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
