package serve

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spindle-lock/spindle/cmd/spindle/internal/commandtest"
	"github.com/spindle-lock/spindle/cmd/spindle/internal/model"
	"github.com/spindle-lock/spindle/internal/operator"
	"github.com/spindle-lock/spindle/internal/table"
	"github.com/spindle-lock/spindle/internal/testkit/memstore"
	"github.com/spindle-lock/spindle/internal/testkit/steps"
)

// A desk is a server on a table in memory, and what is done to that.
type desk struct {
	*testing.T
	*Server
	store *memstore.Store
	reads *counted
}

// counted counts rows that are read.
type counted struct {
	table.Store
	rows  int
	delay time.Duration
}

func (c *counted) Read(ctx context.Context, step string, bound table.Bound, keys table.Keys) ([]table.Row, time.Time, error) {
	time.Sleep(c.delay)
	rows, at, err := c.Store.Read(ctx, step, bound, keys)
	c.rows += len(rows)
	return rows, at, err
}

func newDesk(t *testing.T, c Config) *desk {
	store := &memstore.Store{}
	reads := &counted{Store: store}
	return &desk{t, serverOn(reads, c, 5*time.Minute), store, reads}
}

func (d *desk) table() table.Table { return table.Table{Store: d.store} }

func (d *desk) holds(name string, p table.LeaseRecord) table.Token {
	seen, err := d.table().Observe(d.Context(), name)
	require.NoError(d, err)
	token, err := d.table().Claim(d.Context(), cmp.Or(p.ID, "me"), seen...)
	require.NoError(d, err)
	p.Lease = time.Hour
	require.NoError(d, d.table().Confirm(d.Context(), token, p, name))
	return token
}

func (d *desk) releases(name string, token table.Token) {
	require.NoError(d, d.table().Release(d.Context(), token, name))
}

// look looks, and returns the names and states that a page has that is opened then.
func (d *desk) look() string {
	require.NoError(d, d.Look(d.Context()))
	d.mu.Lock()
	defer d.mu.Unlock()
	var all []string
	for _, name := range slices.Sorted(maps.Keys(d.history.locks)) {
		if k := d.history.locks[name]; k.shown {
			all = append(all, name+" "+string(k.State()))
		}
	}
	return strings.Join(all, ", ")
}

// A lock that should be held has its series whatever happened to its rows and whatever the prefix is: nobody ever took it, it
// was released, its row was pruned. An alert that resolves while nobody leads is worse than none.
func TestALockThatIsExpectedAlwaysHasItsSeries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, all := range []bool{false, true} {
			d := newDesk(t, Config{Expect: []string{"nightly"}, Prefix: "other/", Released: all})
			require.NoError(t, d.table().Queue(t.Context(), table.Ticket{Queue: "nightly", Time: 1, Nonce: "n"}.Put()))
			said := func(page, held, state string) {
				t.Helper()
				assert.Equal(t, page, d.look())
				assert.Equal(t, fmt.Sprintf(`{lock="nightly"} %s`, held), d.series("spindle_lock_held"))
				assert.Equal(t, fmt.Sprintf(`{lock="nightly",state="%s"} 1`, state), d.series("spindle_lock_state"))
				assert.Equal(t, `{lock="nightly"} 1`, d.series("spindle_lock_expected"))
				assert.Equal(t, `{lock="nightly"} 1`, d.series("spindle_lock_waiters"))
				assert.Contains(t, string(d.whole()), `"waiting":1`)
			}
			said("nightly free", "0", "free")
			token := d.holds("nightly", table.LeaseRecord{})
			said("nightly held", "1", "held")
			d.releases("nightly", token)
			said("nightly released", "0", "released")
			time.Sleep(48 * time.Hour)
			said("nightly released", "0", "released")
			for seen, err := range operator.Prunable(t.Context(), d.table(), operator.Ages{Released: 24 * time.Hour}) {
				require.NoError(t, err)
				n, err := d.table().Prune(t.Context(), seen...)
				require.NoError(t, err)
				require.Equal(t, 1, n)
			}
			said("nightly free", "0", "free")
			time.Sleep(48 * time.Hour)
			said("nightly free", "0", "free")
			d.holds("nightly", table.LeaseRecord{})
			said("nightly held", "1", "held")
		}
	})
}

