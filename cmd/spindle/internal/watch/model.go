package watch

import (
	"cmp"
	"context"
	"slices"
	"time"

	tea "charm.land/bubbletea/v2"

	"github.com/spindle-lock/spindle/cmd/spindle/internal/terminal"
	"github.com/spindle-lock/spindle/internal/table"
)

// mode is what the screen shows, and which keys mean something.
type mode int

const (
	listing   mode = iota
	filtering      // a text is typed
	detail
	helping
	telling // of changes
	asking  // whether an action is meant
	result  // of an action
)

// Model is the state of the screen. Only Update makes a new one.
type Model struct {
	*Table
	ctx  context.Context // of actions
	wake chan<- struct{}

	suspends bool // a shell can resume it

	width, height int
	now           time.Time // by the local clock

	readings
	found
	view
	overlay
	changes []Change
}

// readings are how the reads of the table go.
type readings struct {
	last    Snapshot
	reading time.Time // when the read began that is under way; zero: none is
	failed  error     // of the read before, if it failed
	began   time.Time // when the first read began
	fatal   error
}

// found is what the reads have found.
type found struct {
	busy    []*Row    // of the last snapshot, without released locks
	idle    []*Row    // released locks
	counted bool      // idle was read
	idleAt  time.Time // when, by Spanner's clock
	sorted  []*Row    // the idle rows that match, in the order
}

// view is what is listed of that.
type view struct {
	showIdle bool
	order    order
	filter   string
	rows     []*Row // what is listed
	hidden   int    // released locks that are not
	widths   widths
	selected string // the name of the chosen row; "": the one at the top, whichever that is
	cursor   int
	offset   int // the first row on the screen
}

// overlay is what covers the list, and what is under way.
type overlay struct {
	mode    mode
	panel   panel
	subject *Row // of the detail
	job     *job
	late    string // the result of a job that ended while a filter was typed: the next keys are no answer to it
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

func (r *Row) isReleased() bool { return r.State == table.Released && r.Note == "" && !r.Group }

// addIdle adds locks that were released lately to those that were read.
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

// sort chooses and sorts everything again.
func (m Model) sort() Model {
	m.sorted = choose(m.idle, m.filter, m.order)
	return m.refresh()
}

// refresh lists what there is now. Released locks that were taken since they were read are no longer released.
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
		m.cursor = i // the same lock, wherever it is now
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

// settle keeps the cursor on the list, and on the screen.
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

// moveTo chooses a row. At the top the cursor stays at the top, so that new trouble is seen.
func (m Model) moveTo(i int) Model {
	i = max(min(i, len(m.rows)-1), 0)
	m.cursor, m.selected = i, ""
	if i > 0 {
		m.selected = m.rows[i].Name
	}
	return m
}

// widths are of the longest texts in the columns.
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
