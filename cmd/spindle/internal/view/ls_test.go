package view

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spindle-lock/spindle/cmd/spindle/internal/commandtest"
	"github.com/spindle-lock/spindle/cmd/spindle/internal/database"
	"github.com/spindle-lock/spindle/cmd/spindle/internal/model"
	"github.com/spindle-lock/spindle/cmd/spindle/internal/terminal"
	"github.com/spindle-lock/spindle/internal/operator"
	"github.com/spindle-lock/spindle/internal/table"
	"github.com/spindle-lock/spindle/internal/testkit/memstore"
	"github.com/spindle-lock/spindle/internal/testkit/steps"
)

// lsOf returns ls as a command line asks for it, and what is wrong with that command line.
func lsOf(args ...string) (*listing, error) {
	ls, c := &listing{Database: &database.Database{Timeout: time.Second}}, &cobra.Command{}
	ls.flags(c)
	if err := c.ParseFlags(args); err != nil {
		return nil, err
	}
	ls.selected.prefix = strings.Join(c.Flags().Args(), "")
	return ls, ls.check(c)
}

// printed is what ls prints of what was found.
func printed(t *testing.T, found []operator.Listing, args ...string) string {
	t.Helper()
	ls, err := lsOf(args...)
	require.NoError(t, err)
	var b bytes.Buffer
	require.NoError(t, ls.print(&terminal.Terminal{Writer: &b}, found))
	return b.String()
}

// captured is what f writes to standard output and to standard error.
func captured(t *testing.T, f func()) (stdout, stderr string) {
	t.Helper()
	folder, texts := t.TempDir(), []*string{&stdout, &stderr}
	for i, file := range []**os.File{&os.Stdout, &os.Stderr} {
		was, name := *file, fmt.Sprint(folder, "/", i)
		to, err := os.Create(name)
		require.NoError(t, err)
		*file = to
		defer func() {
			*file = was
			require.NoError(t, to.Close())
			text, err := os.ReadFile(name)
			require.NoError(t, err)
			*texts[i] = string(text)
		}()
	}
	f()
	return "", ""
}

// eachState fills a table with a lock or a group in each state, and returns these states, and the locks that have a waiter.
func eachState(t *testing.T, tab table.Table) (states map[string]operator.State, waited map[string]bool) {
	hold := func(name string, lease time.Duration) table.Token { return steps.Hold(t, tab, name, lease) }
	wait := func(name string) {
		require.NoError(t, tab.Queue(t.Context(), table.Ticket{Queue: name, Time: table.TokenAt(time.Now()), Nonce: "n", ID: "w"}.Put()))
	}
	for _, name := range []string{"released", "released-waited"} {
		require.NoError(t, tab.Release(t.Context(), hold(name, time.Hour), name))
	}
	for _, name := range []string{"released-waited", "free-waited", "held-waited"} {
		wait(name)
	}
	require.NoError(t, tab.Finish(t.Context(), hold("free-done", time.Hour), 0, "free-done", table.Due{Key: "7"}, "a"))
	steps.Drop(t, tab, "free-done")
	hold("orphaned", time.Hour)
	steps.Drop(t, tab, "orphaned")
	unreadable := table.LeaseKey("unreadable", hold("unreadable", time.Hour))
	require.NoError(t, tab.Store.Commit(t.Context(), "test", []table.Write{{Kind: table.Update, Name: unreadable, Set: []table.Cell{{Column: table.ColWriter, Value: "?"}}}}))
	hold("expired", time.Second)
	member := steps.Join(t, tab, 0, "a", time.Hour)
	token := steps.Take(t, tab, member, time.Hour, "p", "q")
	require.NoError(t, tab.ReleasePartitions(t.Context(), table.LeaseRef{Name: table.PartitionName("orders", "q"), Token: token}))
	for group, lease := range map[string]time.Duration{"left": 0, "lost": time.Second, "owned": time.Hour} {
		slot := table.SlotName(group, 0)
		seen, err := tab.Observe(t.Context(), slot)
		require.NoError(t, err)
		token, err := tab.Claim(t.Context(), "m", seen...)
		require.NoError(t, err)
		require.NoError(t, tab.Confirm(t.Context(), token, table.LeaseRecord{Lease: max(lease, time.Second), ListDigest: "p"}, slot))
		if lease == 0 {
			require.NoError(t, tab.Release(t.Context(), token, slot))
		}
	}
	require.NoError(t, tab.Announce(t.Context(), hold("leaving", time.Hour), "leaving"))
	for _, name := range []string{"held", "held-waited"} {
		hold(name, time.Hour)
	}
	time.Sleep(2 * time.Second)
	steps.Claim(t, tab, "unconfirmed")
	return map[string]operator.State{
		"released": operator.Released, "released-waited": operator.Released, "free-waited": operator.Free, "free-done": operator.Free, "orphaned": operator.Orphaned,
		"unreadable": operator.Unreadable, "expired": operator.Expired, "leaving": operator.Leaving, "held": operator.Held, "held-waited": operator.Held,
		"unconfirmed": operator.Unconfirmed, "orders/": model.Partial, "left/": operator.Released, "lost/": operator.Expired, "owned/": operator.Held,
	}, map[string]bool{"released-waited": true, "free-waited": true, "held-waited": true}
}

