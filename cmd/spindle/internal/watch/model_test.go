package watch

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/x/ansi"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spindle-lock/spindle/cmd/spindle/internal/states"
	"github.com/spindle-lock/spindle/cmd/spindle/internal/terminal"
	"github.com/spindle-lock/spindle/internal/operator"
)

var update = flag.Bool("update", false, "write the golden screens anew")

// start is the local time of the first read. Spanner's clock is an hour ahead of it.
var start = time.Date(2026, 1, 2, 11, 3, 4, 0, time.UTC)

func spannerTime(local time.Time) time.Time { return local.Add(time.Hour) }

const lease = 10 * time.Second

func held(name, holder string, left time.Duration) Row {
	return Row{Name: name, Label: name, State: operator.Held, Holder: holder, Token: 1763645616123456, Since: "2h10m", Age: 2 * time.Hour,
		Lease: lease, Left: left, Ends: left.String(), Detail: func(int) string { return name + " is held by " + holder }}
}

func expired(name, holder string) Row {
	r := held(name, holder, -3*time.Second)
	r.State, r.Ends = operator.Expired, "3.0s"
	return r
}

func released(name string) Row {
	return Row{Name: name, Label: name, State: operator.Released, Since: "5d03h", Age: 123 * time.Hour, Detail: func(int) string { return name + " is free" }}
}

func of(state operator.State, name string) Row {
	r := held(name, "web-1", 8*time.Second)
	r.State = state
	return r
}

// A display is a model and the messages for it.
type display struct {
	Model
	t      *testing.T
	at     time.Time
	quit   bool
	paused bool
	woken  chan struct{}
	wait   []tea.Msg // what actions have sent that is not delivered yet
}

func open(t *testing.T, width, height int) *display {
	x := &display{t: t, at: start, woken: make(chan struct{}, 1)}
	table := &Table{
		Title: "spindle watch  locktable in projects/p/instances/i/databases/d", None: "There are no locks in the table.",
		Released: func(context.Context) (Released, error) { return Released{}, nil },
		Fatal:    func(err error) bool { return strings.Contains(err.Error(), "Table not found") },
	}
	x.Model = newModel(t.Context(), table, x.woken)
	x.Model.now, x.Model.began = start, start
	x.send(tea.WindowSizeMsg{Width: width, Height: height})
	return x
}

func (x *display) send(msg tea.Msg) {
	next, cmd := x.Update(msg)
	x.Model = next.(Model)
	if _, isTick := msg.(now); cmd == nil || isTick {
		return
	}
	switch msg := cmd().(type) {
	case tea.QuitMsg:
		x.quit = true
	case tea.SuspendMsg:
		x.paused = true
	default:
		x.wait = append(x.wait, msg)
	}
}

// deliver delivers what an action has sent.
func (x *display) deliver() {
	wait := x.wait
	x.wait = nil
	for _, msg := range wait {
		x.send(msg)
	}
}

// reads is an answer at the present time.
func (x *display) reads(rows ...Row) {
	x.send(reading{x.at})
	x.send(Snapshot{Rows: rows, At: spannerTime(x.at), Read: x.at})
}

// pass lets time pass, while a read hangs or not.
func (x *display) pass(d time.Duration) {
	x.at = x.at.Add(d)
	x.send(now(x.at))
}

var special = map[string]tea.Key{
	"up": {Code: tea.KeyUp}, "down": {Code: tea.KeyDown}, "pgup": {Code: tea.KeyPgUp}, "pgdown": {Code: tea.KeyPgDown},
	"home": {Code: tea.KeyHome}, "end": {Code: tea.KeyEnd}, "enter": {Code: tea.KeyEnter}, "esc": {Code: tea.KeyEscape},
	"backspace": {Code: tea.KeyBackspace}, "ctrl+c": {Code: 'c', Mod: tea.ModCtrl}, "ctrl+z": {Code: 'z', Mod: tea.ModCtrl},
	"ctrl+u": {Code: 'u', Mod: tea.ModCtrl}, "ctrl+w": {Code: 'w', Mod: tea.ModCtrl},
}

