package serve

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
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
)

// A view is what a page knows: page/model.js in Go.
type view struct {
	version int
	snapshotFrame
	locks map[int]lockWire
	old   time.Duration // what the last tick said
}

// takes gives the page the frames that it has not received.
func (v *view) takes(t *testing.T, s *Server) (kinds string) {
	frames, now, _ := s.since(v.version)
	v.version = now
	for _, f := range frames {
		kind, data, _ := strings.Cut(strings.TrimPrefix(string(f), "event: "), "\ndata: ")
		kinds += kind + " "
		require.NotContains(t, data, ":null", "a page goes through its lists")
		read := func(into any) { require.NoError(t, json.Unmarshal([]byte(data), into), "%s", f) }
		switch kind {
		case "snapshot":
			v.snapshotFrame, v.locks = snapshotFrame{}, map[int]lockWire{}
			read(&v.snapshotFrame)
			for _, l := range v.Locks {
				assert.True(t, l.All, "a snapshot has all terms")
				v.locks[l.ID] = l
			}
		case "look":
			var look lookFrame
			read(&look)
			v.At, v.Next, v.Away = look.At, look.Next, nil
			for i := 0; i < len(look.Beats); i += 2 {
				l := v.locks[int(look.Beats[i])]
				l.Heartbeat = time.UnixMilli(look.At - look.Beats[i+1])
				v.locks[l.ID] = l
			}
			for _, l := range look.Locks {
				l.Terms = shows(v.locks[l.ID].Terms, l)
				v.locks[l.ID] = l
			}
			for _, id := range look.Forgotten {
				assert.Contains(t, v.locks, id, "only what is shown is forgotten")
				delete(v.locks, id)
			}
		case "away":
			v.Away = &awayFrame{}
			read(v.Away)
		case "tick":
			var tick tickFrame
			read(&tick)
			v.old = time.Duration(tick.Old) * time.Millisecond
		}
	}
	return kinds
}

// shown is all that a page shows, in texts, and the times of the last heartbeats, which a page knows to a millisecond. What
// the passing of time changes is left out, because no frame says it.
func (v *view) shown() (all []string, beats []int64) {
	hourAgo := v.At - kept.Milliseconds()
	for _, id := range slices.Sorted(maps.Keys(v.locks)) {
		l := v.locks[id]
		if l.LongestWait != nil {
			since := l.At.Add(-time.Duration(*l.LongestWait * float64(time.Second))).Sub(began).Round(time.Millisecond).Seconds()
			l.LongestWait = &since
		}
		beats = append(beats, l.Heartbeat.UnixMilli())
		l.At, l.AgeSeconds, l.DoneAge, l.Heartbeat, l.All = time.Time{}, nil, nil, time.Time{}, true
		if l.Known = max(l.Known, hourAgo); l.State == operator.Orphaned {
			l.LeaseSeconds = 0 // its lease no longer means anything
		}
		l.Terms = slices.DeleteFunc(slices.Clone(l.Terms), func(t termWire) bool { return t.To != 0 && t.To < hourAgo })
		for i := range l.Terms {
			l.Terms[i].Seen = 0
		}
		text, _ := json.Marshal(l)
		all = append(all, string(text))
	}
	away := ""
	if v.Away != nil {
		away = v.Away.Error
	}
	return append(all, fmt.Sprint(v.At, v.Next, v.Database, v.Table, v.Prefix, v.Released, away)), beats
}

// A wild table has locks to which anything happens.
type wild struct {
	*desk
	*rand.Rand
	names  []string
	tokens map[string]table.Token // of the last claim
}

// put writes a row by hand.
func (w *wild) put(key, text string) {
	writes := []table.Write{{Kind: table.Put, Name: key, Set: []table.Cell{{Column: table.ColHeartbeat, Value: table.Now}, {Column: table.ColWriter, Value: text}}}}
	_ = w.store.Commit(w.Context(), "by hand", writes)
}

func (w *wild) drop(key string) {
	_ = w.store.Commit(w.Context(), "by hand", []table.Write{{Kind: table.Delete, Name: key}})
}