// Ls lists each lock that the command line asks for, and no other: a script that acts on the list must not miss one. This
// includes what the table is asked for, because most requests leave out the locks that nobody uses. It is so for --watch too.
func TestLsListsExactlyWhatItIsAskedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tab := table.Table{Store: &memstore.Store{}}
		states, waited := eachState(t, tab)
		chosen := [][]operator.State{nil}
		for i, a := range model.All {
			chosen = append(chosen, []operator.State{a})
			for _, b := range model.All[i+1:] {
				chosen = append(chosen, []operator.State{b, a})
			}
		}
		for _, prefix := range []string{"", "o", "orders/", "released", "free-", "held", "nothing"} {
			for _, in := range chosen {
				for _, all := range []bool{false, true} {
					args := []string{prefix}
					if in != nil {
						args = append(args, "--state", strings.Join(texts(in), ","))
					}
					if all {
						args = append(args, "--all")
					}
					var want []string
					for _, name := range slices.Sorted(maps.Keys(states)) {
						unused := (states[name] == operator.Released || states[name] == operator.Free) && !waited[name] && !strings.HasSuffix(name, "/")
						if strings.HasPrefix(name, prefix) && (slices.Contains(in, states[name]) || in == nil && (all || !unused)) {
							want = append(want, name)
						}
					}
					ls, err := lsOf(args...)
					require.NoError(t, err)
					found, _, err := operator.List(t.Context(), tab, ls.selected.prefix, ls.selected.idle())
					require.NoError(t, err)
					watched, _, err := ls.follow(nil).read(t.Context(), tab)
					require.NoError(t, err)
					for _, found := range [][]operator.Listing{found, watched} {
						require.Equal(t, want, each(ls.entries(found), func(e model.Entry) string { return e.Name }), "ls %q", args)
					}
				}
			}
		}
	})
}