func (x *display) press(keys ...string) {
	for _, k := range keys {
		if key, ok := special[k]; ok {
			x.send(tea.KeyPressMsg(key))
			continue
		}
		for _, r := range k {
			x.send(tea.KeyPressMsg{Code: r, Text: string(r)})
		}
	}
}

// lines are the screen without its colours.
func (x *display) lines() []string { return strings.Split(ansi.Strip(x.View().Content), "\n") }

func (x *display) text() string { return strings.Join(x.lines(), "\n") }

// names are the locks on the screen, and the chosen one.
func (x *display) names() (names []string, chosen string) {
	for _, line := range x.lines() {
		fields := strings.Fields(strings.TrimPrefix(line, "> "))
		if len(fields) < 2 || urgencies[operator.State(fields[0])] == 0 && fields[0] != "expired" || strings.HasSuffix(fields[0], ":") {
			continue
		}
		names = append(names, fields[1])
		if strings.HasPrefix(line, "> ") {
			chosen = fields[1]
		}
	}
	return names, chosen
}

func (x *display) golden(name string) {
	x.t.Helper()
	var text strings.Builder
	for _, line := range x.lines() {
		require.LessOrEqual(x.t, ansi.StringWidth(line), x.width, line)
		text.WriteString(strings.TrimRight(line, " ") + "\n")
	}
	require.Len(x.t, x.lines(), x.height)
	path := filepath.Join("testdata", name+".golden")
	if *update {
		require.NoError(x.t, os.WriteFile(path, []byte(text.String()), 0o644))
	}
	want, err := os.ReadFile(path)
	require.NoError(x.t, err)
	assert.Equal(x.t, string(want), text.String())
}

// mixed is a table with 3 expired locks, 10 held ones and 40 released ones.
func (x *display) mixed() {
	var rows []Row
	for i := range 10 {
		rows = append(rows, held(fmt.Sprintf("billing/invoice-run-%04d", i), fmt.Sprintf("web-%d.example.com/4711/0c3f7c6e", i%3), 9*time.Second))
	}
	for i := range 3 {
		rows = append(rows, expired(fmt.Sprintf("stuck-%d", i), "web-9.example.com/12/7c6e"))
	}
	x.reads(rows...)
	var idle []Row
	for i := range 40 {
		idle = append(idle, released(fmt.Sprintf("order-%04d", i)))
	}
	x.send(Released{Rows: idle, At: spannerTime(x.at)})
}

// Trouble is what somebody at the terminal sees first, however many locks were released.
func TestTroubleIsFirstAndReleasedLocksAreHiddenAndCounted(t *testing.T) {
	x := open(t, 80, 24)
	x.mixed()
	names, chosen := x.names()
	require.Len(t, names, 13)
	assert.Equal(t, []string{"stuck-0", "stuck-1", "stuck-2"}, names[:3])
	assert.Equal(t, "stuck-0", chosen)
	assert.Contains(t, x.text(), "3 expired, 10 held; 40 released hidden (a: show)")
	assert.NotContains(t, x.text(), "order-")
	x.golden("mixed-80x24")
	x.press("a")
	assert.Len(t, x.woken, 1, "released locks are read anew if somebody wants to see them")
	assert.Contains(t, x.text(), "40 released as of 12:03:04Z (a: hide)")
	x.press("G")
	_, chosen = x.names()
	assert.Equal(t, "order-0039", chosen)
	x.press("a")
	assert.NotContains(t, x.text(), "order-")
}

