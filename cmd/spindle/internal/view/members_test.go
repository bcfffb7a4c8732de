package view

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/spindle-lock/spindle/cmd/spindle/internal/commandtest"
	"github.com/spindle-lock/spindle/cmd/spindle/internal/model"
	"github.com/spindle-lock/spindle/cmd/spindle/internal/terminal"
	"github.com/spindle-lock/spindle/internal/operator"
	"github.com/spindle-lock/spindle/internal/table"
)

// orderGroup returns a group with the given locks, and with partitions that nobody has.
func orderGroup(locks []operator.Listing, nobodys ...string) *model.Group {
	for _, name := range nobodys {
		locks = append(locks, commandtest.FreeSince(table.PartitionName("orders", name), commandtest.At(90)))
	}
	_, groups := model.Gather(locks, "")
	return groups[0]
}

func TestMembersSayWhatNobodyHasAndWhoGoesByAnotherList(t *testing.T) {
	var b bytes.Buffer
	member := func(slot int, list string) operator.Listing {
		l := commandtest.MemberOf(slot, fmt.Sprintf("web-%d", slot), commandtest.At(100), commandtest.At(102))
		l.At, l.LeaseRecord.ListDigest = commandtest.At(103), list
		return l
	}
	x, y := member(0, "x"), member(1, "y")
	all := []operator.Listing{x, y, commandtest.PartitionWith(x, "10", commandtest.At(101)), commandtest.PartitionWith(x, "9", commandtest.At(101))}
	for _, name := range []string{"12", "8"} {
		p := commandtest.FreeSince(table.PartitionName("orders", name), commandtest.At(101))
		p.Paused, p.Member = true, table.LeaseRef{Name: y.Name, Token: y.Token}
		all = append(all, p)
	}
	g := orderGroup(all, "a b", "7", "11")
	printMembers(&terminal.Terminal{Writer: &b}, g, true)
	assert.Equal(t, `Group orders has 2 members and 7 partitions

SLOT  STATE  TOKEN      SINCE  BEAT  LEASE  HAS  LIST  ID AND VALUE
0000  held   100000000  3.0s   1.0s  10s    2    A     web-0
  9, 10
0001  held   100000000  3.0s   1.0s  10s    0    B     web-1

Paused partitions (2): 8, 12

Partitions without a holder (3): 7, 11, a b
`, b.String())
	b.Reset()
	printMembers(&terminal.Terminal{Writer: &b, Width: 60}, g, true)
	assert.Equal(t, 12, strings.Count(b.String(), "\n"))
	for line := range strings.Lines(b.String()) {
		assert.LessOrEqual(t, terminal.Length(line), 61, line)
	}
	j := membersOf(g)
	assert.Equal(t, []any{[]string{"9", "10"}, []string{}, []string{}, []string{"8", "12"}, []string{"7", "11", "a b"}},
		[]any{j.Members[0].Partitions, j.Members[0].Paused, j.Members[1].Partitions, j.Members[1].Paused, j.Unassigned})
}

func TestThousandsOfPartitionsThatNobodyHasAreNotNamedUnasked(t *testing.T) {
	var names []string
	for i := range 10_000 {
		names = append(names, fmt.Sprint(i))
	}
	g := orderGroup(nil, names...)
	for asked, lines := range map[bool]int{false: 5, true: 500} {
		var b bytes.Buffer
		printMembers(&terminal.Terminal{Writer: &b}, g, asked)
		assert.InDelta(t, lines, strings.Count(b.String(), "\n"), 0.9*float64(lines))
		assert.Equal(t, asked, strings.Contains(b.String(), "9999"))
		assert.Equal(t, !asked, strings.Contains(strings.ReplaceAll(b.String(), "\n", " "), " 49 and 9950 more"))
	}
}

// An operator looks for the worst, the oldest, the longest.
func TestWhatAnOperatorLooksForIsFirst(t *testing.T) {
	a := commandtest.Held("a", "zoe", commandtest.At(50), commandtest.At(102), 3*time.Second)
	b := commandtest.Held("b", "", commandtest.At(70), commandtest.At(80), 10*time.Second) // expired
	b.At = commandtest.At(103)
	c := commandtest.Held("c", "adam", commandtest.At(60), commandtest.At(101), 5*time.Second)
	c.Waiters = []table.Ticket{{Time: table.TokenAt(commandtest.At(100))}}
	free := operator.Listing{Observation: table.Observation{Name: "d", At: commandtest.At(103)}}
	for by, want := range map[string]string{"name": "abcd", "state": "bacd", "holder": "cabd", "age": "acbd", "beat": "bcad", "lease": "bcad", "waiting": "cabd"} {
		entries := func() []model.Entry {
			return []model.Entry{model.LockEntry(a), model.LockEntry(b), model.LockEntry(c), model.LockEntry(free)}
		}
		got := ""
		for _, e := range sorted(entries(), by) {
			got += e.Name
		}
		assert.Equal(t, want, got, by)
	}
	assert.Len(t, orderNames, len(orders))
	for _, s := range []operator.State{operator.Free, operator.Held, operator.Leaving, operator.Expired, operator.Released, operator.Unconfirmed, operator.Orphaned, operator.Unreadable, model.Partial} {
		assert.Contains(t, model.All, s, "each state can be chosen")
	}
}