// Looks don't read released locks, metrics have no series of them, and pages don't show them. A lock whose holder a look saw
// stays on pages for a while, because somebody may miss it. A mutex is not missed.
func TestReleasedLocksAreLeftOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDesk(t, Config{})
		for i := range 1000 {
			name := fmt.Sprint("order-", i)
			d.releases(name, d.holds(name, table.LeaseRecord{}))
		}
		d.holds("held", table.LeaseRecord{Kind: table.Elector})
		leader, mutex := d.holds("leader", table.LeaseRecord{Kind: table.Elector}), d.holds("mutex", table.LeaseRecord{Kind: table.Mutex})
		assert.Equal(t, "held held, leader held, mutex held", d.look())
		assert.LessOrEqual(t, d.reads.rows, 6)
		assert.Equal(t, "{kind=\"elector\",lock=\"held\"} 1\n{kind=\"elector\",lock=\"leader\"} 1\n{kind=\"mutex\",lock=\"mutex\"} 1",
			d.series("spindle_lock_kind"))

		d.releases("leader", leader)
		d.releases("mutex", mutex)
		assert.Equal(t, "held held, leader released", d.look())
		assert.Equal(t, "elector", d.history.locks["leader"].wire(0).Kind, "its rows no longer say so")
		assert.Equal(t, "{lock=\"held\"} 1", d.series("spindle_lock_held"))
		assert.NotContains(t, d.series("spindle_table_locks"), "released", "how many they are is not known")
		ended := d.history.locks["mutex"].terms
		require.Len(t, ended, 1)
		assert.Equal(t, model.EndReleased, ended[0].end, "how its term ended was read, though the list left it out")

		time.Sleep(lately - time.Second)
		assert.Equal(t, "held held, leader released", d.look())
		time.Sleep(2 * time.Second)
		assert.Equal(t, "held held", d.look())
		d.holds("leader", table.LeaseRecord{Kind: table.Elector})
		assert.Equal(t, "held held, leader held", d.look())
		assert.Equal(t, 1, d.history.locks["leader"].changes, "its terms were not forgotten")
		assert.Len(t, d.history.locks["leader"].terms, 2)

		d.releases("leader", d.history.locks["leader"].Token)
		assert.Equal(t, "held held, leader released", d.look(), "its last term counts, not its first")
		time.Sleep(2 * kept)
		assert.Equal(t, "held expired", d.look())
		assert.Len(t, d.history.locks, 1, "nothing is remembered for ever")
	})
}

// What was done last under a lock stays on the page after the lock was released, because its next time may be days away.
func TestWhatWasDoneLastStaysOnThePage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDesk(t, Config{})
		token := d.holds("job", table.LeaseRecord{Kind: table.Mutex})
		d.look()
		require.NoError(t, d.table().Finish(t.Context(), token, 0, "job", table.Due{Key: "42"}, "me"))
		for range 3 {
			assert.Equal(t, "job released", d.look())
			assert.Regexp(t, `^\{lock="job"\} [\d.e+]+$`, d.series("spindle_done_timestamp_seconds"), "an alert on work that is overdue relies on it")
			time.Sleep(kept)
		}
	})
}

// A process that waited for a released lock and gave up is gone from the page and the metrics at the next look, although looks
// don't read the lock any more. An alert on the longest wait would go on for ever.
func TestWhoHasGivenUpNoLongerWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, kind := range []table.LockKind{table.Elector, table.Mutex} {
			d := newDesk(t, Config{})
			token := d.holds("job", table.LeaseRecord{Kind: kind})
			d.look()
			d.releases("job", token)
			waiter := table.Ticket{Queue: "job", Time: table.TokenAt(time.Now()), Nonce: "n", ID: "w", Grace: time.Second}
			require.NoError(t, d.table().Queue(t.Context(), waiter.Put()))
			assert.Equal(t, "job released", d.look())
			assert.Equal(t, `{lock="job"} 1`, d.series("spindle_lock_waiters"))
			require.NoError(t, d.store.Commit(t.Context(), "by hand", []table.Write{{Kind: table.Delete, Name: waiter.Row()}}))
			want := "job released"
			if kind == table.Mutex {
				want = ""
			}
			assert.Equal(t, want, d.look())
			assert.Empty(t, d.series("spindle_lock_waiters")+d.series("spindle_lock_longest_wait_seconds"))
			assert.Empty(t, d.history.locks["job"].Waiters)
		}
	})
}

