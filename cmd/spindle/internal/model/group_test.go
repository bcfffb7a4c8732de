package model

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/spindle-lock/spindle/cmd/spindle/internal/commandtest"
	"github.com/spindle-lock/spindle/cmd/spindle/internal/terminal"
	"github.com/spindle-lock/spindle/internal/operator"
	"github.com/spindle-lock/spindle/internal/table"
)

func TestAGroupIsOneEntryAndTheWorstOfItsLocksIsItsState(t *testing.T) {
	a, b := commandtest.MemberOf(0, "a", commandtest.At(100), commandtest.At(103)), commandtest.MemberOf(2, "b", commandtest.At(101), commandtest.At(102))
	b.At = commandtest.At(103)
	free := commandtest.FreeSince(table.PartitionName("orders", "free"), commandtest.At(103))
	paused := commandtest.FreeSince(table.PartitionName("orders", "paused"), commandtest.At(103))
	paused.Paused, paused.Member = true, table.LeaseRef{Name: a.Name, Token: a.Token}
	silent := commandtest.MemberOf(1, "c", commandtest.At(50), commandtest.At(60))
	silent.At = commandtest.At(103)
	orphan := operator.Listing{Observation: table.Observation{Name: table.PartitionName("orders", "orphan"), At: commandtest.At(103)}, Adrift: true}
	foreign := commandtest.Held(table.SlotName("orders", 9), "no member", commandtest.At(100), commandtest.At(103), commandtest.Lease)
	foreignPartition := commandtest.Held(table.PartitionName("orders", "plain"), "no member", commandtest.At(100), commandtest.At(103), commandtest.Lease)
	of := func(prefix string, found ...operator.Listing) (locks []string, sums []string) {
		l, groups := Gather(found, prefix)
		for _, lock := range l {
			locks = append(locks, lock.Name)
		}
		for _, g := range groups {
			sums = append(sums, fmt.Sprintf("%s %s %s", g.JSON.Name, g.JSON.State, g.Sum()))
		}
		return locks, sums
	}
	p10, p9 := commandtest.PartitionWith(a, "10", commandtest.At(101)), commandtest.PartitionWith(b, "9", commandtest.At(102))
	for want, found := range map[string][]operator.Listing{
		"orders/ held 2 members, 2 partitions":                                         {a, b, p10, p9},
		"orders/ partial 2 members, 3 partitions, 1 without a holder":                  {a, b, p10, p9, free},
		"orders/ partial 1 member, 2 partitions, 1 without a holder, 1 member expired": {a, silent, p10, commandtest.PartitionWith(silent, "9", commandtest.At(55))},
		"orders/ expired 0 members, 1 partition, 1 without a holder, 1 member expired": {silent, commandtest.PartitionWith(silent, "9", commandtest.At(55))},
		"orders/ orphaned 2 members, 3 partitions, 1 without a holder":                 {a, b, p10, p9, orphan},
		"orders/ released 0 members, 1 partition, 1 without a holder":                  {commandtest.FreeSince(a.Name, commandtest.At(103)), free},
		"orders/ held 2 members, 3 partitions, 1 paused":                               {a, b, p10, p9, paused},
		"orders/ held 1 member, 0 partitions":                                          {a},
	} {
		for _, prefix := range []string{"", "ord", "orders/"} {
			locks, sums := of(prefix, found...)
			assert.Empty(t, locks)
			assert.Equal(t, []string{want}, sums)
		}
		locks, sums := of("orders/p", found...)
		assert.Len(t, locks, len(found), "a prefix of what is in it opens it")
		assert.Empty(t, sums)
	}
	locks, sums := of("", a, foreign, p10, foreignPartition)
	assert.Equal(t, []string{foreign.Name, foreignPartition.Name}, locks, "they only have such names")
	assert.Equal(t, []string{"orders/ held 1 member, 1 partition"}, sums)

	_, groups := Gather([]operator.Listing{a, b, p10, p9}, "")
	e := groups[0].Entry()
	assert.Equal(t, []string{"orders/", "held", "-", "3.0s", "1.0s", "10s"}, e.Cells, "as old as its oldest member, as late as its latest")
	assert.Equal(t, "9", groups[0].PartitionEntries()[0].Cells[0], "9 before 10")
}

