package main

import (
	"fmt"
	"strings"
	"time"
)

// A result is what was measured of a system. A measurement that was left out has no values. All slices are in ascending
// order.
type result struct {
	system system
	killed []float64       // leases without a holder after a kill
	closed []float64       // the same after a graceful stop
	rest   atRest          // requests per lease
	cycles []time.Duration // each of which locks and unlocks a mutex
	turns  []float64       // of each process
}

// A column is one measure.
type column struct {
	title string
	of    func(result) []float64 // empty if it was not measured, otherwise the main value and perhaps another one
	text  string                 // formats these values
	most  bool                   // whether a larger value is better
}

var columns = []column{
	{title: "kill -9, leases: median / worst", text: "%.3f / %.3f", of: func(r result) []float64 { return quantiles(r.killed, 0.5, 1) }},
	{title: "stop, leases: median / worst", text: "%.3f / %.3f", of: func(r result) []float64 { return quantiles(r.closed, 0.5, 1) }},
	{title: "requests of a holder per lease", text: "%.1f", of: func(r result) []float64 { return r.rest.holder }},
	{title: "of a waiter", text: "%.1f", of: func(r result) []float64 { return r.rest.waiter }},
	{title: "lock and unlock, ms: median / 95 %", text: "%.1f / %.1f", of: func(r result) []float64 { return quantiles(milliseconds(r.cycles), 0.5, 0.95) }},
	{title: "turns of 10 processes: fewest / most", text: "%.0f / %.0f", most: true, of: func(r result) []float64 { return quantiles(r.turns, 0, 1) }},
}

// quantiles returns quantiles of values in ascending order.
func quantiles(all []float64, qs ...float64) (found []float64) {
	if len(all) == 0 {
		return nil
	}
	for _, q := range qs {
		found = append(found, all[int(q*float64(len(all)-1)+0.5)])
	}
	return found
}

func milliseconds(all []time.Duration) (ms []float64) {
	for _, d := range all {
		ms = append(ms, float64(d.Microseconds())/1000)
	}
	return ms
}

// cell returns the text of a cell, which is empty if the value was not measured.
func (c column) cell(r result) string {
	values := c.of(r)
	if len(values) == 0 {
		return ""
	}
	args := make([]any, len(values))
	for i, v := range values {
		args[i] = v
	}
	return fmt.Sprintf(c.text, args...)
}

// main returns the part of a cell that systems are compared by.
func (c column) main(r result) string {
	value, _, _ := strings.Cut(c.cell(r), " / ")
	return value
}

// worse reports whether both were measured, and r's main value is worse than the peer's, even after both are rounded.
func (c column) worse(r, peer result) bool {
	ours, theirs := c.of(r), c.of(peer)
	return len(ours) > 0 && len(theirs) > 0 && c.main(r) != c.main(peer) && (ours[0] > theirs[0]) != c.most
}
