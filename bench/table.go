package main

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"strings"
	"text/tabwriter"
)

// A comparison is everything that one run has measured.
type comparison struct {
	results    []result
	versions   []string // of the systems that spindle is compared with
	conditions string   // of the measurements, as sentences
	missing    []string // what was not measured, and why
}

// print prints the measures for a terminal, one below the other.
func (c comparison) print(w io.Writer) {
	for _, col := range columns {
		fmt.Fprintf(w, "%s\n", col.title)
		rows := tabwriter.NewWriter(w, 0, 0, 3, ' ', 0)
		for _, r := range c.results {
			if cell := col.cell(r); cell != "" {
				fmt.Fprintf(rows, "  %s\t%s\n", r.system.name, cell)
			}
		}
		_ = rows.Flush()
		fmt.Fprintln(w)
	}
	fmt.Fprintln(w, "Spindle is at commit", ownVersion()+".")
	for _, line := range c.remarks() {
		fmt.Fprintln(w, line)
	}
}

// remarks says in which measures another system is better, and how everything was measured.
func (c comparison) remarks() (lines []string) {
	for _, d := range defeats(c.results) {
		title, _, _ := strings.Cut(d.column.title, ":")
		var ours []string
		for _, r := range d.ours {
			ours = append(ours, fmt.Sprintf("%s (%s)", r.system.name, d.column.main(r)))
		}
		lines = append(lines, fmt.Sprintf("%q: %s (%s) is better than %s.", title, d.peer.system.name, d.column.main(d.peer), strings.Join(ours, " and ")))
	}
	lines = append(lines, c.conditions+" Versions: "+strings.Join(c.versions, ", ")+".")
	return append(lines, c.missing...)
}

// markdown returns the table for a document.
func (c comparison) markdown() string {
	var b strings.Builder
	b.WriteString("| |")
	for _, col := range columns {
		b.WriteString(" " + col.title + " |")
	}
	b.WriteString("\n|---|" + strings.Repeat("---|", len(columns)) + "\n")
	for _, r := range c.results {
		b.WriteString("| " + r.system.name + " |")
		for _, col := range columns {
			b.WriteString(strings.TrimRight(" "+col.cell(r), " ") + " |")
		}
		b.WriteString("\n")
	}
	b.WriteString("\n")
	for _, line := range c.remarks() {
		b.WriteString("- " + line + "\n")
	}
	return b.String()
}

const (
	beginMark = "<!-- written by bench -->\n"
	endMark   = "<!-- end -->\n"
)

// documents are the files that contain the table.
var documents = []string{"../README.md", "../docs/performance.md"}

// replaceMarked replaces what a document has between the marks.
func replaceMarked(document []byte, text string) ([]byte, error) {
	before, rest, begins := bytes.Cut(document, []byte(beginMark))
	_, after, ends := bytes.Cut(rest, []byte(endMark))
	if !begins || !ends {
		return nil, fmt.Errorf("there is no %q with a later %q", strings.TrimSpace(beginMark), strings.TrimSpace(endMark))
	}
	return bytes.Join([][]byte{before, []byte(beginMark), []byte(text), []byte(endMark), after}, nil), nil
}

// write replaces the table in a document.
func (c comparison) write(path string) error {
	document, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	document, err = replaceMarked(document, c.markdown())
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return os.WriteFile(path, document, 0o644)
}
