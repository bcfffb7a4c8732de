package model

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/spindle-lock/spindle/cmd/spindle/internal/commandtest"
	"github.com/spindle-lock/spindle/cmd/spindle/internal/terminal"
	"github.com/spindle-lock/spindle/internal/operator"
	"github.com/spindle-lock/spindle/internal/table"
)

// named are rows of locks that are held for as many seconds as their number.
func named(names ...string) (all []terminal.Row) {
	for i, name := range names {
		all = append(all, LockEntry(commandtest.Held(name, "web-"+fmt.Sprint(i)+"/4711/0d1cbf0e-1111-2222-3333-444455556666", commandtest.At(1763645616-float64(i)), commandtest.At(1763645618), 10*time.Second)).Row)
	}
	return all
}

// A terminal of any width shows each lock's name, and its whole token, which release needs. No line is longer than the
// terminal is wide.
func TestAListFitsATerminalOfAnyWidth(t *testing.T) {
	all := named("orders/export/of/the/day/2026-11-22", "orders/export/of/the/day/2026-11-23", "夜間バッチ処理の名前は長い", "🚀")
	for width := 20; width < 130; width++ {
		lines := (&terminal.Columns{Names: LockColumns}).Lines(&terminal.Terminal{Width: width}, all)
		text := strings.Join(lines, "\n")
		for _, line := range lines {
			assert.LessOrEqual(t, terminal.Length(line), width, "%q", line)
		}
		for _, want := range []string{"22", "23", "1", all[0].Cells[2], all[3].Cells[2], "10s", "held"} {
			assert.Contains(t, text, want, "in %d columns", width)
		}
	}
	for width, lines := range map[int]int{0: 2, 80: 3} {
		assert.Len(t, (&terminal.Columns{Names: LockColumns}).Lines(&terminal.Terminal{Width: width}, all[:1]), lines)
	}
	card := (&terminal.Columns{Names: LockColumns}).Lines(&terminal.Terminal{Width: 20}, all[:1])
	assert.Equal(t, []string{"orders/ex…2026-11-22", "  held", "  token", "  " + all[0].Cells[2], "  since 2.0s", "  beat 0.0s", "  lease 10s", "  web-0/47…455556666"}, card)
}

// Columns are under their headings, whatever the names are written in.
func TestColumnsStayUnderEachOther(t *testing.T) {
	all := named("nightly", "夜間バッチ", "🚀 start", "e\u0301te\u0301")
	lines := (&terminal.Columns{Names: LockColumns}).Lines(&terminal.Terminal{}, all)
	column := terminal.Length(lines[0][:strings.Index(lines[0], "STATE")])
	for _, line := range lines[1:] {
		assert.Equal(t, column, terminal.Length(line[:strings.Index(line, "held")]), line)
	}
}

// A wide list has one line for each lock, however long, and nothing is cut.
func TestAWideListHasOneLineForEachLock(t *testing.T) {
	l := commandtest.Held(strings.Repeat("long/", 40)+"end", "web-1", commandtest.At(100), commandtest.At(102), 10*time.Second)
	l.LeaseRecord.Value = "http://web-1"
	l.Done.Key, l.Done.At, l.Done.By = "42", commandtest.At(90), "web-2"
	for _, width := range []int{0, 20, 80} {
		lines := (&terminal.Columns{Names: WideColumns, Wide: true}).Lines(&terminal.Terminal{Width: width}, []terminal.Row{LockEntry(l).Row})
		assert.Len(t, lines, 2)
		assert.Equal(t, strings.Fields("LOCK STATE TOKEN SINCE BEAT LEASE WAITING LAST DONE HOLDER VALUE"), strings.Fields(lines[0]))
		for _, want := range []string{l.Name, "42, ", "web-1   http://web-1"} {
			assert.Contains(t, lines[1], want)
		}
	}
}

// People and programs are told whether a waiter can be notified, and nothing else about how.
func TestAWaiterIsListedWithWhetherItCanBeNotified(t *testing.T) {
	const contact = "10.0.0.7:7700 c2VjcmV0c2VjcmV0c2VjcmU"
	for _, c := range []struct{ holder, waiter, json, text string }{
		{contact, contact, canBeNotified, ", " + canBeNotified},
		{contact, "", unnotified, ", " + unnotified},
		{"", contact, holderIsMute, ", " + holderIsMute},
		{"", "", unnotified, ""},
		{"free", contact, "", ""},
	} {
		l := operator.Listing{Observation: table.Observation{Name: "m", Exists: true, Token: 1, At: commandtest.At(100), Heartbeat: commandtest.At(100), LeaseRecord: &table.LeaseRecord{Lease: time.Minute, Notify: c.holder}}}
		if c.holder == "free" {
			l.LeaseRecord, l.Heartbeat = nil, time.Time{}
		}
		l.Waiters = []table.Ticket{{ID: "w", Time: table.TokenAt(commandtest.At(70)), Notify: c.waiter}}
		assert.Equal(t, "\n  1 process waits for it:\n    1. w, for 30s"+c.text, WaiterLines(l))
		assert.Equal(t, c.json, StatusOf(l).Waiters[0].Notified)
	}
}