// Partitions with numbers are in the order of the numbers, and others in the order of their names; the order does not depend on
// which of two comes first.
func TestPartitionsAreInTheOrderOfTheirNumbers(t *testing.T) {
	number := func(s string) (n int, is bool) {
		_, err := fmt.Sscanf(s, "%d", &n)
		return n, err == nil && fmt.Sprint(n) == s
	}
	names := []string{"0", "1", "9", "10", "11", "99", "100", "a", "z", "aa", "1a", "a1", "-1", ""}
	for _, a := range names {
		for _, b := range names {
			want := strings.Compare(a, b)
			if x, is := number(a); is && x >= 0 {
				if y, is := number(b); is && y >= 0 {
					want = x - y
				}
			}
			assert.Equal(t, min(max(want, -1), 1), byNumber(a, b), "%q %q", a, b)
		}
	}
}

func TestAGroupIsNamedAsItIsOrAsLsShowsIt(t *testing.T) {
	for arg, want := range map[string]string{"orders": "orders", "orders/": "orders", "a%2Fb/": "a/b", "a%2Fb": "a%2Fb", "a b/": "a b"} {
		name, err := GroupNamed(arg)
		assert.NoError(t, err)
		assert.Equal(t, want, name)
	}
	for _, want := range []string{"orders", "a/b", "a b", "a+b", "a%2Fb", "%", "a&b=c", "夜間", "a?b#c", ".", "a//"} {
		name, err := GroupNamed(table.GroupPrefix(want))
		assert.NoError(t, err)
		assert.Equal(t, want, name, "as ls shows it")
	}
	_, err := GroupNamed("")
	assert.Error(t, err)
}

func TestAPartitionThatNobodyHasSaysWhy(t *testing.T) {
	m := table.LeaseRef{Name: "orders/member/0003", Token: 7}
	over, adrift := commandtest.FreeSince("orders/partition/17", commandtest.At(100)), commandtest.Held("orders/partition/17", "", commandtest.At(90), commandtest.At(100), commandtest.Lease)
	over.Member, over.At = m, commandtest.At(103)
	adrift.Member, adrift.Adrift = m, true
	assert.Equal(t, "orders/partition/17 is free: the member that held it, orders/member/0003, ended its term at least 3.0s ago", Sentence(over))
	assert.Contains(t, Sentence(adrift), "the lock row of its member, orders/member/0003, was deleted")
}

// inState puts a member or a partition into a state.
func inState(l operator.Listing, state operator.State) operator.Listing {
	if l.LeaseRecord != nil {
		record := *l.LeaseRecord
		l.LeaseRecord = &record
	}
	switch state {
	case operator.Leaving:
		l.LeaseRecord.ID, l.Writer = l.Writer, ""
	case operator.Expired:
		l.Heartbeat = l.At.Add(-l.LeaseRecord.Lease)
	case operator.Released:
		l.Heartbeat, l.Writer, l.LeaseRecord = time.Time{}, "", nil
	case operator.Paused:
		l.Heartbeat, l.Writer, l.LeaseRecord, l.Paused = time.Time{}, "", nil, true
	case operator.Unconfirmed:
		l.LeaseRecord = nil
	case operator.Orphaned:
		l.Adrift = true
	case operator.Unreadable:
		l.LeaseRecord, l.Unreadable = nil, fmt.Errorf("no lease")
	}
	return l
}

