package main

import (
	"fmt"
	"strings"
)

// A comparison is everything that one run has measured.
type comparison struct {
	results    []result
	versions   []string // of the systems that spindle is compared with
	conditions string   // of the measurements, as sentences
	missing    []string // what was not measured, and why
}

// remarks describes how everything was measured.
func (c comparison) remarks() []string {
	return append([]string{c.conditions + " Versions: " + strings.Join(c.versions, ", ") + "."}, c.missing...)
}

// markdown returns a table of all systems, one of the mutexes, and the remarks.
func (c comparison) markdown() string {
	var b strings.Builder
	c.table(&b, ofAll)
	c.table(&b, ofMutexes)
	for _, line := range c.remarks() {
		b.WriteString("- " + line + "\n")
	}
	return b.String()
}

// table writes the rows in which something was measured.
func (c comparison) table(b *strings.Builder, columns []column) {
	head, line := "| |", "|---|"
	for _, col := range columns {
		head, line = head+" "+col.title+" |", line+"---|"
	}
	fmt.Fprintf(b, "%s\n%s\n", head, line)
	for _, r := range c.results {
		row, measured := "| "+r.system.name+" |", false
		for _, col := range columns {
			cell := col.cell(r)
			row, measured = row+strings.TrimRight(" "+cell, " ")+" |", measured || cell != ""
		}
		if measured {
			b.WriteString(row + "\n")
		}
	}
	b.WriteString("\n")
}