// With --released, released locks are shown. A lock that is excluded is neither on a page nor in a metric, unless it is
// expected by its name.
func TestAPageShowsTheLocksThatFlagsChoose(t *testing.T) {
	d := newDesk(t, Config{Expect: []string{"order-leader"}, Exclude: []string{"order-*"}, Released: true})
	for _, name := range []string{"order-1", "order-2", "order-leader", "nightly"} {
		d.holds(name, table.LeaseRecord{})
	}
	d.releases("pay", d.holds("pay", table.LeaseRecord{}))
	assert.Equal(t, "nightly held, order-leader held, pay released", d.look())
	assert.Equal(t, "{lock=\"nightly\"} 1\n{lock=\"order-leader\"} 1\n{lock=\"pay\"} 0", d.series("spindle_lock_held"))
	assert.Contains(t, d.series("spindle_table_locks"), `{state="held"} 2`)
	assert.Contains(t, d.series("spindle_table_locks"), `{state="released"} 1`)
}

// A page shows the same of a lock whether it got a snapshot or changes: it hears once that a lock goes, and gets all of the
// lock when it comes back.
func TestAPageIsToldOfLocksThatComeAndGo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDesk(t, Config{})
		d.holds("held", table.LeaseRecord{})
		token := d.holds("mutex", table.LeaseRecord{Kind: table.Mutex})
		change := func() lookFrame {
			names := d.history.names()
			found, at, err := operator.ListWith(t.Context(), d.locks, "", false, names...)
			require.NoError(t, err)
			touched, forgotten := d.history.see(found, at)
			return lookOf(at, 0, touched, forgotten)
		}
		first := change()
		require.Len(t, first.Locks, 2)
		id := d.history.locks["mutex"].id
		d.releases("mutex", token)
		gone := change()
		assert.Equal(t, []int{id}, gone.Forgotten)
		assert.Empty(t, gone.Locks)
		assert.Empty(t, change().Forgotten, "it is said once")
		d.holds("mutex", table.LeaseRecord{Kind: table.Mutex})
		back := change()
		require.Len(t, back.Locks, 1)
		assert.Equal(t, []any{id, operator.Held, true, 2}, []any{back.Locks[0].ID, back.Locks[0].State, back.Locks[0].All, len(back.Locks[0].Terms)})
	})
}

// A table whose read takes long is read less often, so that it takes a tenth of the time at most, and metrics and pages say so. One slow
// read changes nothing.
func TestALargeTableIsReadLessOften(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDesk(t, Config{})
		looks := func(during time.Duration) int {
			ctx, cancel := context.WithTimeout(t.Context(), during)
			defer cancel()
			before := d.feed.version
			d.Watch(ctx)
			return d.feed.version - before
		}
		d.reads.delay = 20 * time.Millisecond
		assert.InDelta(t, 59, looks(time.Minute), 2, "once in --every")
		assert.Equal(t, `{table="locktable"} 1`, d.series("spindle_table_read_pause_seconds"))

		d.reads.delay = 2 * time.Second
		assert.InDelta(t, 6, looks(2*time.Minute), 2, "one part in ten of the time")
		assert.Equal(t, `{table="locktable"} 18`, d.series("spindle_table_read_pause_seconds"))
		assert.Contains(t, d.series("spindle_table_up"), "} 1", "it is as recent as can be")
		w := httptest.NewRecorder()
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		d.Handler().ServeHTTP(w, httptest.NewRequestWithContext(ctx, http.MethodGet, "/events", nil))
		assert.Contains(t, w.Body.String(), `"next":20000,`)
		assert.Regexp(t, `event: tick\ndata: \{"old":\d{3,5}\}`, w.Body.String(), "a page that is opened between two looks knows how old what it gets is")

		d.reads.delay = 20 * time.Millisecond
		looks(time.Minute)
		assert.Equal(t, `{table="locktable"} 1`, d.series("spindle_table_read_pause_seconds"))
		d.reads.delay = 4 * time.Second
		require.NoError(t, d.Look(t.Context()))
		assert.Equal(t, `{table="locktable"} 1`, d.series("spindle_table_read_pause_seconds"), "a read that was slow by chance")
		link := &memstore.Link{Store: d.store}
		d.reads.Store = link
		link.Refuse(func(string) error { return commandtest.Away })
		require.Error(t, d.Look(t.Context()))
		assert.Equal(t, 4*time.Second, d.pace.Pause, "a table may be too large to be read in time")
		link.Refuse(func(string) error { return nil })

		d.reads.delay = 3 * time.Minute
		looks(20 * time.Minute)
		assert.Equal(t, `{table="locktable"} 60`, d.series("spindle_table_read_pause_seconds"), "but not for ever")
	})
}