// Every combination of states of a member and two partitions gives the counts and the state of the group that the help of ls
// promises: an alert on a group without a holder relies on them.
func TestTheStateOfAGroupIsThatOfItsMembersAndPartitions(t *testing.T) {
	states := []operator.State{operator.Held, operator.Leaving, operator.Expired, operator.Released, operator.Paused, operator.Unconfirmed, operator.Orphaned, operator.Unreadable}
	m := commandtest.MemberOf(0, "a", commandtest.At(100), commandtest.At(103))
	for _, member := range states {
		if member == operator.Paused {
			continue
		}
		for _, one := range states {
			for _, two := range append(states, "") { // "": there is only one
				found := []operator.Listing{inState(m, member), inState(commandtest.PartitionWith(m, "1", commandtest.At(101)), one)}
				all := []operator.State{one}
				if two != "" {
					found, all = append(found, inState(commandtest.PartitionWith(m, "2", commandtest.At(101)), two)), append(all, two)
				}
				_, groups := Gather(found, "")
				if !assert.Len(t, groups, 1) {
					return
				}
				n := func(of ...operator.State) (n int) {
					for _, s := range all {
						if slices.Contains(of, s) {
							n++
						}
					}
					return n
				}
				here := 0
				if member == operator.Held || member == operator.Leaving {
					here = 1
				}
				held, nobodys := n(operator.Held, operator.Leaving), n(operator.Expired, operator.Released, operator.Unconfirmed, operator.Orphaned, operator.Unreadable)
				everyone := append(slices.Clone(all), member)
				want := operator.Released
				switch {
				case slices.Contains(everyone, operator.Unreadable):
					want = operator.Unreadable
				case slices.Contains(everyone, operator.Orphaned):
					want = operator.Orphaned
				case here > 0 && nobodys == 0:
					want = operator.Held
				case here > 0, held > 0:
					want = Partial
				case slices.Contains(everyone, operator.Expired):
					want = operator.Expired
				}
				g := groups[0]
				what := fmt.Sprint(member, " ", all)
				assert.Equal(t, GroupJSON{Name: "orders/", State: want, Group: "orders", Members: here, Partitions: len(all), WithoutHolder: nobodys, Paused: n(operator.Paused), At: m.At.UTC()}, g.JSON, what)
				for _, s := range states {
					assert.Equal(t, n(s), g.PerState[s], what)
				}
				sum := terminal.Count(here, "member") + ", " + terminal.Count(len(all), "partition")
				for _, part := range []struct {
					n    int
					text string
				}{{nobodys, "%d without a holder"}, {n(operator.Paused), "%d paused"}} {
					if part.n > 0 {
						sum += ", " + fmt.Sprintf(part.text, part.n)
					}
				}
				if member == operator.Leaving || member == operator.Expired {
					sum += ", 1 member " + string(member)
				}
				e := g.Entry()
				assert.Equal(t, []any{sum, "group: " + sum, "group: " + sum, want, Styles[want], g.JSON}, []any{g.Sum(), e.Tail, e.Last, e.State, e.Style, e.Object}, what)
			}
		}
	}
}