// happens lets something happen to one of the locks. Most steps fail if the lock is not in the state for them.
func (w *wild) happens() {
	name := w.names[w.IntN(len(w.names))]
	token, tab, ctx := w.tokens[name], w.table(), w.Context()
	id := fmt.Sprint("h", w.IntN(3))
	switch w.IntN(23) {
	case 0, 1, 2, 3, 4, 5:
		seen, err := tab.Observe(ctx, name)
		require.NoError(w, err)
		member := table.LeaseRef{Name: "a/member/0000", Token: w.tokens["a/member/0000"]}
		part := strings.Contains(name, "/partition/")
		record := table.LeaseRecord{Lease: lease, ID: id, Value: fmt.Sprint("v", w.IntN(3)), Kind: []table.LockKind{"", table.Elector, table.Mutex}[w.IntN(3)]}
		if strings.Contains(name, "/member/") {
			record.ListDigest = "p"
		}
		if !seen[0].Exists || strings.Contains(name, "/") {
		} else if seen, err = tab.Follow(ctx, time.Now(), []table.Token{seen[0].Token}, name); err == nil {
			record.Nonce = id
			if c, ok := table.NewFreeClaim(id, record, seen...); ok {
				require.NoError(w, tab.ClaimFree(ctx, c))
				w.tokens[name] = c.Token
				return
			}
			record.Nonce = ""
		}
		if part {
			if m, err := operator.ListOne(ctx, tab, member.Name); err != nil || !m.IsHeld() {
				return // a member whose lease has expired claims nothing
			}
			token, _, err = tab.ClaimPartitions(ctx, member, seen...)
		} else {
			token, err = tab.Claim(ctx, id, seen...)
		}
		if err != nil {
			return
		}
		w.tokens[name] = token
		if w.IntN(6) == 0 {
			return
		}
		if part {
			_, _ = tab.ConfirmPartitions(ctx, member, table.LeaseRecord{Lease: lease}, token, name)
			return
		}
		_ = tab.Confirm(ctx, token, record, name)
	case 6, 7, 8:
		_ = tab.Heartbeat(ctx, token, name)
	case 9:
		_ = tab.Announce(ctx, token, name)
	case 10:
		_ = tab.Succeed(ctx, id, name, token)
	case 11:
		if strings.Contains(name, "/partition/") {
			_ = tab.ReleasePartitions(ctx, table.LeaseRef{Name: name, Token: token})
		} else {
			_ = tab.Release(ctx, token, name)
		}
	case 12:
		if !strings.Contains(name, "/") { // members leave no free row
			_ = tab.ReleaseFree(ctx, token, lease, name)
		}
	case 13:
		_ = tab.Break(ctx, token, name)
	case 14:
		w.drop(name)
	case 15:
		w.drop(table.LeaseKey(name, token))
	case 16:
		if key := table.LeaseKey(name, token); w.store.Rows()[key].Name != "" && !strings.Contains(name, "/partition/") {
			w.put(key, "?")
		}
	case 17:
		_ = tab.Confirm(ctx, token, table.LeaseRecord{Lease: lease, ID: id}, name)
		_ = tab.Finish(ctx, token, 0, name, table.Due{Key: id}, id)
	case 18:
		if key := table.DoneRow(name); w.IntN(2) == 0 {
			w.drop(key)
		} else {
			w.put(key, "?")
		}
	case 19, 21, 22:
		if w.IntN(2) == 0 {
			for _, key := range slices.Sorted(maps.Keys(w.store.Rows())) {
				if role, _ := table.RoleOf(key); role == table.OfTicket && w.IntN(2) == 0 {
					w.drop(key)
				}
			}
		}
		if w.IntN(3) > 0 {
			rank := w.IntN(2)
			ticket := table.Ticket{Queue: name, Time: table.TurnFor(table.TokenAt(time.Now()), rank), Rank: rank, Nonce: id, ID: id, Grace: time.Second, Set: w.IntN(3) == 0}
			_ = w.store.Commit(ctx, "by hand", []table.Write{ticket.Put()})
		}
	case 20:
		member := table.LeaseRef{Name: "a/member/0000", Token: w.tokens["a/member/0000"]}
		_, _ = tab.MarkPaused(ctx, member, func(table.LeaseRef) bool { return true }, "a/partition/1")
	}
}

