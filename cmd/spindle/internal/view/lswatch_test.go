package view

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spindle-lock/spindle/cmd/spindle/internal/commandtest"
	"github.com/spindle-lock/spindle/cmd/spindle/internal/database"
	"github.com/spindle-lock/spindle/cmd/spindle/internal/terminal"
	"github.com/spindle-lock/spindle/internal/operator"
	"github.com/spindle-lock/spindle/internal/table"
	"github.com/spindle-lock/spindle/internal/testkit/fleet"
	"github.com/spindle-lock/spindle/internal/testkit/memstore"
)

// watched is a table with locks that are held, and ls --watch --state held on it.
type watched struct {
	store memstore.Store
	out   fleet.Log
	read  int // how much of out has been read
	token table.Token
	names []string
}

func heldLocks(t *testing.T, n int) *watched {
	w := &watched{}
	for i := range n {
		w.names = append(w.names, fmt.Sprintf("lock-%02d", i))
	}
	locks := table.Table{Store: &w.store}
	seen, err := locks.Observe(t.Context(), w.names...)
	require.NoError(t, err)
	w.token, err = locks.Claim(t.Context(), "web-1", seen...)
	require.NoError(t, err)
	require.NoError(t, locks.Confirm(t.Context(), w.token, table.LeaseRecord{Lease: time.Hour}, w.names...))
	return w
}

func (w *watched) repeat(ctx context.Context, store table.Store, screen terminal.Terminal) error {
	ls := listing{Database: &database.Database{Timeout: time.Second, Path: "projects/p/instances/i/databases/d", Table: "locktable"}, by: terminal.Choice{Value: "state"}}
	ls.selected.states = []operator.State{operator.Held}
	screen.Writer = &w.out
	return ls.follow(func() *terminal.Terminal { return &screen }).follow(ctx, table.Table{Store: store})
}

// next returns what was written since the last call.
func (w *watched) next() string {
	all := w.out.String()
	text := all[w.read:]
	w.read = len(all)
	return text
}

// Elsewhere than on a terminal, the list is printed again only if it has changed, even if nothing is left of it. On a
// terminal, it is redrawn at each read, and the first of the list are not scrolled off the screen.
func TestAWatchedListIsPrintedAgainIfItHasChanged(t *testing.T) {
	for _, at := range []terminal.Terminal{{}, {IsTerminal: true, Width: 80, Height: 10}} {
		synctest.Test(t, func(t *testing.T) {
			t.Setenv("TERM", "xterm")
			w := heldLocks(t, 30)
			ctx, stop := context.WithCancel(t.Context())
			done := make(chan error)
			go func() { done <- w.repeat(ctx, &w.store, at) }()
			synctest.Wait()
			first := w.next()
			time.Sleep(10 * time.Second)
			synctest.Wait()
			again := w.next()
			require.NoError(t, table.Table{Store: &w.store}.Release(t.Context(), w.token, w.names...))
			time.Sleep(10 * time.Second)
			synctest.Wait()
			gone := w.next()
			assert.Contains(t, gone, "as of 2000-01-01T00:00:12.000Z\nNo lock in the table is held.\n")
			if at.IsTerminal {
				assert.Equal(t, 5, strings.Count(again, terminal.Clear))
				assert.Regexp(t, "^\x1b\\[H\x1b\\[Jas of 2000-01-01T00:00:00.000Z\nLOCK .*\n(lock-0[0-5] .*\n){6}24 more lines\n$", first)
			} else {
				assert.Empty(t, again)
				assert.Regexp(t, "^as of 2000-01-01T00:00:00.000Z\nLOCK .*\n(lock-.*\n){30}$", first)
				assert.Equal(t, 1, strings.Count(gone, "as of"))
			}
			stop()
			assert.NoError(t, <-done)
		})
	}
}

// The first look has to succeed. Later looks continue through an outage, which ls reports once.
func TestAWatchedListGoesOnThroughAnOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := heldLocks(t, 1)
		var down atomic.Bool
		store := table.Via(func(ctx context.Context, _ string, do func(context.Context, table.Store) error) error {
			if down.Load() {
				return commandtest.Away
			}
			return do(ctx, &w.store)
		})
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error)
		said := commandtest.Complaints(func() {
			go func() { done <- w.repeat(ctx, store, terminal.Terminal{}) }()
			synctest.Wait()
			for _, is := range []bool{true, false, true, false} {
				down.Store(is)
				time.Sleep(100 * time.Second)
				synctest.Wait()
			}
			stop()
			assert.NoError(t, <-done)
		})
		assert.Len(t, said, 4)
		assert.Equal(t, 1, strings.Count(w.next(), "as of"), "the lock was held all the time")
		down.Store(true)
		assert.ErrorIs(t, w.repeat(t.Context(), store, terminal.Terminal{}), commandtest.Away)
	})
}