// Only a holder notifies waiters, whatever else its rows say.
func TestNobodyIsNotifiedOfALockWithoutAHolder(t *testing.T) {
	l := commandtest.Held("m", "a", commandtest.At(100), commandtest.At(101), time.Minute)
	l.LeaseRecord.Notify, l.Waiters = "x", []table.Ticket{{ID: "w", Time: table.TokenAt(commandtest.At(70)), Notify: "y"}}
	for _, state := range []operator.State{operator.Held, operator.Leaving, operator.Expired, operator.Released, operator.Paused, operator.Unconfirmed, operator.Orphaned, operator.Unreadable} {
		want := ""
		l := inState(l, state)
		if l.IsHeld() {
			want = canBeNotified
		}
		assert.Equal(t, want, StatusOf(l).Waiters[0].Notified, state)
		assert.Equal(t, want != "", strings.Contains(WaiterLines(l), "notifi"), state)
	}
}

// A waiter of low priority has waited since it came, whatever its place in the queue.
func TestAWaitDoesNotDependOnItsPriority(t *testing.T) {
	for rank := range 10 {
		l := operator.Listing{Observation: table.Observation{Name: "m", At: commandtest.At(100)}}
		l.Waiters = []table.Ticket{{ID: "w", Time: table.TurnFor(table.TokenAt(commandtest.At(70)), rank), Rank: rank}}
		w := StatusOf(l).Waiters[0]
		assert.Equal(t, []any{30., commandtest.At(70).UTC(), 30.}, []any{w.Seconds, w.Since.UTC(), *JSONOf(l).LongestWait})
		assert.Equal(t, "\n  1 process waits for it:\n    1. w, for 30s", WaiterLines(l))
		assert.Equal(t, "1 waiting, longest 30s", Waiting(l))
	}
}

func TestWaitersAreListedForPeople(t *testing.T) {
	l := operator.Listing{Observation: table.Observation{Name: "m", At: commandtest.At(100)}}
	assert.Empty(t, WaiterLines(l)+Waiting(l))
	l.Waiters = []table.Ticket{{ID: "a\nb", Time: table.TokenAt(commandtest.At(70))}, {Time: table.TokenAt(commandtest.At(99)), Set: true}, {ID: "c", Time: table.TokenAt(commandtest.At(101)), Key: "42"}}
	assert.Equal(t, `
  3 processes wait for it:
    1. $'a\nb', for 30s
    2. an unknown process, for 1.0s, together with other locks
    3. c, for 0s, to do 42`, WaiterLines(l))
	assert.Equal(t, "3 waiting, longest 30s", Waiting(l))
	for range 9 {
		l.Waiters = append(l.Waiters, table.Ticket{ID: "d", Time: table.TokenAt(commandtest.At(99))})
	}
	assert.Contains(t, WaiterLines(l), "\n     1. $'a")
	assert.Contains(t, WaiterLines(l), "\n    10. d, for 1.0s\n    and 2 more")
	assert.Contains(t, WaiterLines(l), "  12 processes wait for it:")
	l.Cut = true
	assert.Contains(t, WaiterLines(l), "\n    and at least 2 more")
	for n := range len(l.Waiters) + 1 { // a number of waiters is never given as the whole one
		some := l
		some.Waiters = l.Waiters[:n]
		assert.Equal(t, n > shownWaiters, strings.Contains(WaiterLines(some), " more"), "%d waiters", n)
		for _, text := range []string{Waiting(some), WaiterLines(some)} {
			assert.True(t, n == 0 && text == "" || strings.Contains(text, fmt.Sprintf("at least %d ", n)), text)
		}
	}
}

// A term that began later than its token says, and a release that only the free row tells the time of, are shown with that time in a list,
// to programs and in sentences: an operator would otherwise look for what happened at another time.
func TestATermOrAReleaseHasOneTimeInEveryForm(t *testing.T) {
	held := commandtest.Held("l", "a", commandtest.At(90), commandtest.At(106), 10*time.Second)
	held.Began = commandtest.At(100)
	leaving, expired, claimed, freed, released := held, held, held, commandtest.FreeSince("l", commandtest.At(90)), commandtest.FreeSince("l", commandtest.At(100))
	leaving.Writer = ""
	expired.Heartbeat = commandtest.At(97)
	claimed.LeaseRecord = nil
	freed.Freed = commandtest.At(100)
	for _, c := range []struct {
		l        operator.Listing
		sentence string
		nobody   string
	}{
		{held, ", held for 7.0s;", ""}, {leaving, ", held for 7.0s;", ""}, {expired, "", "expired 0.0s ago"}, {claimed, "", "claimed by"},
		{freed, "was released 7.0s ago", "released 7.0s ago"}, {released, "was released 7.0s ago", "released 7.0s ago"},
	} {
		c.l.At = commandtest.At(107)
		assert.Equal(t, "7.0s", LockEntry(c.l).Cells[3], c.l.State())
		assert.True(t, JSONOf(c.l).Since.Equal(commandtest.At(100)), c.l.State())
		assert.Contains(t, Sentence(c.l), c.sentence)
		assert.Contains(t, Leaderless([]operator.Listing{c.l}), c.nobody)
	}
}
