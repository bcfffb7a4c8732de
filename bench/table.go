package main

import (
	"bytes"
	"fmt"
	"os"
	"strings"
)

// A comparison is everything that one run has measured.
type comparison struct {
	results    []result
	versions   []string // of the systems that spindle is compared with
	conditions string   // of the measurements, as sentences
	missing    []string // what was not measured, and why
}

// remarks says in which measures another system is better, and how everything was measured.
func (c comparison) remarks() (lines []string) {
	for _, col := range columns {
		title, _, _ := strings.Cut(col.title, ":")
		for _, peer := range c.results {
			var worse []string
			for _, r := range c.results {
				if peer.system.peer && !r.system.peer && r.system.kind == peer.system.kind && col.worse(r, peer) {
					worse = append(worse, fmt.Sprintf("%s (%s)", r.system.name, col.main(r)))
				}
			}
			if worse != nil {
				lines = append(lines, fmt.Sprintf("%q: %s (%s) is better than %s.", title, peer.system.name, col.main(peer), strings.Join(worse, " and ")))
			}
		}
	}
	lines = append(lines, c.conditions+" Versions: "+strings.Join(c.versions, ", ")+".")
	return append(lines, c.missing...)
}

// markdown returns the table and the remarks.
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