// Watch reports a look that hangs, not only one that has failed. A look that is slow, but within its patience, is none.
func TestALookThatHangsIsSaidInWatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithCancel(t.Context())
		takes := []time.Duration{time.Hour, time.Second, 2 * time.Hour}
		f := &follower{Database: &database.Database{Timeout: 3 * time.Hour}, every: time.Second, patience: 2 * time.Second,
			show: func([]operator.Listing, time.Time) error { return nil },
			read: func(ctx context.Context, _ table.Table) ([]operator.Listing, time.Time, error) {
				if len(takes) == 0 {
					stop()
				} else {
					time.Sleep(takes[0])
					takes = takes[1:]
				}
				return nil, time.Now(), nil
			}}
		said := commandtest.Complaints(func() { assert.NoError(t, f.follow(ctx, table.Table{})) })
		require.Len(t, said, 4)
		assert.Contains(t, said[0], "no answer from Spanner for 2s\"")
		assert.Contains(t, said[2], "no answer from Spanner for 2s; the last output is as of 01:00:02Z")
		for _, i := range []int{1, 3} {
			assert.Contains(t, said[i], "the locks can be read again")
		}
	})
}

// Elsewhere than on a terminal, a log of the list has each change, and no entry for what changes all the time: the times, the
// heartbeats and the waiters.
func TestAChangeOfAnythingButTheTimesIsAChangeOfTheList(t *testing.T) {
	at := commandtest.At
	base := func() []operator.Listing {
		l := commandtest.Held("l", "a", at(90), at(100), time.Minute)
		l.LeaseRecord.Value, l.Done = "v", table.Done{Due: table.Due{Key: "7"}, By: "a", At: at(95)}
		m := commandtest.MemberOf(0, "m", at(100), at(103))
		return []operator.Listing{l, commandtest.Held("k", "b", at(91), at(100), time.Minute), m, commandtest.PartitionWith(m, "p", at(101))}
	}
	ls, err := lsOf("--all")
	require.NoError(t, err)
	marksOf := func(change func(all []operator.Listing) []operator.Listing) string {
		return marks(ls.entries(change(base())))
	}
	same := marksOf(func(all []operator.Listing) []operator.Listing { return all })
	require.NotEmpty(t, marks(nil))
	one := func(change func(l *operator.Listing)) func([]operator.Listing) []operator.Listing {
		return func(all []operator.Listing) []operator.Listing {
			change(&all[0])
			return all
		}
	}
	seen := map[string]string{same: "no change", marks(nil): "nothing"}
	for what, change := range map[string]func([]operator.Listing) []operator.Listing{
		"a name":               one(func(l *operator.Listing) { l.Name = "l2" }),
		"an expiry":            one(func(l *operator.Listing) { l.At = at(200) }),
		"a claim":              one(func(l *operator.Listing) { l.LeaseRecord = nil }),
		"a leaving holder":     one(func(l *operator.Listing) { l.Writer, l.LeaseRecord.ID = "", "a" }),
		"a token":              one(func(l *operator.Listing) { l.Token++ }),
		"a holder":             one(func(l *operator.Listing) { l.Writer = "c" }),
		"a value":              one(func(l *operator.Listing) { l.LeaseRecord.Value = "w" }),
		"work":                 one(func(l *operator.Listing) { l.Done.Key = "8" }),
		"the same work again":  one(func(l *operator.Listing) { l.Done.At = at(96) }),
		"an unreadable record": one(func(l *operator.Listing) { l.Unreadable = table.ErrNewer }),
		"another such record":  one(func(l *operator.Listing) { l.Unreadable = table.ErrGarbled }),
		"unreadable work":      one(func(l *operator.Listing) { l.Undone = table.ErrGarbled }),
		"a release":            one(func(l *operator.Listing) { *l = commandtest.FreeSince("l", at(101)) }),
		"another lock": func(all []operator.Listing) []operator.Listing {
			return append(all, commandtest.Held("z", "", at(90), at(100), time.Minute))
		},
		"one lock less": func(all []operator.Listing) []operator.Listing { return all[1:] },
		"a member": func(all []operator.Listing) []operator.Listing {
			return slices.Insert(all, 3, commandtest.MemberOf(1, "n", at(100), at(103)))
		},
		"a partition": func(all []operator.Listing) []operator.Listing {
			return append(all, commandtest.PartitionWith(all[2], "q", at(101)))
		},
		"a free partition": func(all []operator.Listing) []operator.Listing {
			return append(all[:3], commandtest.FreeSince(table.PartitionName("orders", "p"), at(102)))
		},
	} {
		marks := marksOf(change)
		assert.Empty(t, seen[marks], "%s is a change", what)
		seen[marks] = what
	}
	for what, change := range map[string]func([]operator.Listing) []operator.Listing{
		"a heartbeat": func(all []operator.Listing) []operator.Listing {
			for i := range all {
				all[i].Heartbeat, all[i].At = all[i].Heartbeat.Add(time.Second), all[i].At.Add(2*time.Second)
			}
			return all
		},
		"a waiter": one(func(l *operator.Listing) { l.Waiters, l.Cut = []table.Ticket{{ID: "w", Time: 1}}, true }),
	} {
		assert.Equal(t, same, marksOf(change), "%s is none", what)
	}
}