// With each read, a page is told when to expect the next one, whatever the reads take. Otherwise, it would call the data of a
// large table out of date, or say nothing of an outage.
func TestAPageIsToldWhenToExpectTheNextRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDesk(t, Config{})
		page := view{version: never}
		for i := range 20 {
			d.reads.delay = []time.Duration{0, time.Second, 2 * time.Second, time.Minute}[i/3%4]
			began := time.Now()
			d.look()
			read := time.Since(began)
			opened := view{version: never}
			for _, p := range []*view{&page, &opened} {
				p.takes(t, d.Server)
				assert.Equal(t, (max(d.pace.Pause, time.Second) + read).Milliseconds(), p.Next)
			}
		}
	})
}

// What is in a name or an id stays in its label, and does not act on the terminal of a user who looks at metrics.
func TestLabelsAreHarmless(t *testing.T) {
	d := newDesk(t, Config{})
	d.holds("a\x1b[2J", table.LeaseRecord{ID: "me\x1b", Kind: "k\x1b"})
	d.holds("g\x1b/member/0001", table.LeaseRecord{ListDigest: "p"})
	d.holds("a\"} 1\nspindle_lock_held{lock=\"fake", table.LeaseRecord{ID: "x\\\"\n"})
	d.look()
	text := d.series("")
	assert.NotContains(t, text, "\x1b")
	for _, want := range []string{`spindle_lock_held{lock="$'a\\x1b[2J'"} 1`, `spindle_lock_kind{kind="$'k\\x1b'"`, `spindle_table_group_members{group="$'g\\x1b'"} 1`,
		`spindle_lock_held{lock="$'a\"} 1\\nspindle_lock_held{lock=\"fake'"} 1`, `holder="$'x\\\\\"\\n'"`} {
		assert.Contains(t, text, want)
	}
	assert.NotRegexp(t, `(?m)^spindle_lock_held\{lock="fake`, text)
}

// groupRows makes the rows of a group whose last heartbeats were at a time.
type groupRows struct {
	name string
	at   time.Time
}

func (g groupRows) held(name, writer, record string, since, heartbeat time.Time) []table.Row {
	return []table.Row{{Name: name, Heartbeat: heartbeat, Token: since, Writer: writer},
		{Name: table.LeaseKey(name, table.TokenAt(since)), Heartbeat: heartbeat, Token: since, Writer: record}}
}

// member is a member with a lease of 10 s that has been silent for a while, and the key that its partitions name.
func (g groupRows) member(slot int, silent time.Duration) (key string, rows []table.Row) {
	name, since := table.SlotName(g.name, slot), g.at.Add(-time.Hour)
	return table.LeaseKey(name, table.TokenAt(since)), g.held(name, "x", `{"lease":"10s","plan":"p"}`, since, g.at.Add(-silent))
}

// with is a partition of the member with the key.
func (g groupRows) with(partition, key string) []table.Row {
	since := g.at.Add(-time.Minute)
	return g.held(table.PartitionName(g.name, partition), key, `{"with":"`+key+`","for":"10s"}`, since, since.Add(time.Millisecond))
}