func TestTheOrderOfTrouble(t *testing.T) {
	group := of(states.Partial, "orders/")
	group.Group = true
	late := held("i-late", "web-1", 3*time.Second)
	free := Row{Name: "h-free", Label: "h-free", State: operator.Free, Note: "3 waiting"}
	x := open(t, 100, 24)
	x.reads(held("a", "web-1", 9*time.Second), free, of(operator.Leaving, "b-leaving"), late, group, of(operator.Unconfirmed, "c-unconfirmed"),
		of(operator.Unreadable, "d-unreadable"), of(operator.Orphaned, "e-orphaned"), expired("z", "web-1"))
	names, _ := x.names()
	assert.Equal(t, []string{"z", "e-orphaned", "d-unreadable", "c-unconfirmed", "orders/", "i-late", "b-leaving", "h-free", "a"}, names)
}

// The screen always shows how old it is, and in an outage nothing on it looks like the present.
func TestAnOutageIsSaidAndNothingIsMadeUpFromOldReads(t *testing.T) {
	x := open(t, 80, 24)
	x.reads(held("nightly", "web-7", 6*time.Second), expired("stuck", "web-8"))
	assert.Equal(t, "as of 12:03:04Z by Spanner's clock, 0s ago", x.lines()[1])
	x.pass(time.Second)
	assert.Equal(t, "as of 12:03:04Z by Spanner's clock, 1s ago", x.lines()[1])
	before := x.lines()[2:]

	x.send(reading{x.at}) // it hangs
	x.pass(time.Second)
	assert.Contains(t, x.lines()[1], "as of")
	x.pass(time.Second)
	assert.Equal(t, "no answer from Spanner for 3s; data is from 12:03:04Z", x.lines()[1], "within two seconds")
	x.pass(4 * time.Second)
	assert.Equal(t, "no answer from Spanner for 7s; data is from 12:03:04Z", x.lines()[1])
	assert.Equal(t, before, x.lines()[2:], "no lease has run out by the local clock")
	x.pass(time.Hour)
	assert.Equal(t, "no answer from Spanner for 1h0m; data is from 12:03:04Z", x.lines()[1])
	content := x.View().Content
	assert.Equal(t, 1, strings.Count(content, terminal.Alarm.String()), "what is wrong is the outage: %q", content)
	assert.NotContains(t, strings.ReplaceAll(content, terminal.Alarm.String(), ""), "31m", "and nothing else is red")

	x.send(failure{errors.New("rpc error: code = Unavailable\n desc = gone")})
	assert.Equal(t, "rpc error: code = Unavailable desc = gone", x.lines()[2])
	x.golden("outage-80x24")
	x.reads(held("nightly", "web-7", 6*time.Second))
	assert.Equal(t, "as of 13:03:11Z by Spanner's clock, 0s ago", x.lines()[1])
	assert.NotContains(t, x.text(), "gone")
}

func TestBeforeTheFirstReadTheScreenSaysWhatItWaitsFor(t *testing.T) {
	x := open(t, 80, 24)
	x.send(reading{x.at})
	x.pass(time.Second)
	assert.Equal(t, "reading the table for 1s", x.lines()[1])
	x.pass(2 * time.Second)
	assert.Equal(t, "no answer from Spanner for 3s; nothing has been read yet", x.lines()[1])
	x.send(failure{errors.New("Unavailable")})
	assert.False(t, x.quit)
	x.send(failure{errors.New("Table not found: nowhere")})
	assert.True(t, x.quit)
	assert.ErrorContains(t, x.fatal, "nowhere")
}

func TestAFailureAfterAGoodReadEndsNothing(t *testing.T) {
	x := open(t, 80, 24)
	x.reads()
	assert.Contains(t, x.text(), "There are no locks in the table.")
	x.send(failure{errors.New("Table not found")})
	assert.False(t, x.quit)
}

// The keys act on the lock that was chosen, not on the one that has moved to its line.
func TestTheChosenLockStaysChosenWhereverItGoes(t *testing.T) {
	x := open(t, 80, 24)
	x.reads(held("a", "x", lease), held("b", "x", lease), held("c", "x", lease))
	x.press("j", "j", "k")
	_, chosen := x.names()
	require.Equal(t, "b", chosen)
	x.reads(held("0", "x", lease), expired("z", "x"), held("a", "x", lease), held("b", "x", lease))
	_, chosen = x.names()
	assert.Equal(t, "b", chosen)
	x.reads(expired("b", "x"), held("a", "x", lease))
	names, chosen := x.names()
	assert.Equal(t, []string{"b", "a"}, names)
	assert.Equal(t, "b", chosen)
	x.reads(held("a", "x", lease))
	_, chosen = x.names()
	assert.Equal(t, "a", chosen, "of those that are left")
}