// The mistakes of a command line are said before the database is asked, and a flag that is not given changes nothing.
func TestLsRefusesWhatContradictsItself(t *testing.T) {
	long := strings.Repeat("x", table.MaxName)
	for _, c := range []struct {
		args  []string
		wrong string // part of the error, or "" if there is none
	}{
		{nil, ""}, {[]string{"billing/"}, ""}, {[]string{long}, ""}, {[]string{long + "x"}, "no lock name begins with"}, {[]string{"\xff"}, "no lock name begins with"},
		{[]string{"--watch"}, ""}, {[]string{"--watch", "-o", "wide"}, ""}, {[]string{"-o", "json"}, ""}, {[]string{"-o", "name"}, ""},
		{[]string{"--watch", "-o", "json"}, "--watch works only with -o table and -o wide"}, {[]string{"--watch", "-o", "name"}, "--watch works only with -o table and -o wide"},
		{[]string{"--group", "a b"}, ""}, {[]string{"--group", "a b", "--watch"}, "use spindle watch --prefix a%20b/"},
		{[]string{"--group", "orders", "x"}, `give only one of the prefix "x" and --group "orders"`}, {[]string{"--group", "\x00"}, "group "},
		{[]string{"--group", "orders", "--state", "held,partial"}, "--state partial applies only to groups"},
		{[]string{"--group", "orders", "--state", "held,paused"}, ""}, {[]string{"--state", "partial"}, ""},
	} {
		ls, err := lsOf(c.args...)
		if c.wrong != "" {
			var e *terminal.Exit
			require.ErrorAs(t, err, &e, "%q", c.args)
			assert.Equal(t, terminal.Misused, e.Code, "%q", c.args)
			assert.ErrorContains(t, err, c.wrong, "%q", c.args)
			continue
		}
		require.NoError(t, err, "%q", c.args)
		assert.Equal(t, map[bool]string{true: "state", false: "name"}[ls.watch], ls.by.Value, "%q", c.args)
	}
	ls, err := lsOf("--watch", "--sort", "name")
	require.NoError(t, err)
	assert.Equal(t, "name", ls.by.Value, "it was asked for")
	ls, err = lsOf("--group", "a%20b/")
	require.NoError(t, err)
	assert.Equal(t, "a%20b/", ls.selected.prefix)
	assert.Equal(t, "a b", ls.selected.group)
}

// An empty list says what was looked for, and mentions --all only to somebody whom it could help.
func TestAnEmptyListSaysWhatWasLookedFor(t *testing.T) {
	for want, args := range map[string][]string{
		"No lock in the table is in use. To list released locks, use --all.":                                     nil,
		"There are no locks in the table.":                                                                       {"--all"},
		"There are no locks in the table with a name that begins with b.":                                        {"--all", "b"},
		"No lock in the table is held.":                                                                          {"--state", "held"},
		"No lock in the table is held, leaving or free.":                                                         {"--state", "held,leaving", "--state", "free", "--all"},
		`No lock in the table with a name that begins with $'a\a' is in use. To list released locks, use --all.`: {"a\a"},
		"No lock in the table with a name that begins with b is expired.":                                        {"b", "--state", "expired"},
		"There is no group a b in the table.":                                                                    {"--group", "a%20b/", "--state", "held"},
	} {
		ls, err := lsOf(args...)
		require.NoError(t, err)
		assert.Equal(t, want, ls.selected.none(), "%q", args)
		if ls.selected.group == "" {
			out, said := captured(t, func() { assert.NoError(t, ls.print(terminal.On(os.Stdout), nil)) })
			assert.Empty(t, out)
			assert.Equal(t, want+"\n", said)
		}
	}
}

// A flag can be given several times, and one word that is no state refuses it. A state is offered to complete the flag
// unless the flag has it.
func TestTheStatesOfTheFlagAreTheWordsInIt(t *testing.T) {
	var in inStates
	require.NoError(t, in.Set("held,leaving"))
	require.NoError(t, in.Set("free"))
	assert.Equal(t, "held,leaving,free", in.String())
	for _, wrong := range []string{"", "held,", ",held", "Held", "held leaving", "held,lost"} {
		assert.ErrorContains(t, new(inStates).Set(wrong), "is not a state; use unreadable, orphaned, expired, partial, unconfirmed, leaving, paused, held, released or free", "%q", wrong)
	}
	for i, a := range model.All {
		for _, b := range model.All[i+1:] {
			for begun, has := range map[string][]operator.State{"": nil, "x": nil, string(a): nil, string(a) + ",": {a}, string(b) + "," + string(a) + ",": {a, b}, string(b) + "," + string(a) + ",r": {a, b}} {
				var want []cobra.Completion
				for _, s := range model.All {
					if !slices.Contains(has, s) {
						want = append(want, begun[:strings.LastIndex(begun, ",")+1]+string(s))
					}
				}
				assert.Equal(t, want, in.Complete(begun), "%q", begun)
			}
		}
	}
}