// A list has each lock exactly once, in its place: alone, or in its group, whatever other groups are beside it.
func TestEachLockIsGatheredOnce(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 0))
	for range 30 {
		var found []operator.Listing
		want := map[string][]string{}
		for _, group := range []string{"a", "b", "b b", "b1", "c"} {
			prefix := table.GroupPrefix(group)
			m := commandtest.MemberOf(0, "m", commandtest.At(100), commandtest.At(103))
			for slot := range random.IntN(3) {
				m.Name = table.SlotName(group, slot)
				found = append(found, m)
				want[prefix] = append(want[prefix], m.Name)
			}
			for _, p := range []string{"10", "9", "x", "1"}[:random.IntN(5)] {
				l := commandtest.PartitionWith(m, p, commandtest.At(101))
				l.Name, l.Member.Name = table.PartitionName(group, p), table.SlotName(group, random.IntN(3))
				found = append(found, l)
				want[prefix] = append(want[prefix], l.Name)
			}
			if random.IntN(2) == 0 {
				found = append(found, commandtest.Held(table.PartitionName(group, "none"), "x", commandtest.At(100), commandtest.At(103), time.Second), commandtest.FreeSince(group+"lock", commandtest.At(100)))
				want[""] = append(want[""], table.PartitionName(group, "none"), group+"lock")
			}
		}
		slices.SortFunc(found, func(a, b operator.Listing) int { return strings.Compare(a.Name, b.Name) })
		locks, groups := Gather(found, "")
		got := map[string][]string{}
		for _, l := range locks {
			got[""] = append(got[""], l.Name)
		}
		for _, g := range groups {
			assert.NotContains(t, got, g.JSON.Name)
			has, members := g.Has(operator.Held), []string{}
			for i, l := range g.Members {
				got[g.JSON.Name] = append(got[g.JSON.Name], l.Name)
				members = append(members, l.Name)
				row := g.MemberEntries()[i]
				assert.Equal(t, []string{fmt.Sprintf("%04d", i), "held"}, row.Cells[:2])
				assert.Equal(t, []any{fmt.Sprint(len(has[l.Name])), Names(has[l.Name])}, []any{row.Cells[6], row.Below})
			}
			order := g.Named(func(operator.Listing) bool { return true })
			for i, l := range g.Partitions {
				got[g.JSON.Name] = append(got[g.JSON.Name], l.Name)
				assert.Equal(t, 1, strings.Count(" "+strings.Join(has[l.Member.Name], " ")+" ", " "+order[i]+" "), "a member has its own partitions")
				assert.Equal(t, []string{order[i], l.Member.Name[len(l.Member.Name)-4:]}, []string{g.PartitionEntries()[i].Cells[0], g.PartitionEntries()[i].More[0]})
			}
			sorted := []string{}
			for _, p := range []string{"1", "9", "10", "x"} {
				if slices.Contains(order, p) {
					sorted = append(sorted, p)
				}
			}
			assert.Equal(t, sorted, order, "9 before 10; and in JSON, none is not null")
			assert.True(t, slices.IsSorted(members))
		}
		for _, all := range []map[string][]string{want, got} {
			for _, names := range all {
				slices.Sort(names)
			}
		}
		assert.Equal(t, slices.Sorted(maps.Keys(want)), slices.Sorted(maps.Keys(got)))
		assert.Equal(t, want, got)
	}
}

// The line of a group shows the oldest term, the longest silence and the longest lease of its live members, and nothing of
// those that are gone. A member that was renewed under another token has been there since its first one.
func TestTheLineOfAGroupShowsTheExtremesOfItsLiveMembers(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 0))
	for range 500 {
		var found []operator.Listing
		oldest, silent, longest := time.Duration(0), time.Duration(0), time.Duration(0)
		for slot := range random.IntN(4) {
			token, since := time.Duration(1+random.IntN(50))*time.Minute, time.Duration(0)
			beat, lease := time.Duration(random.IntN(40))*time.Second, time.Duration(1+random.IntN(40))*time.Second
			m := commandtest.MemberOf(slot, "m", commandtest.At(10000-token.Seconds()), commandtest.At(10000-beat.Seconds()))
			m.At, m.LeaseRecord.Lease = commandtest.At(10000), lease
			if random.IntN(2) == 0 {
				since = token + time.Minute
				m.LeaseRecord.Since = table.TokenAt(commandtest.At(10000 - since.Seconds()))
			}
			if random.IntN(4) == 0 {
				m = inState(m, operator.Released)
			}
			if found = append(found, m); m.IsHeld() {
				oldest, silent, longest = max(oldest, token, since), max(silent, beat), max(longest, lease)
			}
		}
		if _, groups := Gather(found, ""); len(groups) > 0 {
			e := groups[0].Entry()
			want := []string{"orders/", string(groups[0].JSON.State), "-", "-", "-", "-"}
			if groups[0].JSON.Members > 0 {
				want = append(want[:3], terminal.Short(oldest), terminal.Short(silent), longest.String())
				assert.Equal(t, []any{commandtest.At(10000).Add(-oldest).UTC(), longest}, []any{e.Since().UTC(), e.LeaseRecord.Lease}, "ls --sort age relies on it")
			}
			assert.Equal(t, want, e.Cells)
		}
	}
}

