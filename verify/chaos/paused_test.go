//go:build chaos && unix

package chaos

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spindle-lock/spindle"
)

// The leader reads, is paused for longer than its lease, and writes a value based on its read. In the meantime, a
// different process has led and written. This also tests the checkers: they must accept the fenced run, and must not
// accept the same run without the fence.
func TestPausedLeaderLosesAnUpdateUnlessItIsFenced(t *testing.T) {
	needEmulator(t)
	t.Parallel()
	for name, fenced := range map[string]bool{"without the fence": false, "with the fence": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newHistory(t)
			v := pausedLeader(t, h, map[bool]string{false: "write", true: "write fenced"}[fenced])
			assert.Empty(t, v.overlaps)
			if fenced {
				v.require(t)
				return
			}
			assert.Equal(t, []string{"p-1"}, v.notLinear, "two writes that found the same value: an update is lost")
			assert.Len(t, v.miscounted, 1, "three writes count two")
			require.Len(t, v.disorder, 1, "a write under the old token landed after the new one")
			_, err := os.Stat(filepath.Join(h.dir, "register-p-1.html"))
			assert.NoError(t, err, "the picture of it")
		})
	}
}

const (
	pausedRow   = 1
	pausedLease = 3 * time.Second // so that nothing but the pause costs the lock
)

func pausedLeader(t *testing.T, h *history, write string) verdict {
	db := newDatabase(t, false)
	team := newTeam(t, h, candidate{Lock: "p", Database: db.Path, Table: db.Table, Lease: pausedLease, Scripted: true}, db, 2)
	first := team.elected(0, settle)
	paused := team.member(first.who)
	bothHalves(t, team, paused, first.token, "write", kindAccepted)

	team.half(t, paused, command{Do: "read", Token: first.token, Row: pausedRow}, kindRead)
	stopped := now()
	paused.signal(syscall.SIGSTOP)
	second := team.otherThan(t, first, stopped)
	bothHalves(t, team, team.member(second.who), second.token, write, kindAccepted)

	paused.signal(syscall.SIGCONT)
	outcome := kindAccepted
	if write == "write fenced" {
		outcome = kindFenced
	}
	team.half(t, paused, command{Do: write}, outcome)
	team.terminate()
	team.finish()
	return h.check()
}

// bothHalves makes both halves of a write.
func bothHalves(t *testing.T, team *team, m *member, token spindle.Token, write, outcome string) {
	t.Helper()
	team.half(t, m, command{Do: "read", Token: token, Row: pausedRow}, kindRead)
	team.half(t, m, command{Do: write}, outcome)
}

// half makes m do one half of a write, and waits for its report.
func (t *team) half(tb testing.TB, m *member, c command, kind string) {
	tb.Helper()
	start := now()
	m.command(c)
	require.True(tb, t.h.await(settle, func() bool { return t.h.lastOf(m.current().who, kind).At > start }), "%s: %s was not %s", m.name, c.Do, kind)
}

// otherThan waits for a holder other than t's.
func (t *team) otherThan(tb testing.TB, first term, after int64) (next term) {
	tb.Helper()
	require.True(tb, t.h.await(settle, func() bool {
		holder := t.h.holder(t.base.Lock, after)
		if holder == nil || holder.token == first.token {
			return false
		}
		next = *holder
		return true
	}), "nobody took over within %v", settle)
	return next
}