// somebody returns a lock or a group of random properties.
func somebody(random *rand.Rand, name string) model.Entry {
	n := func() int { return random.IntN(4) }
	token, beat := commandtest.At(float64(90+n())), commandtest.At(float64(95+n()))
	l := commandtest.Held(name, []string{"", "adam", "eve", "zoe"}[n()], token, beat, time.Duration(2+n())*3*time.Second)
	if l.At = commandtest.At(100); random.IntN(2) == 0 {
		l.Began = commandtest.At(float64(90 + n()))
	}
	for range n() {
		l.Waiters = append(l.Waiters, table.Ticket{Time: table.TokenAt(commandtest.At(float64(60 + 10*n())))})
	}
	switch random.IntN(8) {
	case 0:
		l.Heartbeat, l.LeaseRecord, l.Writer = time.Time{}, nil, ""
	case 1:
		l.LeaseRecord = nil
	case 2:
		l = operator.Listing{Observation: table.Observation{Name: name, At: l.At}, Waiters: l.Waiters}
	case 3:
		l.Unreadable = table.ErrNewer
	}
	return model.LockEntry(l)
}

// Each order of --sort puts first what an operator looks for, last what has no such property, and the rest in the order of
// the names: compared with a sort by one number for each entry.
func TestEachOrderIsByOneProperty(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	const none = 1e18
	states := []string{"unreadable", "orphaned", "expired", "partial", "unconfirmed", "leaving", "paused", "held", "released", "free"}
	keys := map[string]func(model.Entry) []float64{
		"name":  func(model.Entry) []float64 { return nil },
		"state": func(e model.Entry) []float64 { return []float64{float64(slices.Index(states, string(e.State)))} },
		"holder": func(e model.Entry) []float64 {
			if e.Holder() == "" {
				return []float64{none}
			}
			return []float64{float64(e.Holder()[0])}
		},
		"age": func(e model.Entry) []float64 {
			if e.Token == 0 {
				return []float64{none}
			}
			return []float64{float64(e.Since().UnixMicro())}
		},
		"beat": func(e model.Entry) []float64 {
			if e.Heartbeat.IsZero() {
				return []float64{none}
			}
			return []float64{float64(e.Heartbeat.UnixMicro())}
		},
		"lease": func(e model.Entry) []float64 {
			if e.LeaseRecord == nil {
				return []float64{0}
			}
			return []float64{-e.LeaseRecord.Lease.Seconds()}
		},
		"waiting": func(e model.Entry) []float64 {
			longest := 0.0
			for _, w := range e.Waiters {
				longest = max(longest, e.At.Sub(w.Time.Time()).Seconds())
			}
			return []float64{-float64(len(e.Waiters)), -longest}
		},
	}
	assert.ElementsMatch(t, slices.Collect(maps.Keys(keys)), orderNames)
	for range 100 {
		var all []model.Entry
		for i := range 8 {
			all = append(all, somebody(random, fmt.Sprint(i)))
		}
		for by, key := range keys {
			want := slices.Clone(all)
			slices.SortFunc(want, func(a, b model.Entry) int { return cmp.Or(slices.Compare(key(a), key(b)), cmp.Compare(a.Name, b.Name)) })
			name := func(e model.Entry) string { return e.Name }
			require.Equal(t, each(want, name), each(sorted(slices.Clone(all), by), name), "by %s", by)
		}
	}
}

func each[A, B any](all []A, f func(A) B) (bs []B) {
	for _, a := range all {
		bs = append(bs, f(a))
	}
	return bs
}