// inAWildTable plays a history in which anything happens to the locks of a table, and calls then after each look.
func inAWildTable(t *testing.T, seed uint64, looks int, then func(w *wild)) {
	synctest.Test(t, func(t *testing.T) {
		random := rand.New(rand.NewPCG(seed, 0))
		c := Config{Released: seed%2 == 0, Expect: []string{"b"}, Exclude: []string{"n*"}}
		if seed%3 == 0 {
			c.Prefix = "a"
		}
		w := &wild{newDesk(t, c), random, []string{"a", "b", "n", "a/member/0000", "a/partition/1"}, map[string]table.Token{}}
		link := &memstore.Link{Store: w.store}
		w.locks.Store = link
		commandtest.Complaints(func() {
			for range looks {
				for range random.IntN(4) {
					w.happens()
					time.Sleep(time.Duration(random.IntN(1000)) * time.Millisecond)
				}
				time.Sleep([]time.Duration{time.Millisecond, time.Second, lease / 3, lease, lately, kept / 2, 3 * kept}[random.IntN(7)])
				away := random.IntN(8) == 0
				link.Refuse(func(string) error {
					if away {
						return commandtest.Away
					}
					return nil
				})
				if err := w.Look(t.Context()); !away {
					require.NoError(t, err)
				}
				then(w)
			}
		})
	})
}

// A page that is open shows the same as one that is opened now, whatever has happened to the locks and however far the
// page was behind. Otherwise, two people who look at the same table see different holders, and only a reload mends it.
func TestAPageThatIsOpenShowsTheSameAsOneThatIsOpenedNow(t *testing.T) {
	for seed := range uint64(4) {
		prompt, slow := view{version: never}, view{version: never}
		kinds := map[string]int{}
		inAWildTable(t, seed, 150, func(w *wild) {
			now := view{version: never}
			require.Equal(w, "snapshot tick ", now.takes(w.T, w.Server))
			assert.Equal(w, w.old().Milliseconds(), now.old.Milliseconds(), "the tick says how old the snapshot is")
			want, wantBeats := now.shown()
			open := []*view{&prompt, &slow}
			if w.IntN(12) > 0 {
				open = open[:1]
			}
			for _, page := range open {
				kinds[page.takes(w.T, w.Server)]++
				got, beats := page.shown()
				require.Equal(w, want, got, "seed %d", seed)
				require.InDeltaSlice(w, wantBeats, beats, 1, "seed %d", seed)
			}
		})
		assert.Positive(t, kinds["look "])
		assert.Positive(t, kinds["away "])
	}
}

// truth reads the locks that the server should know, apart from the server.
func (w *wild) truth() map[string]operator.Listing {
	all := map[string]operator.Listing{}
	for _, name := range w.names {
		l, err := operator.ListOne(w.Context(), w.table(), name)
		require.NoError(w, err)
		l.At = w.history.at
		k := w.history.locks[name]
		if l.State() == operator.Free && !w.Released && !w.history.expected[name] && k != nil && k.State() == operator.Released {
			l.Observation, l.Member = k.Observation, k.Member // reads that skip released locks can't tell that its row was deleted since
		}
		if w.history.expected[name] || strings.HasPrefix(name, w.Prefix) && !w.exclude(name) {
			all[name] = l
		}
	}
	return all
}

// needs reports whether pages and metrics must have a lock.
func (w *wild) needs(l operator.Listing) (page, metrics bool) {
	idle := l.State() == operator.Released || l.State() == operator.Free
	metrics = !idle || w.history.expected[l.Name] || len(l.Waiters) > 0 || l.Exists && (w.Released || strings.Contains(l.Name, "/"))
	return metrics || l.Done.Key != "" || l.Undone != nil, metrics
}

