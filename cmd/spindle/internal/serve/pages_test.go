package serve

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spindle-lock/spindle/cmd/spindle/internal/commandtest"
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
		l.Known = max(l.Known, hourAgo)
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
	switch w.IntN(20) {
	case 0, 1, 2, 3, 4, 5:
		seen, err := tab.Observe(ctx, name)
		require.NoError(w, err)
		token, err = tab.Claim(ctx, id, seen...)
		if err != nil {
			return
		}
		w.tokens[name] = token
		if w.IntN(6) == 0 {
			return
		}
		record := table.LeaseRecord{Lease: lease, ID: id, Value: fmt.Sprint("v", w.IntN(3)), Kind: []table.LockKind{"", table.Elector, table.Mutex}[w.IntN(3)]}
		if strings.Contains(name, "/member/") {
			record.ListDigest = "p"
		}
		_ = tab.Confirm(ctx, token, record, name)
	case 6, 7, 8:
		_ = tab.Heartbeat(ctx, token, name)
	case 9:
		_ = tab.Announce(ctx, token, name)
	case 10:
		_ = tab.Succeed(ctx, id, name, token)
	case 11:
		_ = tab.Release(ctx, token, name)
	case 12:
		_ = tab.ReleaseFree(ctx, token, lease, name)
	case 13:
		_ = tab.Break(ctx, token, name)
	case 14:
		w.drop(name)
	case 15:
		w.drop(table.LeaseKey(name, token))
	case 16:
		if key := table.LeaseKey(name, token); w.store.Rows()[key].Name != "" {
			w.put(key, "?")
		}
	case 17:
		_ = tab.Finish(ctx, token, 0, name, table.Due{Key: id}, id)
	case 18:
		if key := table.DoneRow(name); w.IntN(2) == 0 {
			w.drop(key)
		} else {
			w.put(key, "?")
		}
	case 19:
		ticket := table.Ticket{Queue: name, Time: table.TokenAt(time.Now()), Nonce: id, ID: id, Grace: time.Second}
		_ = w.store.Commit(ctx, "by hand", []table.Write{ticket.Put()})
		if rows := w.store.Rows(); w.IntN(2) == 0 {
			for key := range rows {
				if role, _ := table.RoleOf(key); role == table.OfTicket {
					w.drop(key)
				}
			}
		}
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
	for seed := range uint64(6) {
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
