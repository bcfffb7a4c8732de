package view

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spindle-lock/spindle/cmd/spindle/internal/commandtest"
	"github.com/spindle-lock/spindle/cmd/spindle/internal/model"
	"github.com/spindle-lock/spindle/cmd/spindle/internal/terminal"
	"github.com/spindle-lock/spindle/internal/operator"
	"github.com/spindle-lock/spindle/internal/table"
	"github.com/spindle-lock/spindle/internal/testkit/memstore"
	"github.com/spindle-lock/spindle/internal/testkit/steps"
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

// Members shows who is in the group now, each with what it published and since when it has been in the group, which may
// be longer than it has its token. Nobody else is shown, not even with a program that expects one.
func TestMembersShowsWhoIsInTheGroup(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tab, start := table.Table{Store: &memstore.Store{}}, time.Now().UTC()
		g, err := readGroup(t.Context(), tab, "orders")
		require.NoError(t, err)
		assert.Equal(t, MembersJSON{Group: "orders", At: start, Members: []memberJSON{}, Unassigned: []string{}}, membersOf(g))
		out, said := captured(t, func() { printMembers(terminal.On(os.Stdout), g, false) })
		assert.Empty(t, out)
		assert.Equal(t, "Group orders has no members, and none of its partitions has ever been held.\n", said)

		dead := steps.Join(t, tab, 0, "dead", 10*time.Second)
		steps.Take(t, tab, dead, 10*time.Second, "of-dead")
		gone := steps.Join(t, tab, 1, "gone", time.Hour)
		require.NoError(t, tab.Release(t.Context(), gone.Token, gone.Name))
		time.Sleep(time.Minute)
		old, young := steps.Join(t, tab, 2, "old", time.Hour), steps.Join(t, tab, 3, "young", time.Minute)
		seen, err := tab.Observe(t.Context(), table.SlotName("orders", 4))
		require.NoError(t, err)
		token, err := tab.Claim(t.Context(), "again", seen...)
		require.NoError(t, err)
		since := table.TokenAt(start.Add(time.Second))
		require.NoError(t, tab.Confirm(t.Context(), token, table.LeaseRecord{Lease: time.Hour, ID: "again", ListDigest: "q", Since: since}, seen[0].Name))
		again := table.LeaseRef{Name: seen[0].Name, Token: token}
		steps.Take(t, tab, old, time.Hour, "10", "9", "x")
		taken := steps.Take(t, tab, again, time.Hour, "p", "q")
		p := table.PartitionName("orders", "p")
		require.NoError(t, tab.ReleasePartitions(t.Context(), table.LeaseRef{Name: p, Token: taken}))
		_, err = tab.MarkPaused(t.Context(), again, func(table.LeaseRef) bool { return false }, p)
		require.NoError(t, err)
		require.NoError(t, tab.Announce(t.Context(), again.Token, again.Name))
		time.Sleep(30500 * time.Millisecond)
		require.NoError(t, tab.Heartbeat(t.Context(), young.Token, young.Name))

		g, err = readGroup(t.Context(), tab, "orders")
		require.NoError(t, err)
		j := membersOf(g)
		assert.Equal(t, "orders", j.Group)
		assert.WithinDuration(t, start.Add(90500*time.Millisecond), j.At, time.Millisecond)
		assert.Equal(t, []string{"of-dead"}, j.Unassigned)
		require.Len(t, j.Members, 3)
		for i, want := range []struct {
			memberJSON
			token table.Token
		}{
			{memberJSON{2, old.Name, "old", "at old", "", start.Add(time.Minute), start.Add(time.Minute), 30.5, 3600, false, "p", []string{"9", "10", "x"}, []string{}}, old.Token},
			{memberJSON{3, young.Name, "young", "at young", "", start.Add(time.Minute), start.Add(90500 * time.Millisecond), 0, 60, false, "p", []string{}, []string{}}, young.Token},
			{memberJSON{4, again.Name, "again", "", "", start.Add(time.Second), start.Add(time.Minute), 30.5, 3600, true, "q", []string{"q"}, []string{"p"}}, again.Token},
		} {
			got := j.Members[i]
			assert.Equal(t, want.token.String(), got.Token)
			assert.WithinDuration(t, want.Since, got.Since, time.Millisecond, got.ID)
			assert.WithinDuration(t, want.Heartbeat, got.Heartbeat, time.Millisecond, got.ID)
			assert.InDelta(t, want.Age, got.Age, 0.001, got.ID)
			want.Token, want.Since, want.Heartbeat, want.Age = got.Token, got.Since, got.Heartbeat, got.Age
			assert.Equal(t, want.memberJSON, got)
		}
		var b bytes.Buffer
		printMembers(&terminal.Terminal{Writer: &b}, g, false)
		assert.Equal(t, `Group orders has 3 members and 6 partitions

SLOT  STATE    TOKEN  SINCE  BEAT  LEASE   HAS  LIST  ID AND VALUE
0002  held     T  30s    30s   1h0m0s  3    A     old  at old
0003  held     T  30s    0.0s  1m0s    0    A     young  at young
0004  leaving  T  1m29s  30s   1h0m0s  1    B     again

Paused partitions (1): p

Partitions without a holder (1): of-dead
`, regexp.MustCompile(`\d{15,} |TOKEN +`).ReplaceAllStringFunc(b.String(), func(s string) string {
			if s[0] == 'T' {
				return "TOKEN  "
			}
			return "T "
		}))
		canceled, cancel := context.WithCancel(t.Context())
		cancel()
		_, err = readGroup(canceled, tab, "orders")
		assert.ErrorContains(t, err, "canceled")
	})
}