// A list that is redrawn never scrolls: it leaves out as few lines as it has to, from the end, and says how many. It is
// written at once, so that nobody sees half of it.
func TestARedrawnListFillsTheTerminalAndNoMore(t *testing.T) {
	t.Setenv("TERM", "xterm")
	ls, err := lsOf("--watch")
	require.NoError(t, err)
	for height := 5; height < 16; height++ {
		for n := range 20 {
			var found []operator.Listing
			for i := range n {
				found = append(found, commandtest.Held(fmt.Sprintf("lock-%02d", i), "a", commandtest.At(90), commandtest.At(100), time.Minute))
			}
			w := &writes{}
			require.NoError(t, ls.show(&terminal.Terminal{Writer: w, IsTerminal: true, Width: 80, Height: height}, commandtest.At(100.5), ls.entries(found)))
			require.Len(t, *w, 1)
			text, cleared := strings.CutPrefix((*w)[0], terminal.Clear)
			require.True(t, cleared)
			lines := strings.SplitAfter(strings.TrimSuffix(text, "\n"), "\n")
			require.Equal(t, "as of 1970-01-01T00:01:40.500Z\n", lines[0])
			all := n + 1 // with the headings
			if n == 0 {
				require.Equal(t, ls.selected.none(), lines[1])
				continue
			}
			require.LessOrEqual(t, len(lines), height-1, "the cursor is on the last line")
			if left := all - (height - 3); left > 0 {
				require.Len(t, lines, height-1)
				require.Equal(t, fmt.Sprintf("%d more lines", left), lines[len(lines)-1])
				lines = lines[:len(lines)-1]
			} else {
				require.Len(t, lines, all+1)
			}
			for i, line := range lines[2:] {
				require.Contains(t, line, fmt.Sprintf("lock-%02d ", i))
			}
			*w = nil
			require.NoError(t, ls.show(&terminal.Terminal{Writer: w, Height: height}, commandtest.At(100), ls.entries(found)))
			require.Equal(t, all+1, strings.Count((*w)[0], "\n"), "elsewhere, the whole list is printed")
		}
	}
	assert.ErrorIs(t, ls.show(&terminal.Terminal{Writer: full{}}, commandtest.At(100), nil), errFull)
}

type writes []string

func (w *writes) Write(p []byte) (int, error) {
	*w = append(*w, string(p))
	return len(p), nil
}

// The reason why a read of ls --watch has failed is said, also if it has failed because Spanner did not answer in time.
func TestAReadOfAListThatTakesTooLongIsSaidWithItsReason(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := heldLocks(t, 1)
		var down atomic.Bool
		store := table.Via(func(ctx context.Context, _ string, do func(context.Context, table.Store) error) error {
			if down.Load() {
				<-ctx.Done()
				return ctx.Err()
			}
			return do(ctx, &w.store)
		})
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error)
		said := commandtest.Complaints(func() {
			go func() { done <- w.repeat(ctx, store, terminal.Terminal{}) }()
			for range 10 {
				synctest.Wait()
				down.Store(!down.Load())
				time.Sleep(20 * time.Second)
			}
			stop()
			assert.NoError(t, <-done)
		})
		assert.Len(t, said, 10)
		for i := 0; i < len(said); i += 2 {
			assert.Contains(t, said[i], "can't read the locks, will try again: context deadline exceeded")
		}
	})
}