// A group is among the locks, in the order of the names, and has the group's state, whatever state its locks have.
func TestAGroupIsListedAmongTheLocks(t *testing.T) {
	m := commandtest.MemberOf(0, "a", commandtest.At(100), commandtest.At(103))
	m.At = commandtest.At(103)
	other := m
	other.Name = table.SlotName("apples", 0)
	found := []operator.Listing{other, commandtest.Held("b", "x", commandtest.At(90), commandtest.At(103), time.Minute), m, commandtest.PartitionWith(m, "p", commandtest.At(101)), commandtest.FreeSince(table.PartitionName("orders", "q"), commandtest.At(102)), commandtest.FreeSince("z", commandtest.At(102))}
	assert.Equal(t, "apples/\nb\norders/\n", printed(t, found, "-o", "name"))
	assert.Equal(t, "orders/\napples/\nb\n", printed(t, found, "-o", "name", "--sort", "state"), "one partition has no holder")
	assert.Equal(t, "orders/\n", printed(t, found, "-o", "name", "--state", "partial"))
	assert.Equal(t, "apples/\nb\n", printed(t, found, "-o", "name", "--state", "held"))
	assert.Equal(t, "apples/\nb\norders/\nz\n", printed(t, found, "-o", "name", "--all"))
	assert.Equal(t, `LOCK     STATE    TOKEN     SINCE  BEAT  LEASE  HOLDER AND VALUE
apples/  held     -         3.0s   0.0s  10s    group: 1 member, 0 partitions
b        held     90000000  13s    0.0s  1m0s   x
orders/  partial  -         3.0s   0.0s  10s    group: 1 member, 2 partitions, 1 without a holder
`, printed(t, found))
}

// wholeGroup is a group whose locks are in all states that a group's locks can have.
func wholeGroup() []operator.Listing {
	at := commandtest.At
	member := func(slot int, id string, token, heartbeat float64) operator.Listing {
		l := commandtest.MemberOf(slot, id, at(token), at(heartbeat))
		l.At, l.LeaseRecord.Value, l.LeaseRecord.ID = at(110), "at "+id, id
		return l
	}
	a, b, c := member(0, "a", 80, 109), member(1, "b", 70, 108), member(2, "c", 90, 95)
	b.Writer = "" // leaving
	slot := commandtest.FreeSince(table.SlotName("orders", 3), at(100))
	free := commandtest.FreeSince(table.PartitionName("orders", "1"), at(105))
	paused := commandtest.FreeSince(table.PartitionName("orders", "p"), at(106))
	paused.Paused, paused.Member = true, table.LeaseRef{Name: b.Name, Token: b.Token}
	slot.At, free.At, paused.At = at(110), at(110), at(110)
	return []operator.Listing{a, b, c, slot, free, commandtest.PartitionWith(a, "10", at(101)), commandtest.PartitionWith(a, "2", at(102)),
		commandtest.PartitionWith(b, "x y", at(103)), commandtest.PartitionWith(c, "9", at(94)), paused}
}