// The column LIST is only for members whose lists differ, and the same letter is the same list.
func TestListsAreShownIfTheyDiffer(t *testing.T) {
	for digests, want := range map[string]string{"x": "", "x x x": "", "x y": "A B", "x y x": "A B A", "y x x": "A B B", "x y z y": "A B C B",
		"1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 27": "A B C D E F G H I J K L M N O P Q R S T U V W X Y Z AA BB AA"} {
		var locks []operator.Listing
		for i, digest := range strings.Fields(digests) {
			m := commandtest.MemberOf(i, fmt.Sprint("web-", i), commandtest.At(100), commandtest.At(102))
			m.LeaseRecord.ListDigest = digest
			locks = append(locks, m)
		}
		var b bytes.Buffer
		printMembers(&terminal.Terminal{Writer: &b}, orderGroup(locks), false)
		assert.Equal(t, want != "", strings.Contains(b.String(), "LIST"))
		var got []string
		for _, line := range strings.Split(b.String(), "\n") {
			if f := strings.Fields(line); len(f) == 9 && f[0] != "SLOT" && f[0] != "Group" {
				got = append(got, f[7])
			}
		}
		assert.Equal(t, strings.Fields(want), append([]string{}, got...), "%s: %s", digests, b.String())
	}
}

// As many names as fit are shown without --partitions, and the number of the others.
func TestFiftyNamesAreShownUnasked(t *testing.T) {
	for _, n := range []int{1, fewNames - 1, fewNames, fewNames + 1, fewNames + 2} {
		var names []string
		for i := range n {
			names = append(names, fmt.Sprint(i))
		}
		for _, all := range []bool{false, true} {
			var b bytes.Buffer
			printNames(&terminal.Terminal{Writer: &b}, "Partitions", names, all)
			want := fmt.Sprintf("Partitions (%d): %s", n, strings.Join(names[:min(n, fewNames)], ", "))
			switch {
			case n > fewNames && all:
				want += ", " + strings.Join(names[fewNames:], ", ")
			case n > fewNames:
				want += fmt.Sprintf(" and %d more (use --partitions to see all)", n-fewNames)
			}
			assert.Equal(t, want, strings.ReplaceAll(strings.Trim(b.String(), "\n"), "\n", " "))
		}
	}
}