// checkTerms checks what is true of the terms of any lock: they follow each other, only the last one can last, and that is the
// present one if there is a holder. Nothing is older than an hour.
func (w *wild) checkTerms(l lockWire) {
	hourAgo := now(w).Add(-kept).UnixMilli()
	assert.GreaterOrEqual(w, l.Known, hourAgo)
	assert.LessOrEqual(w, l.Known, now(w).UnixMilli())
	for i, t := range l.Terms {
		last := i == len(l.Terms)-1
		assert.True(w, last || t.To != 0, "%+v", l.Terms)
		assert.Equal(w, t.To == 0, t.End == "", "%+v", t)
		assert.True(w, t.To == 0 || t.To >= t.From, "%+v", t)
		assert.True(w, i == 0 || t.From >= l.Terms[i-1].To, "%+v", l.Terms)
		assert.True(w, t.To == 0 || t.To >= hourAgo || t.End == model.EndExpired && last, "%+v", t)
		assert.True(w, t.Seen >= t.From && t.Seen <= now(w).UnixMilli(), "%+v", t)
	}
	if n := len(l.Terms); l.State == operator.Held || l.State == operator.Leaving {
		require.Positive(w, n)
		t := l.Terms[n-1]
		assert.Equal(w, []any{l.Token, l.Holder, l.Since.UnixMilli(), int64(0), now(w).UnixMilli()}, []any{t.Key, t.Holder, t.From, t.To, t.Seen})
	}
}

// now is the time of the last look.
func now(w *wild) time.Time { return w.history.at }

// A page shows what is in the table: nothing of another lock, no field too few, and no lock is missing that is held, that is
// expected, or for which a process waits.
func TestAPageShowsWhatIsInTheTable(t *testing.T) {
	for seed := range uint64(4) {
		before, holders := map[string]operator.Listing{}, map[table.Token]string{}
		inAWildTable(t, seed, 100, func(w *wild) {
			if w.away != nil {
				return
			}
			now := view{version: never}
			now.takes(w.T, w.Server)
			assert.Equal(w, []any{w.Path, w.Table, w.Prefix, w.Released, w.history.at.UnixMilli()}, []any{now.Database, now.Table, now.Prefix, now.Released, now.At})
			onPage := map[string]lockWire{}
			for _, l := range now.locks {
				require.NotContains(w, onPage, l.Name, "a lock is shown once")
				onPage[l.Name] = l
			}
			for name, l := range w.truth() {
				page, read := w.needs(l)
				if was := before[name]; was.IsHeld() && l.State() == operator.Released && w.history.at.Sub(l.Since()) < lately && !w.history.locks[name].kind.IsShort() {
					page = true // somebody may miss its holder
				}
				got, shown := onPage[name]
				delete(onPage, name)
				require.True(w, shown || !page, "seed %d: %s is %s", seed, name, l.State())
				if !shown {
					continue
				}
				successor, named := l.Successor()
				if !named {
					successor = ""
				}
				require.Equal(w, []any{w.history.expected[name], successor}, []any{got.Expected, got.Successor})
				if kind := l.Kind(); read && kind != "" {
					assert.Equal(w, string(kind), got.Kind)
				}
				want := model.JSONOf(l)
				if l.State() == operator.Unreadable && l.Exists && want.Holder == "" {
					want.Holder = holders[l.Token] // an earlier look could read it
				} else if l.State() != operator.Unconfirmed && want.Holder != "" {
					holders[l.Token] = want.Holder
				}
				if !read { // what is released is not read
					assert.Contains(w, []operator.State{operator.Released, operator.Free}, got.State, name)
					if was, known := before[name]; known && was.State() != operator.Free && was.State() != operator.Released {
						require.Equal(w, l.State(), got.State, "what has just ended is read by its name: %s", was.State())
					}
					assert.True(w, page || w.Released || w.history.at.UnixMilli()-got.Terms[len(got.Terms)-1].To < lately.Milliseconds(), "%s is not shown for ever", name)
					want.State, want.Since, want.Token, want.At = got.State, got.Since, got.Token, got.At
				}
				a, _ := json.Marshal(want)
				b, _ := json.Marshal(got.LockJSON)
				require.Equal(w, string(a), string(b), "seed %d", seed)
				w.checkTerms(got)
				k := w.history.locks[name]
				assert.Equal(w, []int{k.changes, k.jeopardies}, []int{got.Changes, got.Jeopardies})
			}
			assert.Empty(w, onPage, "flags leave these locks out")
			before = w.truth()
		})
	}
}

