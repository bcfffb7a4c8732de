package watch

import (
	"slices"
	"strings"
	"unicode"

	tea "charm.land/bubbletea/v2"
)

// press handles a key press.
func (m Model) press(key tea.KeyPressMsg) (Model, tea.Cmd) {
	switch key.String() {
	case "ctrl+c":
		return m, tea.Quit
	case "ctrl+z":
		if m.suspends {
			return m, tea.Suspend
		}
		return m, nil
	}
	switch m.mode {
	case filtering:
		return m.typeFilter(key), nil
	case listing:
		return m.pressInList(key.String())
	}
	return m.pressInPanel(key.String())
}

func (m Model) pressInList(key string) (Model, tea.Cmd) {
	if to, ok := moves(key, m.cursor, m.listRoom(), len(m.rows)); ok {
		return m.moveTo(to), nil
	}
	switch key {
	case "/", "?", "c", "enter":
		m = m.forgetQuestion() // or the question would appear while the user presses other keys
	}
	switch key {
	case "q":
		return m, tea.Quit
	case "?":
		return m.show(helping, ""), nil
	case "c":
		m = m.show(telling, "")
		m.panel.offset = len(m.changes) // the last ones
		return m, nil
	case "/":
		m.mode = filtering
	case "esc":
		return m.escape(), nil
	case "s":
		m.order = (m.order + 1) % orders
		return m.sort(), nil
	case "a":
		return m.toggleReleased()
	case "enter":
		if m.subject = m.chosen(); m.subject != nil {
			return m.show(detail, ""), nil
		}
	default:
		return m.begin(key)
	}
	return m, nil
}

// moves returns the position to which a key moves in a list of n rows.
func moves(key string, at, page, n int) (to int, ok bool) {
	switch key {
	case "up", "k", "ctrl+p":
		return at - 1, true
	case "down", "j", "ctrl+n":
		return at + 1, true
	case "pgup", "ctrl+b":
		return at - max(page-1, 1), true
	case "pgdown", "ctrl+f", "space":
		return at + max(page-1, 1), true
	case "home", "g":
		return 0, true
	case "end", "G":
		return n - 1, true
	}
	return 0, false
}

// escape gives up the action in progress. If there is none, it clears the filter.
func (m Model) escape() Model {
	if m.job != nil {
		return m.giveUp()
	}
	return m.setFilter("")
}

// toggleReleased shows or hides the released locks. To show them, it also requests a new read of them.
func (m Model) toggleReleased() (Model, tea.Cmd) {
	m.showIdle = !m.showIdle && m.Released != nil
	if m.showIdle {
		select {
		case m.wake <- struct{}{}:
		default:
		}
	}
	return m.refresh(), nil
}

// pressInPanel handles a key press while a panel covers the list.
func (m Model) pressInPanel(key string) (Model, tea.Cmd) {
	if m.mode == asking && key == "y" {
		return m.confirm()
	}
	if to, ok := moves(key, m.panel.offset, m.panelRoom(), len(m.panel.lines)); ok {
		m.panel.offset = max(to, 0)
		return m, nil
	}
	switch {
	case m.mode == asking:
		m.job = nil
		return m.show(listing, ""), nil
	case m.mode == detail && slices.ContainsFunc(m.Actions, func(a Action) bool { return a.Key == key }):
		return m.begin(key)
	case key == "q" && m.mode != result:
		return m, tea.Quit
	case m.mode == result, key == "esc", key == "enter", key == "?", key == "c", key == "backspace", key == "left":
		return m.show(listing, ""), nil
	}
	return m, nil
}

func (m Model) show(what mode, text string) Model {
	if m.mode = what; what == listing {
		m.subject = nil
	}
	m.panel = panel{text: text}
	return m
}

// typeFilter edits the text of the filter.
func (m Model) typeFilter(key tea.KeyPressMsg) Model {
	switch key.String() {
	case "enter":
		return m.endFilter()
	case "esc":
		return m.setFilter("").endFilter()
	case "backspace":
		runes := []rune(m.filter)
		if len(runes) == 0 {
			return m.endFilter()
		}
		return m.setFilter(string(runes[:len(runes)-1]))
	case "ctrl+u":
		return m.setFilter("")
	case "ctrl+w":
		return m.setFilter(m.filter[:strings.LastIndex(strings.TrimRight(m.filter, " "), " ")+1])
	case "up", "down", "pgup", "pgdown":
		to, _ := moves(key.String(), m.cursor, m.listRoom(), len(m.rows))
		return m.moveTo(to)
	}
	return m.setFilter(m.filter + key.Text)
}

// endFilter returns to the list. If an action has ended while the filter was typed, it shows the result of the action.
func (m Model) endFilter() Model {
	text := m.late
	if m.late = ""; text != "" {
		return m.show(result, text)
	}
	return m.show(listing, "")
}

func (m Model) setFilter(text string) Model {
	m.filter = strings.Map(func(r rune) rune {
		if !unicode.IsGraphic(r) {
			return -1
		}
		return r
	}, text)
	if m = m.sort(); m.index(m.selected) < 0 {
		m = m.moveTo(0)
	}
	return m
}