// The checkers, applied to handwritten histories.
func TestCheckers(t *testing.T) {
	at := func(ms int64) int64 { return (ms + 1) * int64(time.Millisecond) }
	held := func(who string, token spindle.Token, from, to int64) record {
		return record{Kind: kindHeld, Lock: "x", Who: who, Token: token, From: at(from), To: at(to)}
	}
	// A write of 'value' is in progress from ms to ms+10.
	wrote := func(outcome string, token spindle.Token, ms, value, prev, commit int64) []record {
		invoke := record{Kind: kindInvoke, Lock: "x", Who: "w", Row: 1, Token: token, Value: value, At: at(ms)}
		end := invoke
		end.Kind, end.Prev, end.Commit, end.At = outcome, prev, commit, at(ms+10)
		return []record{invoke, end}
	}
	final := func(value, count int64) []record {
		return []record{{Kind: kindFinal, Lock: "x", Row: 1, Value: value, Count: count, From: at(1000), At: at(1001)}}
	}
	for name, c := range map[string]struct {
		records                 [][]record
		overlaps, disorders     int
		notLinear               bool
		miscounted, unknownSeen int
		gap                     time.Duration
	}{
		"terms one after the other": {
			records: [][]record{{held("a", 1, 10, 20), held("a", 1, 10, 40), held("b", 2, 90, 95)}},
			gap:     50 * time.Millisecond,
		},
		"terms that overlap": {records: [][]record{{held("a", 1, 10, 20), held("b", 2, 30, 35), held("a", 1, 10, 40)}}, overlaps: 1},
		"a term within a long one, and one more": {
			records: [][]record{{held("a", 1, 10, 100), held("b", 2, 30, 35), held("b", 3, 50, 55)}}, overlaps: 2,
		},
		"an older token later": {records: [][]record{{held("a", 2, 10, 20), held("b", 1, 30, 35)}}, disorders: 1, gap: 10 * time.Millisecond},
		"writes one after the other": {
			records: [][]record{wrote(kindAccepted, 1, 0, 5, 0, 10), wrote(kindAccepted, 20, 20, 6, 5, 30), final(6, 2)},
		},
		"a write that is counted twice": {
			records: [][]record{wrote(kindAccepted, 1, 0, 5, 0, 10), wrote(kindAccepted, 20, 20, 6, 5, 30), final(6, 3)}, miscounted: 1,
		},
		"a write that is not counted": {
			records: [][]record{wrote(kindUnknown, 1, 0, 5, 0, 0), wrote(kindAccepted, 1, 20, 6, 5, 30), final(6, 1)}, miscounted: 1, unknownSeen: 1,
		},
		"a lost update":                 {records: [][]record{wrote(kindAccepted, 1, 0, 5, 0, 10), wrote(kindAccepted, 1, 20, 6, 0, 30)}, notLinear: true},
		"a write that is gone":          {records: [][]record{wrote(kindAccepted, 1, 0, 5, 0, 10), final(0, 0)}, notLinear: true, miscounted: 1},
		"unknown, and did not happen":   {records: [][]record{wrote(kindUnknown, 1, 0, 5, 0, 0), final(0, 0)}},
		"unknown, and happened":         {records: [][]record{wrote(kindUnknown, 1, 0, 5, 0, 0), final(5, 1)}, unknownSeen: 1},
		"unknown, and happened later":   {records: [][]record{wrote(kindUnknown, 1, 0, 5, 0, 0), wrote(kindAccepted, 1, 20, 6, 0, 30), final(5, 2)}, unknownSeen: 1},
		"unknown, and happened earlier": {records: [][]record{wrote(kindAccepted, 1, 0, 6, 5, 10), wrote(kindUnknown, 1, 20, 5, 0, 0)}, notLinear: true, unknownSeen: 1},
		"fenced, and happened":          {records: [][]record{wrote(kindFenced, 1, 0, 5, 0, 0), final(5, 1)}, notLinear: true, miscounted: 1},
		"an old token's write after a newer claim": {
			records: [][]record{wrote(kindAccepted, 1, 0, 5, 0, 10), wrote(kindAccepted, 20, 20, 6, 5, 30), wrote(kindAccepted, 1, 40, 7, 6, 50), final(7, 3)}, disorders: 1,
		},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHistory(t)
			for _, rs := range c.records {
				for _, r := range rs {
					h.add(r)
				}
			}
			v := h.check()
			assert.Len(t, v.overlaps, c.overlaps)
			assert.Len(t, v.disorder, c.disorders)
			assert.Equal(t, c.notLinear, len(v.notLinear) > 0)
			assert.Len(t, v.miscounted, c.miscounted)
			assert.Equal(t, c.unknownSeen, v.unknownSeen)
			assert.Equal(t, c.gap, v.longestGap)
		})
	}
}