// The metrics count a group's members, its partitions by state, and those without a member. A partition that a live member
// has paused is not one of these. They don't count a lock of
// another program with a name like a partition's.
func TestAGroupIsCounted(t *testing.T) {
	g := groupRows{"a b", time.Now().Add(-time.Second)}
	alive, a := g.member(0, 0)
	silent, b := g.member(1, 20*time.Second)
	all := slices.Concat(a, b, g.with("1", alive), g.with("2", alive), g.with("3", silent), held("a b/partition", "plain", "", g.at, g.at.Add(time.Millisecond)))
	all = append(all,
		table.Row{Name: table.SlotName("a b", 2), Token: g.at},
		table.Row{Name: table.PartitionName("a b", "7"), Token: g.at},
		g.with("8", alive)[1], // without its lock row
		table.Row{Name: table.PartitionName("a b", "9"), Token: g.at, Writer: alive},
		table.Row{Name: table.PartitionName("a b", "10"), Token: g.at, Writer: silent}, // the member that paused it is gone
	)
	var told []string
	s := serverOn(&rows{rows: all}, Config{}, time.Second)
	require.NoError(t, s.Look(t.Context()))
	for line := range strings.SplitSeq(s.series("spindle_table_group_"), "\n") {
		told = append(told, strings.NewReplacer(`group="a b",`, "", `group="a b"`, "").Replace(line))
	}
	assert.Equal(t, []string{"members{} 1",
		`partitions{state="expired"} 1`, `partitions{state="held"} 2`, `partitions{state="leaving"} 0`, `partitions{state="orphaned"} 1`,
		`partitions{state="paused"} 1`, `partitions{state="released"} 2`, `partitions{state="unconfirmed"} 0`, `partitions{state="unreadable"} 0`,
		"partitions_without_holder{} 4"}, told)
}

// A group has as many series with hundreds of partitions as with one: Prometheus should not pay for each of 20,000. Members
// keep their own series, and so does a lock of another program with a partition's name, and a partition that is expected, or
// nothing could tell that nobody has it. The page has each partition.
func TestPartitionsHaveNoSeriesOfTheirOwn(t *testing.T) {
	g := groupRows{"orders", time.Now().Add(-time.Second)}
	key, member := g.member(0, 0)
	plain := held(table.PartitionName("other", "1"), "plain", "", g.at, g.at.Add(time.Millisecond))
	series := func(partitions int) []string {
		all := slices.Concat(member, plain)
		for i := range partitions {
			all = append(all, g.with(fmt.Sprint(i), key)...)
		}
		s := serverOn(&rows{rows: all}, Config{Expect: []string{table.PartitionName("orders", "nobody")}}, time.Second)
		require.NoError(t, s.Look(t.Context()))
		page, _, _ := s.since(never)
		assert.Equal(t, partitions+3, strings.Count(string(page[0]), `"name":`))
		return strings.Split(s.series("spindle_"), "\n")
	}
	few, many := series(1), series(300)
	assert.Equal(t, len(few), len(many)) // and not Len, which prints them all
	of := func(lock string) (n int) {
		for _, line := range many {
			if strings.Contains(line, fmt.Sprintf("lock=%q", lock)) {
				n++
			}
		}
		return n
	}
	assert.Equal(t, []int{0, 8, 9, 5}, []int{of(table.PartitionName("orders", "0")), of(table.SlotName("orders", 0)), of(table.PartitionName("other", "1")), of(table.PartitionName("orders", "nobody"))})
	assert.Contains(t, many, `lock_held{lock="orders/partition/nobody"} 0`)
}

// Several groups are counted apart, each once, in whichever order their locks are found.
func TestEachGroupIsCountedByItself(t *testing.T) {
	var all []table.Row
	var want []string
	for n := range 6 {
		g := groupRows{fmt.Sprint("g", n), time.Now().Add(-time.Second)}
		key, member := g.member(0, 0)
		all = append(all, member...)
		for p := range n {
			all = append(all, g.with(fmt.Sprint(p), key)...)
		}
		want = append(want, fmt.Sprintf(`{group="g%d",state="held"} %d`, n, n))
	}
	s := serverOn(&rows{rows: all}, Config{}, time.Second)
	require.NoError(t, s.Look(t.Context()))
	held := slices.DeleteFunc(strings.Split(s.series("spindle_table_group_partitions{"), "\n"), func(line string) bool { return !strings.Contains(line, `"held"`) })
	for i, line := range held {
		held[i] = "{" + line
	}
	assert.Equal(t, want, held)
	assert.Equal(t, 6, strings.Count(s.series("spindle_table_group_members"), "} 1"))
}