// A user who has not chosen a lock wants to see new trouble.
func TestAtTheTopTheCursorStaysThere(t *testing.T) {
	x := open(t, 80, 12)
	var rows []Row
	for i := range 50 {
		rows = append(rows, held(fmt.Sprintf("n-%02d", i), "x", lease))
	}
	x.reads(rows...)
	x.reads(append(rows, expired("z", "x"))...)
	names, chosen := x.names()
	assert.Equal(t, "z", names[0])
	assert.Equal(t, "z", chosen)
	x.press("G", "g")
	x.reads(append(rows, expired("y", "x"), expired("z", "x"))...)
	_, chosen = x.names()
	assert.Equal(t, "y", chosen)
}

func TestScrolling(t *testing.T) {
	x := open(t, 80, 15) // ten rows
	var rows []Row
	for i := range 100 {
		rows = append(rows, held(fmt.Sprintf("n-%03d", i), "x", lease))
	}
	x.reads(rows...)
	require.Equal(t, 10, x.listRoom())
	for _, step := range []struct{ key, chosen, first, last string }{
		{"down", "n-001", "n-000", "n-009"}, {"pgdown", "n-010", "n-001", "n-010"}, {"pgdown", "n-019", "n-010", "n-019"},
		{"k", "n-018", "n-010", "n-019"}, {"pgup", "n-009", "n-009", "n-018"}, {"end", "n-099", "n-090", "n-099"},
		{"j", "n-099", "n-090", "n-099"}, {"home", "n-000", "n-000", "n-009"}, {"up", "n-000", "n-000", "n-009"},
		{"G", "n-099", "n-090", "n-099"}, {"g", "n-000", "n-000", "n-009"},
	} {
		x.press(step.key)
		names, chosen := x.names()
		assert.Equal(t, []string{step.chosen, step.first, step.last}, []string{chosen, names[0], names[len(names)-1]}, step.key)
	}
	x.press("G")
	x.send(tea.WindowSizeMsg{Width: 80, Height: 10})
	_, chosen := x.names()
	assert.Equal(t, "n-099", chosen, "after a resize")
}

func TestSorting(t *testing.T) {
	young, old, nobody := held("b", "web-2", lease), held("c", "web-1", lease), of(operator.Unconfirmed, "a")
	young.Age, old.Age, nobody.Age, nobody.Holder = time.Second, time.Hour, time.Minute, ""
	x := open(t, 80, 24)
	x.reads(young, old, nobody, expired("z", "web-3"))
	for _, want := range []string{"a b c z", "z c a b", "c b z a", "z a b c"} {
		x.press("s")
		names, _ := x.names()
		assert.Equal(t, want, strings.Join(names, " "), "by %v", x.order)
	}
}