// Ls --group shows the whole group in its first line and in the members' numbers of partitions, even if it lists only
// some of its locks, and each of the locks that were asked for once.
func TestAGroupIsShownInDetail(t *testing.T) {
	assert.Equal(t, `orders/ is partial: 2 members, 6 partitions, 2 without a holder, 1 paused, 1 member leaving, 1 member expired

SLOT  STATE    TOKEN     SINCE  BEAT  LEASE  HAS  ID AND VALUE
0000  held     80000000  30s    1.0s  10s    2    a  at a
  2, 10
0001  leaving  70000000  40s    2.0s  10s    1    b  at b
  x y
0002  expired  90000000  20s    15s   10s    0    c  at c

PARTITION  STATE     TOKEN      SINCE  SLOT AND HOLDER
1          released  -          5.0s
2          held      102000000  8.0s   0000  a
9          expired   94000000   16s    0002  c
10         held      101000000  9.0s   0000  a
p          paused    -          4.0s   0001
x y        leaving   103000000  7.0s   0001  b
`, untrailed(printed(t, wholeGroup(), "--group", "orders")))
	assert.Equal(t, `orders/ is partial: 2 members, 6 partitions, 2 without a holder, 1 paused, 1 member leaving, 1 member expired

SLOT  STATE  TOKEN     SINCE  BEAT  LEASE  HAS  ID  VALUE
0000  held   80000000  30s    1.0s  10s    2    a   at a

PARTITION  STATE  TOKEN      SINCE  SLOT  HOLDER
10         held   101000000  9.0s   0000  a
2          held   102000000  8.0s   0000  a
`, untrailed(printed(t, wholeGroup(), "--group", "orders/", "--state", "held", "-o", "wide", "--sort", "age")))
	for _, c := range []struct{ args, want string }{
		{"", "member/0000 member/0001 member/0002 partition/1 partition/2 partition/9 partition/10 partition/p partition/x%20y"},
		{"--all", "member/0000 member/0001 member/0002 member/0003 partition/1 partition/2 partition/9 partition/10 partition/p partition/x%20y"},
		{"--state released", "member/0003 partition/1"}, {"--state paused", "partition/p"}, {"--state orphaned", ""},
		{"--state expired,leaving", "member/0001 member/0002 partition/9 partition/x%20y"},
		{"--sort age", "member/0001 member/0000 member/0002 partition/9 partition/10 partition/2 partition/x%20y partition/1 partition/p"},
	} {
		want := ""
		for name := range strings.FieldsSeq(c.want) {
			want += "orders/" + name + "\n"
		}
		args := append([]string{"--group", "orders"}, strings.Fields(c.args)...)
		assert.Equal(t, want, printed(t, wholeGroup(), append(args, "-o", "name")...), c.args)
		objects := printed(t, wholeGroup(), append(args, "-o", "json")...)
		for line := range strings.Lines(objects) {
			var j model.LockJSON
			require.NoError(t, json.Unmarshal([]byte(line), &j))
			objects = strings.Replace(objects, line, j.Name+"\n", 1)
		}
		assert.Equal(t, want, objects, c.args)
	}
	for _, c := range []struct {
		state string
		lines int
	}{{"released", 7}, {"paused", 4}, {"held", 9}, {"orphaned", 2}, {"held,released", 11}} {
		assert.Equal(t, c.lines, strings.Count(printed(t, wholeGroup(), "--group", "orders", "--state", c.state), "\n"), "an empty line is between two tables only: %s", c.state)
	}
	assert.Equal(t, 4, strings.Count(printed(t, wholeGroup()[:1], "--group", "orders"), "\n"), "it has no partition")
	ls, err := lsOf("--group", "orders")
	require.NoError(t, err)
	out, said := captured(t, func() {
		var e *terminal.Exit
		require.ErrorAs(t, ls.print(terminal.On(os.Stdout), nil), &e)
		assert.Equal(t, terminal.NobodyThere, e.Code)
	})
	assert.Empty(t, out)
	assert.Equal(t, "There is no group orders in the table.\n", said)
}

// untrailed leaves out the spaces at the ends of lines.
func untrailed(text string) string {
	return regexp.MustCompile(" +\n").ReplaceAllString(text, "\n")
}

// Names and values that would change a terminal are quoted in every format for people and scripts, and programs get them as they are.
// Anybody who may take a lock chooses them.
func TestWhatATerminalWouldNotShowIsQuotedInEveryFormat(t *testing.T) {
	for _, odd := range []string{"a\x1b[31m", "a\u202eb", "a\u009b", "$'a'"} {
		l := commandtest.Held(odd, odd, commandtest.At(90), commandtest.At(103), time.Minute)
		l.LeaseRecord.Value, l.Done = odd, table.Done{Due: table.Due{Key: odd}, By: odd, At: commandtest.At(100)}
		m := commandtest.MemberOf(0, odd, commandtest.At(90), commandtest.At(103))
		m.LeaseRecord.Value = odd
		p := commandtest.PartitionWith(m, odd, commandtest.At(95))
		for format, shown := range map[string]int{"table": 5, "wide": 5, "name": 1} {
			text := printed(t, []operator.Listing{l}, "-o", format)
			assert.Equal(t, shown, strings.Count(text, terminal.Show(odd)), "%s: %s", format, text)
			text += printed(t, []operator.Listing{m, p}, "-o", format, "--group", "orders")
			assert.NotContains(t, text, odd, format)
		}
		var j model.LockJSON
		require.NoError(t, json.Unmarshal([]byte(printed(t, []operator.Listing{l}, "-o", "json")), &j))
		assert.Equal(t, []string{odd, odd, odd, odd, odd}, []string{j.Name, j.Holder, j.Value, j.Done, j.DoneBy})
	}
}

