package watch

import (
	"fmt"
	"strings"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/x/ansi"

	"github.com/spindle-lock/spindle/cmd/spindle/internal/states"
	"github.com/spindle-lock/spindle/cmd/spindle/internal/terminal"
	"github.com/spindle-lock/spindle/internal/operator"
)

// View implements tea.Model.
func (m Model) View() tea.View {
	v := tea.NewView(strings.Join(m.screen(), "\n"))
	v.AltScreen = true
	return v
}

// screen returns all lines of the terminal.
func (m Model) screen() []string {
	head, foot := m.head(), m.foot()
	room := max(m.height-len(head)-len(foot), 0)
	var body []string
	if m.mode == listing || m.mode == filtering {
		body = m.list(room)
	} else {
		body = m.panel.visible(room)
	}
	body = append(body[:min(len(body), room)], make([]string, max(room-len(body), 0))...)
	lines := append(append(head, body...), foot...)
	for i, line := range lines {
		lines[i] = ansi.Truncate(line, m.width, "")
	}
	return lines[:min(len(lines), m.height)]
}

// small reports whether the screen has room only for the locks and the age of the data.
func (m Model) small() bool { return m.width < 40 || m.height < 12 }

// head returns the lines above the locks: the title, the age of the data, and the number of locks in each state.
func (m Model) head() []string {
	var lines []string
	if !m.small() {
		lines = append(lines, terminal.Bold.Styled(terminal.Fit(m.Title, m.width)))
	}
	lines = append(lines, m.age()...)
	if !m.small() {
		lines = append(lines, terminal.Cut(m.counts(), m.width))
	}
	return lines
}

// suspicion is how long a read can take before the screen reports that Spanner does not answer.
const suspicion = 1500 * time.Millisecond

// stale reports whether the shown data may be out of date, because the last read failed or the current read takes
// suspiciously long.
func (m Model) stale() bool {
	return m.failed != nil || !m.reading.IsZero() && passed(m.reading, m.now) >= suspicion
}

// passed returns how much time has passed between two calls of time.Now. It compares both the monotonic and the wall
// clock, and returns the larger difference, because the monotonic clock stops while the machine is suspended, and the
// wall clock can be set back.
func passed(from, to time.Time) time.Duration {
	return max(to.Sub(from), to.Round(0).Sub(from.Round(0)))
}

// age returns the lines that show how old the shown data is. They are on every screen.
func (m Model) age() []string {
	since := m.last.Read
	if since.IsZero() {
		since = m.began
	}
	old, at := seconds(passed(since, m.now)), m.last.At.UTC().Format("15:04:05Z")
	var text string
	switch read := !m.last.Read.IsZero(); {
	case !m.stale() && !read:
		return []string{terminal.Faint.Styled(terminal.Cut("reading the table for "+old, m.width))}
	case !m.stale() && m.small():
		return []string{terminal.Faint.Styled(at + ", " + old + " ago")}
	case !m.stale():
		return []string{terminal.Faint.Styled("as of "+at+" by Spanner's clock, ") + old + terminal.Faint.Styled(" ago")}
	case !read:
		text = fmt.Sprintf("no answer from Spanner for %s; nothing has been read yet", old)
	default:
		text = fmt.Sprintf("no answer from Spanner for %s; data is from %s", old, at)
	}
	lines := terminal.WrapLines(text, m.width)
	for i := range lines {
		lines[i] = terminal.Alarm.Styled(lines[i])
	}
	if m.failed != nil && !m.small() {
		why := strings.Join(strings.Fields(m.failed.Error()), " ")
		lines = append(lines, terminal.Red.Styled(terminal.Cut(why, m.width)))
	}
	return lines
}

// countedStates is the order in which the numbers of locks are shown.
var countedStates = []operator.State{operator.Expired, operator.Orphaned, operator.Unreadable, operator.Unconfirmed, states.Partial, operator.Leaving, operator.Free, operator.Held}

// counts returns the number of locks in each state, and how many locks are hidden.
func (m Model) counts() string {
	n := map[operator.State]int{}
	for _, r := range m.busy {
		n[r.State]++
	}
	var parts []string
	for _, s := range countedStates {
		if n[s] > 0 {
			parts = append(parts, m.paint(states.Styles[s], fmt.Sprint(n[s], " ", s)))
		}
	}
	text := strings.Join(parts, ", ")
	if m.filter != "" {
		text = fmt.Sprintf("%d match /%s (Esc: all)", len(m.rows), m.filter) + sep("; ", text)
	}
	return text + sep("; ", m.hiddenText())
}

func sep(before, text string) string {
	if text == "" {
		return ""
	}
	return before + text
}

// hiddenText returns the number of released locks.
func (m Model) hiddenText() string {
	switch {
	case m.Released == nil:
		return ""
	case m.showIdle && !m.counted:
		return "reading released locks"
	case m.showIdle:
		return fmt.Sprintf("%d released as of %s (a: hide)", len(m.idle), m.idleAt.UTC().Format("15:04:05Z"))
	case !m.counted && m.hidden == 0:
		return "released locks are hidden (a)"
	case m.hidden == 0:
		return ""
	}
	return fmt.Sprintf("%d released hidden (a: show)", m.hidden)
}

// paint colours a text. Data that may be out of date has no colour.
func (m Model) paint(s terminal.Style, text string) string {
	if m.stale() {
		s = terminal.Faint
	}
	return s.Styled(text)
}

// foot returns the last line: the filter that is being typed, the progress of an action, or the keys.
func (m Model) foot() []string {
	switch {
	case m.footHeight() == 0:
		return nil
	case m.mode == filtering:
		return []string{terminal.End("/"+m.filter+"█", m.width)}
	case m.job != nil && m.mode != asking:
		return []string{terminal.Cut(m.job.progress(m.now), m.width)}
	}
	return []string{terminal.Faint.Styled(terminal.Cut(m.keys(), m.width))}
}

func (m Model) footHeight() int {
	if m.height < 4 {
		return 0
	}
	return 1
}

func (m Model) keys() string {
	switch m.mode {
	case listing:
		if m.small() && m.hidden > 0 {
			return fmt.Sprintf("%d hidden (a)  ? q", m.hidden)
		}
		if m.small() {
			return "? help  q quit"
		}
		text := "? help  q quit  / filter  s by " + m.order.String() + "  Enter detail"
		for _, a := range m.Actions {
			text += "  " + a.Key + " " + a.Name
		}
		return text
	case asking:
		return "y: " + m.job.Name + "   any other key: no"
	case result:
		return "any key: back"
	}
	return "Esc back  q quit" + more(m.panel.offset+m.panelRoom() < len(m.panel.lines))
}

func more(is bool) string {
	if is {
		return "  PgDn more"
	}
	return ""
}