func TestTheFilterSearchesWhatIsOnTheScreen(t *testing.T) {
	value := held("c", "web-3", lease)
	value.Value = "http://db:80"
	x := open(t, 80, 24)
	x.reads(held("Nightly", "web-1", lease), held("b", "web-2", lease), value, expired("z", "web-3"))
	for filter, want := range map[string]string{"night": "Nightly", "EXPIRED": "z", "web-3": "z c", "db:80": "c", "none": ""} {
		x.press("/", filter, "enter")
		names, _ := x.names()
		assert.Equal(t, want, strings.Join(names, " "), filter)
		assert.Contains(t, x.text(), fmt.Sprintf("%d match /%s", len(names), filter))
		x.press("esc")
		names, _ = x.names()
		assert.Len(t, names, 4, "Esc clears it")
	}
	x.press("j", "j", "/", "b", "enter")
	_, chosen := x.names()
	assert.Equal(t, "b", chosen, "the chosen lock stays chosen")
	x.press("/", "ackspace", "ctrl+u", "web-3", "enter")
	_, chosen = x.names()
	assert.Equal(t, "z", chosen, "it is not listed any more: the first")
	x.press("esc", "/", "qh?x", "backspace")
	assert.Equal(t, "/qh?█", x.lines()[23], "all keys are text")
	assert.Contains(t, x.text(), "No listed lock matches qh?.")
	x.press("ctrl+u", "two words", "ctrl+w")
	assert.Equal(t, "two ", x.filter)
	x.press("esc")
	assert.Equal(t, listing, x.mode)
	x.press("/")
	x.send(tea.PasteMsg{Content: "night\x1b[31m\n"})
	assert.Equal(t, "night[31m", x.filter, "what is pasted is harmless")
	x.press("ctrl+u", "backspace")
	assert.Equal(t, listing, x.mode)
}

func TestDetailFollowsItsLock(t *testing.T) {
	x := open(t, 80, 24)
	x.reads(held("a", "web-1", lease), held("b", "web-2", lease))
	x.press("j", "enter")
	assert.Contains(t, x.text(), "b is held by web-2")
	x.reads(held("a", "web-1", lease), held("b", "web-3", lease))
	assert.Contains(t, x.text(), "b is held by web-3")
	x.reads(held("a", "web-1", lease))
	assert.Contains(t, x.text(), "b is held by web-3\n\nThe last read did not find this lock")
	x.press("esc")
	assert.Contains(t, x.text(), "LEASE")
	x.press("enter", "q")
	assert.True(t, x.quit)
}

func TestKeysThatLeave(t *testing.T) {
	for _, key := range []string{"q", "ctrl+c"} {
		x := open(t, 80, 24)
		x.press(key)
		assert.True(t, x.quit, key)
	}
	x := open(t, 80, 24)
	x.press("/", "ctrl+z")
	assert.False(t, x.paused, "no shell could resume it")
	x.suspends = true
	x.press("ctrl+z")
	assert.True(t, x.paused)
	x.press("ctrl+c")
	assert.True(t, x.quit)
}

func TestHelpIsScrolledOnASmallScreen(t *testing.T) {
	x := open(t, 20, 10)
	x.reads(held("nightly", "web-1", lease))
	x.press("?")
	assert.Contains(t, x.text(), "Locks in trouble are")
	x.press("G")
	assert.Contains(t, x.text(), "stays there")
	x.press("g")
	x.golden("help-20x10")
	x.press("?")
	assert.NotContains(t, x.text(), "Locks in trouble")
}

func TestASmallScreenHasStatesAndTheEndsOfNames(t *testing.T) {
	x := open(t, 20, 10)
	x.mixed()
	x.golden("mixed-20x10")
	x.send(reading{x.at})
	x.pass(7 * time.Second)
	x.golden("outage-20x10")
	for _, width := range []int{0, 1, 2, 3, 8, 11, 19, 35, 36, 39, 40, 59, 60, 139, 140} {
		for _, height := range []int{0, 1, 2, 3, 4, 5, 11, 12} {
			x.send(tea.WindowSizeMsg{Width: width, Height: height})
			require.LessOrEqual(t, len(x.lines()), max(height, 1))
			for _, line := range x.lines() {
				require.LessOrEqual(t, ansi.StringWidth(line), width)
			}
		}
	}
}

// Characters of two columns don't push a line out of the screen.
func TestWideCharactersKeepTheColumns(t *testing.T) {
	x := open(t, 80, 24)
	x.reads(held("夜間バッチ/東京/"+strings.Repeat("請求", 20)+"-0001", "ウェブ-🧵", lease), held("a", "web", lease))
	at := -1
	for _, line := range x.lines()[4:6] {
		require.LessOrEqual(t, ansi.StringWidth(line), 80)
		i := ansi.StringWidth(line[:strings.Index(line, "2h10m")])
		assert.True(t, at < 0 || at == i, "the columns are below each other")
		at = i
	}
	assert.Contains(t, x.lines()[5], "-0001", "its end, where names differ")
}

