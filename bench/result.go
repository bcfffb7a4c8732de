package main

import (
	"fmt"
	"time"
)

// A result contains the measurements of one system. A slice is empty if its measurement was left out, and is sorted in
// ascending order otherwise.
type result struct {
	system system
	killed []float64       // leases without a holder after a kill
	closed []float64       // the same after a graceful stop
	rest   atRest          // requests per lease
	cycles []time.Duration // how long it took to lock and unlock a mutex, each time
	short  contest         // of turns that hold the lock for shortTurn
	long   contest         // of turns that hold it for longTurn
}

// A column is one measure.
type column struct {
	title string
	of    func(result) []float64 // returns the values to show, or none if nothing was measured
	text  string                 // formats the values
}

var ofAll = []column{
	{title: "kill -9, leases: median / worst", text: "%.3f / %.3f", of: func(r result) []float64 { return quantiles(r.killed, 0.5, 1) }},
	{title: "stop, leases: median / worst", text: "%.3f / %.3f", of: func(r result) []float64 { return quantiles(r.closed, 0.5, 1) }},
	{title: "requests of a holder per lease", text: "%.1f", of: func(r result) []float64 { return r.rest.holder }},
	{title: "of a waiter", text: "%.1f", of: func(r result) []float64 { return r.rest.waiter }},
}

var ofMutexes = []column{
	{title: "lock and unlock, ms: median / p95", text: "%.1f / %.1f", of: func(r result) []float64 { return quantiles(milliseconds(r.cycles), 0.5, 0.95) }},
	{title: "20 ms turns per process (10 processes): fewest / most", text: "%.0f / %.0f", of: func(r result) []float64 { return quantiles(r.short.turns, 0, 1) }},
	{title: "requests per turn", text: "%.1f", of: func(r result) []float64 { return r.short.requests }},
	{title: "ms idle between 200 ms turns: median / p95", text: "%.1f / %.1f", of: func(r result) []float64 { return quantiles(milliseconds(r.long.idle), 0.5, 0.95) }},
	{title: "requests per turn", text: "%.1f", of: func(r result) []float64 { return r.long.requests }},
}

// quantiles returns the given quantiles of values that are in ascending order.
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

// cell returns the text of a cell, which is empty if nothing was measured.
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
