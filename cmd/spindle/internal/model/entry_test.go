package model

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/spindle-lock/spindle/cmd/spindle/internal/commandtest"
	"github.com/spindle-lock/spindle/cmd/spindle/internal/terminal"
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

func TestNothingIsCutIfThatIsAskedFor(t *testing.T) {
	long := strings.Repeat("long/", 40) + "end"
	s := terminal.Columns{Names: WideColumns, Wide: true}
	for _, width := range []int{0, 20, 80} {
		text := strings.Join(s.Lines(&terminal.Terminal{Width: width}, named(long)), "\n")
		assert.Contains(t, text, long)
		assert.Contains(t, text, "444455556666")
	}
}

func TestAWideListHasOneLineForEachLock(t *testing.T) {
	l := commandtest.Held("nightly", "web-1", commandtest.At(100), commandtest.At(102), 10*time.Second)
	l.LeaseRecord.Value = "http://web-1"
	l.Done.Key, l.Done.At, l.Done.By = "42", commandtest.At(90), "web-2"
	lines := (&terminal.Columns{Names: WideColumns, Wide: true}).Lines(&terminal.Terminal{Width: 80}, []terminal.Row{LockEntry(l).Row})
	assert.Len(t, lines, 2)
	assert.Equal(t, strings.Fields("LOCK STATE TOKEN SINCE BEAT LEASE WAITING LAST DONE HOLDER VALUE"), strings.Fields(lines[0]))
	for _, want := range []string{"nightly", "42, ", "web-1   http://web-1"} {
		assert.Contains(t, lines[1], want)
	}
}

func TestColumnsFitItsWidth(t *testing.T) {
	long := commandtest.Held("a-lock-with-a-name-that-is-much-too-long-for-a-line", "host.example.com/4711/0c3f7c6e-8f0e-4e0b-9d57-1f4b7a4f2f11", commandtest.At(1.7e9), commandtest.At(1.7e9+1), 10*time.Second)
	for _, width := range []int{60, 80, 200} {
		for _, line := range (&terminal.Columns{Names: LockColumns}).Lines(&terminal.Terminal{Width: width}, []terminal.Row{LockEntry(long).Row}) {
			assert.LessOrEqual(t, terminal.Length(line), width, line)
		}
	}
	assert.Len(t, (&terminal.Columns{Names: LockColumns}).Lines(&terminal.Terminal{Width: 80}, []terminal.Row{LockEntry(long).Row}), 3)
	assert.Len(t, (&terminal.Columns{Names: LockColumns}).Lines(&terminal.Terminal{}, []terminal.Row{LockEntry(long).Row}), 2)
}