func TestALeaseIsABarAsOfTheRead(t *testing.T) {
	x := open(t, 80, 24)
	x.reads(held("a", "x", 10*time.Second), held("b", "x", 5*time.Second), expired("c", "x"))
	text := x.text()
	assert.Contains(t, text, "██████████ 10s")
	assert.Contains(t, text, "█████····· 5s")
	assert.Contains(t, text, "ran out 3.0s ago")
	x.pass(time.Second)
	assert.Equal(t, strings.Replace(text, "clock, 0s ago", "clock, 1s ago", 1), x.text(), "bars don't run by the local clock")
}

func TestChangesAreBelowTheLocksIfThereIsRoom(t *testing.T) {
	x := open(t, 80, 24)
	shot := Snapshot{Rows: []Row{held("a", "x", lease)}, At: spannerTime(start), Read: start}
	for i := range 30 {
		shot.Changes = append(shot.Changes, Change{At: spannerTime(start), Label: "a", State: operator.Held, Text: fmt.Sprintf("held by %d", i)})
	}
	x.send(shot)
	assert.Contains(t, x.text(), "CHANGES (c: all)")
	assert.Contains(t, x.text(), "12:03:04.0  a  held by 29")
	assert.NotContains(t, x.text(), "held by 5\n")
	x.press("c")
	assert.Contains(t, x.text(), "held by 29")
	x.press("g")
	assert.Contains(t, x.text(), "12:03:04.0  a  held by 0\n")
}

// Released locks are read seldom: newer reads replace what is known of them.
func TestALockThatWasTakenIsNoLongerReleased(t *testing.T) {
	x := open(t, 80, 24)
	x.reads()
	x.send(Released{Rows: []Row{released("a"), released("b")}})
	assert.Contains(t, x.text(), "2 released hidden")
	x.reads(held("a", "x", lease))
	assert.Contains(t, x.text(), "1 held; 1 released hidden")
	x.reads(released("a"), released("c"))
	x.reads()
	assert.Contains(t, x.text(), "3 released hidden")
	x.press("a")
	names, _ := x.names()
	assert.Equal(t, []string{"a", "b", "c"}, names)
}

func TestALockThatIsWatchedAloneIsShownWhateverItIs(t *testing.T) {
	x := open(t, 80, 24)
	x.Table.Released = nil
	x.reads(released("nightly"))
	names, _ := x.names()
	assert.Equal(t, []string{"nightly"}, names)
	assert.NotContains(t, x.text(), "hidden")
}

// A key costs what the screen costs, however many locks there are.
func TestAKeyDrawsTheRowsOnTheScreenOnly(t *testing.T) {
	cost := func(n int) float64 {
		x := open(t, 120, 40)
		x.reads(many(n)...)
		x.press("G")
		return testing.AllocsPerRun(20, func() {
			x.press("k")
			_ = x.View()
			x.press("j")
			_ = x.View()
			x.pass(time.Millisecond)
		})
	}
	few := cost(100)
	assert.InDelta(t, few, cost(3_000), few/20)
}

func many(n int) (rows []Row) {
	for i := range n {
		rows = append(rows, held(fmt.Sprintf("billing/europe-west1/invoice-run-%05d", i), fmt.Sprintf("web-%d.example.com/4711/0c3f7c6e", i%9), 9*time.Second))
	}
	return rows
}

func BenchmarkKey(b *testing.B) {
	x := open(&testing.T{}, 120, 40)
	x.reads(many(3_000)...)
	for b.Loop() {
		x.press("j")
		_ = x.View()
	}
}

func BenchmarkSnapshot(b *testing.B) {
	x := open(&testing.T{}, 120, 40)
	rows := many(3_000)
	for b.Loop() {
		x.reads(rows...)
		_ = x.View()
	}
}
