package watch

import (
	"cmp"
	"context"
	"slices"
	"time"

	tea "charm.land/bubbletea/v2"

	"github.com/spindle-lock/spindle/cmd/spindle/internal/terminal"
	"github.com/spindle-lock/spindle/internal/operator"
)

// A mode determines what the screen shows, and which keys have a meaning.
type mode int

const (
	listing   mode = iota
	filtering      // the user types a filter
	detail
	helping
	telling // a list of changes
	asking  // for the confirmation of an action
	result  // the outcome of an action
)

// Model is the state of the screen. Only Update makes a new one.
type Model struct {
	*Table
	ctx  context.Context // for actions
	wake chan<- struct{}

	suspends bool // a shell can resume the process

	width, height int
	now           time.Time // by the local clock

	readings
	found
	view
	overlay
	changes []Change
}

// readings has the progress of the reads of the table.
type readings struct {
	last    Snapshot
	reading time.Time // when the current read began, or zero if there is none
	failed  error     // the error of the previous read, if it failed
	began   time.Time // when the first read began
	fatal   error
}

// found has the results of the reads.
type found struct {
	busy    []*Row    // of the last snapshot, without released locks
	idle    []*Row    // released locks
	counted bool      // idle was read
	idleAt  time.Time // when, by Spanner's clock
	sorted  []*Row    // the idle rows that match the filter, in the current order
}

// view determines which rows are listed, and in which order.
type view struct {
	showIdle bool
	order    order
	filter   string
	rows     []*Row // what is listed
	hidden   int    // the number of released locks that are not listed
	widths   widths
	selected string // the name of the chosen row, or "" for the row that is at the top at any time
	cursor   int
	offset   int // the first row on the screen
}

// overlay has the panel that covers the list, and the action in progress.
type overlay struct {
	mode    mode
	panel   panel
	subject *Row // the row whose details are shown
	job     *job
	late    string // the result of a job that ended while the user typed a filter, which must not dismiss it
}

func newModel(ctx context.Context, t *Table, wake chan<- struct{}) Model {
	return Model{Table: t, ctx: ctx, wake: wake, width: 80, height: 24, now: time.Now(), readings: readings{began: time.Now()}}
}

// Init implements tea.Model.
func (m Model) Init() tea.Cmd { return ticks() }

// Update implements tea.Model.
func (m Model) Update(msg tea.Msg) (tea.Model, tea.Cmd) {
	next, cmd := m.update(msg)
	return next.settle(), cmd
}

func (m Model) update(msg tea.Msg) (Model, tea.Cmd) {
	switch msg := msg.(type) {
	case tea.WindowSizeMsg:
		m.width, m.height = msg.Width, msg.Height
	case now:
		m.now = time.Time(msg)
		return m, ticks()
	case reading:
		m.reading = msg.at
	case Snapshot:
		return m.takeSnapshot(msg), nil
	case Released:
		m.idle, m.idleAt, m.counted = pointers(msg.Rows), msg.At, true
		m.sorted = choose(m.idle, m.filter, m.order)
		return m.refresh(), nil
	case failure:
		return m.fail(msg)
	case asked, done:
		return m.hear(msg)
	case tea.PasteMsg:
		if m.mode == filtering {
			return m.setFilter(m.filter + msg.Content), nil
		}
	case tea.KeyPressMsg:
		return m.press(msg)
	}
	return m, nil
}

func (m Model) fail(f failure) (Model, tea.Cmd) {
	m.reading, m.failed = time.Time{}, f.err
	if m.last.Read.IsZero() && m.Fatal(f.err) {
		m.fatal = f.err
		return m, tea.Quit
	}
	return m, nil
}

const rememberedChanges = 500

func (m Model) takeSnapshot(s Snapshot) Model {
	m.last, m.reading, m.failed = s, time.Time{}, nil
	m.changes = append(slices.Clip(m.changes), s.Changes...)
	m.changes = m.changes[max(len(m.changes)-rememberedChanges, 0):]
	all := pointers(s.Rows)
	if m.busy = all; m.Released == nil {
		return m.refresh()
	}
	m.busy = slices.DeleteFunc(slices.Clone(all), (*Row).isReleased)
	m = m.addIdle(slices.DeleteFunc(all, func(r *Row) bool { return !r.isReleased() }))
	return m.refresh()
}