// Metrics have each series of each lock, with the value that is in the table, and no other series: an alert is as good as
// the series that it watches.
func TestMetricsSayWhatIsInTheTable(t *testing.T) {
	for seed := range uint64(4) {
		inAWildTable(t, seed, 100, func(w *wild) {
			if w.away != nil {
				return
			}
			want := map[string]float64{}
			states, parts := map[operator.State]float64{}, map[operator.State]float64{}
			members, nobody, isGroup := 0., 0., false
			for name, l := range w.truth() {
				say := func(metric string, value float64, labels ...string) {
					labels = append(labels, fmt.Sprintf("lock=%q", name))
					slices.Sort(labels)
					want[metric+"{"+strings.Join(labels, ",")+"}"] = value
				}
				if l.Done.Key != "" {
					say("done_timestamp_seconds", float64(l.Done.At.UnixMilli())/1000)
				}
				if _, metrics := w.needs(l); !metrics {
					continue
				}
				states[l.State()]++
				part := l.IsPart() && strings.Contains(name, "/partition/")
				one := slices.DeleteFunc(slices.Clone(l.Waiters), func(t table.Ticket) bool { return t.Set })
				if len(one) > 0 {
					longest := slices.MinFunc(one, func(a, b table.Ticket) int { return a.Since().Compare(b.Since()) }) // of whatever priority
					say("lock_longest_wait_seconds", l.At.Sub(longest.Since()).Seconds())
				}
				if len(l.Waiters) > 0 || !l.IsPart() {
					say("lock_waiters", float64(len(l.Waiters)))
				}
				if isGroup = isGroup || l.IsPart() && l.State() != operator.Free; part && l.State() != operator.Free {
					parts[l.State()]++
					if !l.IsHeld() && l.State() != operator.Paused {
						nobody++
					}
				} else if l.IsPart() && l.IsHeld() {
					members++
				}
				if part {
					continue
				}
				if w.history.expected[name] {
					say("lock_expected", 1)
				}
				k := w.history.locks[name]
				if k.kind != "" && k.kind != table.GroupPart {
					say("lock_kind", 1, fmt.Sprintf("kind=%q", k.kind))
				}
				is := 0.
				if l.IsHeld() {
					is = 1
					say("lock_holder", 1, fmt.Sprintf("holder=%q", l.Holder()))
				}
				say("lock_held", is)
				say("lock_state", 1, fmt.Sprintf("state=%q", l.State()))
				say("lock_changes_total", float64(k.changes))
				say("lock_jeopardies_total", float64(k.jeopardies))
				if l.IsHeld() || l.State() == operator.Expired {
					say("lock_heartbeat_age_seconds", l.At.Sub(l.Heartbeat).Seconds())
					say("lock_lease_seconds", lease.Seconds())
					say("lock_token", float64(l.Token))
				}
			}
			for _, state := range model.All {
				if state == operator.Free || state == model.Partial {
					continue
				}
				if w.Released || state != operator.Released {
					want[fmt.Sprintf("table_locks{state=%q}", state)] = states[state]
				}
				if isGroup {
					want[fmt.Sprintf(`table_group_partitions{group="a",state=%q}`, state)] = parts[state]
				}
			}
			if isGroup {
				want[`table_group_members{group="a"}`] = members
				want[`table_group_partitions_without_holder{group="a"}`] = nobody
			}
			got := map[string]float64{}
			for line := range strings.SplitSeq(w.series("spindle_"), "\n") {
				series, value, _ := strings.Cut(line, "} ")
				metric, _, _ := strings.Cut(series, "{")
				if strings.HasPrefix(metric, "lock_") || strings.HasPrefix(metric, "done_") || strings.HasPrefix(metric, "table_group") || metric == "table_locks" {
					number, err := strconv.ParseFloat(value, 64)
					require.NoError(w, err)
					got[series+"}"] = number
				}
			}
			require.Equal(w, want, got, "seed %d", seed)
		})
	}
}