// The row of a partition names its holder and the slot of its member as long as that has it. Of a released one, nobody knows
// whether its slot is still in use by the same member. Programs get the group, the partition and its last member in every state.
func TestThePartitionsOfAGroupAreListedWithTheirHolders(t *testing.T) {
	m := commandtest.MemberOf(3, "a\x1b", commandtest.At(100), commandtest.At(103))
	p := commandtest.PartitionWith(m, "1\x1b", commandtest.At(101))
	for state, want := range map[operator.State][]string{
		operator.Held:        {"0003", `0003  $'a\x1b'`, `$'a\x1b'`, "101000000"},
		operator.Leaving:     {"0003", `0003  $'a\x1b'`, `$'a\x1b'`, "101000000"},
		operator.Expired:     {"0003", `0003  $'a\x1b'`, `$'a\x1b'`, "101000000"},
		operator.Released:    {"-", "", "-", "-"},
		operator.Paused:      {"0003", "0003", "-", "-"},
		operator.Unconfirmed: {"0003", `0003  $'a\x1b'`, `$'a\x1b'`, "101000000"},
		operator.Orphaned:    {"0003", `0003  $'a\x1b'`, `$'a\x1b'`, "101000000"},
		operator.Unreadable:  {"0003", `0003  $'a\x1b'`, `$'a\x1b'`, "101000000"},
	} {
		l := inState(p, state)
		assert.True(t, IsPartition(l), state)
		_, groups := Gather([]operator.Listing{l}, "")
		e := groups[0].PartitionEntries()[0]
		assert.Equal(t, []string{`$'1\x1b'`, string(state), want[3], "2.0s"}, e.Cells)
		assert.Equal(t, want[:3], []string{e.More[0], e.Tail, e.Last}, state)
		assert.Equal(t, []any{state, Styles[state], JSONOf(l)}, []any{e.State, e.Style, e.Object})
		assert.Equal(t, partJSON{"orders", "1\x1b", m.Name}, JSONOf(l).partJSON, state)
		assert.Equal(t, partJSON{Group: "orders"}, JSONOf(inState(m, state)).partJSON, state)
	}
	alone := p
	alone.Member = table.LeaseRef{}
	for _, state := range []operator.State{operator.Released, operator.Unconfirmed, operator.Unreadable} {
		assert.Equal(t, "-", (&Group{Partitions: []operator.Listing{inState(alone, state)}}).PartitionEntries()[0].More[0], "its rows name no member")
	}
	assert.Equal(t, []string{"", `a, $'b\x1b', c`}, []string{Names(nil), Names([]string{"a", "b\x1b", "c"})})
	for _, l := range []operator.Listing{m, commandtest.Held(p.Name, "x", commandtest.At(1), commandtest.At(2), time.Second), commandtest.Held("l", "x", commandtest.At(1), commandtest.At(2), time.Second)} {
		assert.False(t, IsPartition(l), l.Name)
	}
	full := m
	full.LeaseRecord = &table.LeaseRecord{Lease: commandtest.Lease, ListDigest: "p", Value: "v"}
	e := (&Group{Members: []operator.Listing{full}, Partitions: []operator.Listing{inState(p, operator.Leaving), inState(p, operator.Expired)}}).MemberEntries()[0]
	assert.Equal(t, []string{"0003", "held", "100000000", "3.0s", "0.0s", "10s", "1"}, e.Cells)
	assert.Equal(t, []any{[]string{`$'a\x1b'`}, `$'a\x1b'  v`, "v", `$'1\x1b'`, JSONOf(full), Styles[operator.Held]}, []any{e.More, e.Tail, e.Last, e.Below, e.Object, e.Style})
}