func (r *Row) isReleased() bool { return r.State == operator.Released && r.Note == "" && !r.Group }

// addIdle adds recently released locks to the released locks that were read.
func (m Model) addIdle(rows []*Row) Model {
	if len(rows) == 0 {
		return m
	}
	late := names(rows)
	m.idle = append(slices.DeleteFunc(slices.Clone(m.idle), func(r *Row) bool { return late[r.Name] }), rows...)
	m.sorted = choose(m.idle, m.filter, m.order)
	return m
}

func names(rows []*Row) map[string]bool {
	set := make(map[string]bool, len(rows))
	for _, r := range rows {
		set[r.Name] = true
	}
	return set
}

func pointers(rows []Row) []*Row {
	all := make([]*Row, len(rows))
	for i := range rows {
		all[i] = &rows[i]
	}
	return all
}

// sort filters and sorts all rows again.
func (m Model) sort() Model {
	m.sorted = choose(m.idle, m.filter, m.order)
	return m.refresh()
}

// refresh updates the list. Released locks that have been taken since they were read no longer count as released.
func (m Model) refresh() Model {
	taken := names(m.busy)
	free := func(rows []*Row) []*Row {
		return slices.DeleteFunc(slices.Clone(rows), func(r *Row) bool { return taken[r.Name] })
	}
	m.rows, m.hidden = choose(m.busy, m.filter, m.order), 0
	if m.showIdle {
		m.rows = merge(m.rows, free(m.sorted), m.order)
	} else {
		m.hidden = len(free(m.idle))
	}
	m.widths = measure(m.rows)
	if i := m.index(m.selected); i >= 0 {
		m.cursor = i // the same lock, even if its row has moved
	}
	if m.subject != nil {
		if i := slices.IndexFunc(m.busy, func(r *Row) bool { return r.Name == m.subject.Name }); i >= 0 {
			m.subject = m.busy[i]
		}
	}
	return m
}

func (m Model) index(name string) int {
	if name == "" {
		return -1
	}
	return slices.IndexFunc(m.rows, func(r *Row) bool { return r.Name == name })
}

// settle keeps the cursor within the list, and the list scrolled so that the cursor is on the screen.
func (m Model) settle() Model {
	if m.selected == "" {
		m.cursor = 0
	}
	m.cursor = max(min(m.cursor, len(m.rows)-1), 0)
	room := m.listRoom()
	m.offset = min(max(m.offset, m.cursor-room+1), m.cursor)
	m.offset = max(min(m.offset, len(m.rows)-room), 0)
	if m.selected == "" {
		m.offset = 0
	}
	if m.mode != listing && m.mode != filtering {
		m.panel = m.panel.settle(m)
	}
	return m
}

// chosen returns the row at the cursor, or nil.
func (m Model) chosen() *Row {
	if m.cursor >= len(m.rows) {
		return nil
	}
	return m.rows[m.cursor]
}

// moveTo moves the cursor to a row. A cursor at the top stays at the top, so that the user sees new trouble.
func (m Model) moveTo(i int) Model {
	i = max(min(i, len(m.rows)-1), 0)
	m.cursor, m.selected = i, ""
	if i > 0 {
		m.selected = m.rows[i].Name
	}
	return m
}

// widths has the widths of the longest texts in the columns.
type widths struct{ label, holder int }

func measure(rows []*Row) (w widths) {
	for _, r := range rows {
		w.label = max(w.label, terminal.Length(r.Label))
		w.holder = max(w.holder, terminal.Length(r.holderText()))
	}
	return w
}

func (r *Row) holderText() string {
	if r.Holder == "" || r.Note == "" {
		return cmp.Or(r.Holder, r.Note)
	}
	return r.Holder + "  " + r.Note
}