// Every time is shown in UTC, in each command and format, wherever the operator and the database are: people compare the times of several
// machines, and programs compare them as text.
func TestTimesAreInUTCWherever(t *testing.T) {
	in := func(zone *time.Location) string {
		var b bytes.Buffer
		p := &terminal.Terminal{Writer: &b}
		lock := commandtest.Held("lock", "a", at(90), at(109), time.Minute)
		lock.At, lock.Began, lock.Done, lock.Waiters = at(110), at(95), table.Done{Due: table.Due{Key: "7"}, At: at(92)}, []table.Ticket{{Time: table.TokenAt(at(100))}}
		found := append([]operator.Listing{lock, commandtest.FreeSince("freed", at(80))}, wholeGroup()...)
		found[1].Freed = at(85)
		for i := range found {
			for _, t := range []*time.Time{&found[i].At, &found[i].Heartbeat, &found[i].Began, &found[i].Freed, &found[i].Done.At} {
				if !t.IsZero() {
					*t = t.In(zone)
				}
			}
		}
		for _, format := range []string{"table", "wide", "json"} {
			b.WriteString(printed(t, found, "--all", "-o", format) + printed(t, found, "--group", "orders", "-o", format))
		}
		require.NoError(t, terminal.PrintJSON(p, model.StatusOf(found[0])))
		ls, err := lsOf()
		require.NoError(t, err)
		require.NoError(t, ls.show(p, at(110).In(zone), ls.entries(found)))
		locks, groups := model.Gather(found, "")
		var s story
		for _, c := range append(s.next(locks, groups, at(110).In(zone)), s.next(nil, nil, at(120).In(zone))...) {
			for _, format := range []string{"table", "json"} {
				require.NoError(t, (&watching{f: terminal.Format{Choice: terminal.Choice{Value: format}}}).line(p, c))
			}
		}
		groups[0].Members = groups[0].Members[:3] // those that have joined
		require.NoError(t, terminal.PrintJSON(p, membersOf(groups[0])))
		return b.String()
	}
	assert.Equal(t, in(time.UTC), in(time.FixedZone("there", 3600)))
}

// A lock that can't be read is listed like any other, and said on standard error with a table, where nothing else says
// why. What could not be written is a failure, whatever the format, and nothing else is said then.
func TestWhatCanNotBeReadIsSaidBesideATable(t *testing.T) {
	l := commandtest.Held("l", "a", commandtest.At(90), commandtest.At(103), time.Minute)
	bad := l
	bad.Name, bad.Unreadable = "bad", errors.New("it is too new")
	worse := bad
	worse.Name, worse.Unreadable = "worse", errors.New("it is no JSON")
	for format, want := range map[string]int{"table": 2, "wide": 2, "name": 0, "json": 0} {
		found := []operator.Listing{bad, l, worse}
		var text string
		said := commandtest.Complaints(func() { text = printed(t, found, "-o", format) })
		require.Len(t, said, want, format)
		if want > 0 {
			assert.Contains(t, said[0], "it is too new")
			assert.Contains(t, said[1], "it is no JSON")
		}
		for _, f := range found {
			assert.Equal(t, 1, strings.Count(" "+strings.NewReplacer("\n", " \n ", `"`, " ").Replace(text), " "+f.Name+" "), "%s of %s", f.Name, text)
		}
		ls, err := lsOf("-o", format)
		require.NoError(t, err)
		said = commandtest.Complaints(func() {
			assert.ErrorIs(t, ls.print(&terminal.Terminal{Writer: full{}}, found), errFull, format)
		})
		assert.Empty(t, said)
	}
	out, said := captured(t, func() { assert.Empty(t, printed(t, nil, "-o", "json")) })
	assert.Empty(t, out+said, "a program reads no message")
}

// full is a disk on which there is no room.
type full struct{}

var errFull = errors.New("no space left")

func (full) Write([]byte) (int, error) { return 0, errFull }
