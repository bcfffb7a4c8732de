package watch

import (
	"slices"
	"strings"

	"github.com/spindle-lock/spindle/cmd/spindle/internal/terminal"
)

// A panel is a text that covers the list. It may be longer than the screen.
type panel struct {
	text   string
	offset int
	of     basis
	lines  []string
}

// A basis has everything that determines the lines of a panel.
type basis struct {
	mode    mode
	subject *Row
	listed  bool
	changes int
	width   int
	text    string
}

// settle recomputes the lines if their basis has changed, and keeps the offset within them.
func (p panel) settle(m Model) panel {
	of := basis{m.mode, m.subject, m.subject != nil && m.isListed(m.subject), len(m.changes), m.width, p.text}
	if of != p.of {
		p.of, p.lines = of, m.panelLines()
	}
	p.offset = max(min(p.offset, len(p.lines)-m.panelRoom()), 0)
	return p
}

// visible returns the lines that are on the screen.
func (p panel) visible(room int) []string {
	from := min(p.offset, len(p.lines))
	return p.lines[from:min(from+room, len(p.lines))]
}

// panelRoom returns how many lines of a panel fit on the screen.
func (m Model) panelRoom() int { return max(m.height-len(m.head())-m.footHeight(), 1) }

// panelLines returns all lines of the panel.
func (m Model) panelLines() []string {
	switch m.mode {
	case detail:
		return terminal.WrapLines(m.detail(), m.width)
	case helping:
		return terminal.WrapLines(m.help(), m.width)
	case telling:
		if len(m.changes) == 0 {
			return terminal.WrapLines("Nothing has changed since watch began.", m.width)
		}
		return changeLines(m.changes, m.width)
	}
	return terminal.WrapLines(m.panel.text, m.width)
}

// detail returns the details of a lock, as of the last read that found it.
func (m Model) detail() string {
	text := strings.TrimRight(m.subject.Detail(m.width), "\n")
	if !m.isListed(m.subject) {
		text += "\n\nThe last read did not find this lock. It has been released, or its row was deleted."
	}
	return text
}

func (m Model) isListed(r *Row) bool {
	return r.isReleased() || slices.ContainsFunc(m.busy, func(b *Row) bool { return b.Name == r.Name })
}
