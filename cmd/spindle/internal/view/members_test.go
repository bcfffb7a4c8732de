package view

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/spindle-lock/spindle/cmd/spindle/internal/commandtest"
	"github.com/spindle-lock/spindle/cmd/spindle/internal/terminal"
	groups "github.com/spindle-lock/spindle/group"
)

func TestMembersSayWhatNobodyHasAndWhoGoesByAnotherList(t *testing.T) {
	var b bytes.Buffer
	member := func(slot int, list string, partitions ...string) groups.Member {
		return groups.Member{ID: fmt.Sprintf("web-%d", slot), Slot: slot, Token: 1763645616123456, Since: commandtest.At(100), Heartbeat: commandtest.At(102), Lease: commandtest.Lease, List: list, Partitions: partitions}
	}
	v := groups.View{At: commandtest.At(103), Members: []groups.Member{member(0, "x", "10", "9"), member(1, "y")}, Unassigned: []string{"a b", "7", "11"}}
	v.Members[1].Paused = []string{"12", "8"}
	printMembers(&terminal.Terminal{Writer: &b}, "orders", v, true)
	assert.Equal(t, `Group orders has 2 members and 7 partitions

SLOT  STATE  TOKEN             SINCE  BEAT  LEASE  HAS  LIST  ID AND VALUE
0000  held   1763645616123456  3.0s   1.0s  10s    2    A     web-0
  9, 10
0001  held   1763645616123456  3.0s   1.0s  10s    0    B     web-1

Paused partitions (2): 8, 12

Partitions without a holder (3): 7, 11, a b
`, b.String())
	b.Reset()
	printMembers(&terminal.Terminal{Writer: &b, Width: 60}, "orders", v, true)
	assert.Equal(t, 12, strings.Count(b.String(), "\n"))
	for line := range strings.Lines(b.String()) {
		assert.LessOrEqual(t, terminal.Length(line), 61, line)
	}
}

func TestThousandsOfPartitionsThatNobodyHasAreNotNamedUnasked(t *testing.T) {
	var v groups.View
	for i := range 10_000 {
		v.Unassigned = append(v.Unassigned, fmt.Sprint(i))
	}
	for asked, lines := range map[bool]int{false: 5, true: 500} {
		var b bytes.Buffer
		printMembers(&terminal.Terminal{Writer: &b}, "orders", v, asked)
		assert.InDelta(t, lines, strings.Count(b.String(), "\n"), 0.9*float64(lines))
		assert.Equal(t, asked, strings.Contains(b.String(), "9999"))
		assert.Equal(t, !asked, strings.Contains(strings.ReplaceAll(b.String(), "\n", " "), " 49 and 9950 more"))
	}
}