// Prometheus takes the growth of a counter, and a counter's name ends in _total.
func TestWhatIsATotalIsACounter(t *testing.T) {
	d := newDesk(t, Config{Expect: []string{"job"}})
	d.releases("once", d.holds("once", table.LeaseRecord{}))
	token := d.holds("once", table.LeaseRecord{})
	require.NoError(t, d.table().Finish(t.Context(), token, 0, "once", table.Due{Key: "42"}, "me"))
	d.holds("job", table.LeaseRecord{Kind: table.Exec})
	d.holds(table.SlotName("orders", 1), table.LeaseRecord{ListDigest: "p"})
	require.NoError(t, d.table().Queue(t.Context(), table.Ticket{Queue: "job", Time: 1, Nonce: "n"}.Put()))
	d.look()
	types := strings.Split(d.series("# TYPE spindle_"), "\n")
	assert.Len(t, types, 24)
	for _, line := range types {
		name, kind, _ := strings.Cut(line, " ")
		want := "gauge"
		if strings.HasSuffix(name, "_total") {
			want = "counter"
		} else if name == "table_read_duration_seconds" {
			want = "histogram"
		}
		assert.Equal(t, want, kind, name)
	}
}

// A lock that somebody had taken when it was last read is read by its name, so that a page says what became of it, rather
// than that it was never claimed: whatever state it was in, and whatever happens to it then.
func TestAPageSaysWhatBecameOfALockThatWasTaken(t *testing.T) {
	for state, take := range map[operator.State]func(d *desk) table.Token{
		operator.Held: func(d *desk) table.Token { return d.holds("job", table.LeaseRecord{}) },
		operator.Leaving: func(d *desk) table.Token {
			token := d.holds("job", table.LeaseRecord{})
			require.NoError(d, d.table().Announce(d.Context(), token, "job"))
			return token
		},
		operator.Expired: func(d *desk) table.Token {
			token := d.holds("job", table.LeaseRecord{})
			time.Sleep(time.Hour + time.Second)
			return token
		},
		operator.Unconfirmed: func(d *desk) table.Token { return steps.Claim(d.T, d.table(), "job") },
		operator.Unreadable: func(d *desk) table.Token {
			token := d.holds("job", table.LeaseRecord{})
			require.NoError(d, d.store.Commit(d.Context(), "by hand", []table.Write{{Kind: table.Update, Name: table.LeaseKey("job", token), Set: []table.Cell{{Column: table.ColWriter, Value: "?"}}}}))
			return token
		},
	} {
		for what, ends := range map[string]func(d *desk, token table.Token){
			"released": func(d *desk, token table.Token) { _ = d.table().Release(d.Context(), token, "job") },
			"broken":   func(d *desk, token table.Token) { _ = d.table().Break(d.Context(), token, "job") },
			"deleted":  func(d *desk, _ table.Token) { steps.Drop(d.T, d.table(), "job") },
			"taken":    func(d *desk, _ table.Token) { d.holds("job", table.LeaseRecord{ID: "another"}) },
			"nothing":  func(*desk, table.Token) {},
		} {
			for _, c := range []Config{{}, {Released: true}, {Prefix: "jo"}, {Prefix: "jo", Released: true}} {
				synctest.Test(t, func(t *testing.T) {
					d := newDesk(t, c)
					token := take(d)
					assert.Equal(t, "job "+string(state), d.look())
					time.Sleep(time.Second)
					ends(d, token)
					shown := d.look()
					now, err := operator.ListOne(t.Context(), d.table(), "job")
					require.NoError(t, err)
					assert.Equal(t, now.State(), d.history.locks["job"].State(), "%s, then %s", state, what)
					assert.True(t, shown == "job "+string(now.State()) || shown == "" && !c.Released && len(d.history.locks["job"].terms) == 0, "%s, then %s: %s", state, what, shown)
				})
			}
		}
	}
}
