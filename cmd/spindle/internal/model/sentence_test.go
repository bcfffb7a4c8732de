package model

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/spindle-lock/spindle/cmd/spindle/internal/commandtest"
	"github.com/spindle-lock/spindle/internal/operator"
	"github.com/spindle-lock/spindle/internal/table"
)

// Each state has its own words, in the line of spindle watch and in the sentence of spindle status. Otherwise, an operator would take a
// paused partition for one that was never claimed.
func TestEachStateHasItsOwnWords(t *testing.T) {
	held := commandtest.Held("l", "a", commandtest.At(100), commandtest.At(103), commandtest.Lease)
	leaving := held
	leaving.Writer = ""
	expired := held
	expired.At = commandtest.At(1000)
	unconfirmed := held
	unconfirmed.LeaseRecord = nil
	released := commandtest.FreeSince("l", commandtest.At(103))
	paused := released
	paused.Paused, paused.Member = true, table.LeaseRef{Name: "orders/member/0001", Token: 7}
	unreadable := held
	unreadable.Unreadable = errors.New("no valid lease")
	orphaned := operator.Listing{Observation: table.Observation{Name: "l", At: commandtest.At(103)}, Adrift: true}
	changes, sentences := map[string]operator.State{}, map[string]operator.State{}
	for state, l := range map[operator.State]operator.Listing{
		operator.Held: held, operator.Leaving: leaving, operator.Expired: expired, operator.Unconfirmed: unconfirmed,
		operator.Released: released, operator.Paused: paused, operator.Unreadable: unreadable, operator.Orphaned: orphaned,
		operator.Free: {Observation: table.Observation{Name: "l", At: commandtest.At(103)}},
	} {
		assert.Equal(t, state, l.State())
		changes[Change(l)], sentences[Sentence(l)] = state, state
	}
	assert.Len(t, changes, len(All)-1, "%v", changes) // a lock is never partial, only a group
	assert.Len(t, sentences, len(All)-1, "%v", sentences)
	assert.Contains(t, Change(paused), "paused by the program of its member, orders/member/0001")
}

// Operators decide by these texts whether to wait, to break a lock or to call somebody. Each says the right lock, holder,
// member and times, and those of no other.
func TestATextSaysWhatIsKnownOfALock(t *testing.T) {
	held := commandtest.Held("l", "a", commandtest.At(100), commandtest.At(103), 10*time.Second)
	held.At = commandtest.At(107)
	member := table.LeaseRef{Name: "orders/member/0001", Token: 7}
	with := func(l operator.Listing, change func(l *operator.Listing)) operator.Listing {
		if l.LeaseRecord != nil {
			record := *l.LeaseRecord
			l.LeaseRecord = &record
		}
		change(&l)
		return l
	}
	released := commandtest.FreeSince("l", commandtest.At(100))
	released.At = commandtest.At(107)
	done := table.Done{Due: table.Due{Key: "42"}, By: "b", At: commandtest.At(100)}
	newer := fmt.Errorf("lease row: %w", table.ErrNewer)
	free := operator.Listing{Observation: table.Observation{Name: "l", At: commandtest.At(107)}}
	for _, c := range []struct {
		what                      string
		l                         operator.Listing
		sentence, change, nobodys string
	}{
		{"held", held, "l is held by a\n  token 100000000, held for 7.0s; last heartbeat 4.0s ago, lease 10s", "held by a, token 100000000", ""},
		{"held, with a value", with(held, func(l *operator.Listing) { l.LeaseRecord.Value = "x\ny" }),
			"l is held by a\n  token 100000000, held for 7.0s; last heartbeat 4.0s ago, lease 10s\n  value $'x\\ny'", "held by a, token 100000000, value $'x\\ny'", ""},
		{"held, with work done", with(held, func(l *operator.Listing) { l.Done = done }),
			"l is held by a\n  token 100000000, held for 7.0s; last heartbeat 4.0s ago, lease 10s\n  last done: 42, 7.0s ago, by b", "held by a, token 100000000", ""},
		{"held by a member", with(held, func(l *operator.Listing) { l.Member = member }),
			"l is held by a\n  token 100000000, held for 7.0s; last heartbeat 4.0s ago, lease 10s\n  its heartbeats are sent by a member of the group, orders/member/0001", "held by a, token 100000000", ""},
		{"leaving", with(held, func(l *operator.Listing) { l.Writer, l.LeaseRecord.ID = "", "a" }),
			"l is held by a, which is leaving and will release the lock once its work has ended\n  token 100000000, held for 7.0s; last heartbeat 4.0s ago, lease 10s",
			"leaving: a will release the lock once its work has ended", ""},
		{"expired", with(held, func(l *operator.Listing) { l.At, l.Member = commandtest.At(115), member }),
			"l is free: the lease of a has expired\n  token 100000000; last heartbeat 12s ago, lease 10s\n  its heartbeats are sent by a member of the group, orders/member/0001",
			"expired, 10s after the last heartbeat of a", "l (expired 2.0s ago)"},
		{"released", released, "l is free: it was released 7.0s ago", "released", "l (released 7.0s ago)"},
		{"released with its work", with(released, func(l *operator.Listing) { l.Done = done }),
			"l is free: it was released 7.0s ago\n  last done: 42, 7.0s ago, by b", "released: 42 is done", "l (released 7.0s ago)"},
		{"released after other work", with(released, func(l *operator.Listing) { l.Done = done; l.Done.At, l.Done.By = commandtest.At(99), "" }),
			"l is free: it was released 7.0s ago\n  last done: 42, 8.0s ago, by an unknown holder", "released", "l (released 7.0s ago)"},
		{"released by its member", with(released, func(l *operator.Listing) { l.Member = member }),
			"l is free: the member that held it, orders/member/0001, ended its term at least 7.0s ago", "released", "l (released 7.0s ago)"},
		{"paused", with(released, func(l *operator.Listing) { l.Paused, l.Member = true, member }),
			"l is paused by the program of its member, orders/member/0001; it was last released 7.0s ago",
			"paused by the program of its member, orders/member/0001", "l (paused by the program of its member)"},
		{"unconfirmed", with(held, func(l *operator.Listing) { l.LeaseRecord, l.Member = nil, member }),
			"l is not held: a claimed it 4.0s ago and has not confirmed the claim yet\n  token 100000000\n  its heartbeats are sent by a member of the group, orders/member/0001",
			"claimed by a", "l (claimed by a, which has not confirmed its claim yet)"},
		{"orphaned", with(free, func(l *operator.Listing) { l.OrphanLeases = map[table.Token]table.LeaseRecord{5: {}} }),
			"l is not held, because its lock row was deleted; candidates can claim the lock once its last holder's lease has certainly expired",
			"orphaned: its lock row was deleted", "l (its lock row was deleted)"},
		{"adrift", with(held, func(l *operator.Listing) { l.Adrift, l.Member = true, member }),
			"l is not held, because the lock row of its member, orders/member/0001, was deleted; other members can claim the partition once that member's lease has certainly expired",
			"orphaned: the lock row of its member, orders/member/0001, was deleted", "l (the lock row of its member, orders/member/0001, was deleted)"},
		{"unreadable", with(held, func(l *operator.Listing) { l.Unreadable = errors.New("no lease") }),
			"l may be held by a under token 100000000, but its lease row can't be read", "unreadable: the lease row does not say how long the holder may act", ""},
		{"unreadable, and leaving", with(held, func(l *operator.Listing) { l.Unreadable, l.Writer, l.LeaseRecord = errors.New("no lease"), "", nil }),
			"l may be held by an unknown process under token 100000000, but its lease row can't be read", "unreadable: the lease row does not say how long the holder may act", ""},
		{"newer", with(held, func(l *operator.Listing) { l.Unreadable = newer }),
			"l may be held by a under token 100000000, but its lease row can't be read", "unreadable: " + newer.Error(), ""},
		{"free", free, "l is free: it was never claimed, or its row was pruned", "free: it was never claimed, or its row was pruned", "l (never claimed, or its row was pruned)"},
		{"free, with work done", with(free, func(l *operator.Listing) { l.Done = done }),
			"l is free: it was never claimed, or its row was pruned\n  last done: 42, 7.0s ago, by b", "free; last done: 42, 7.0s ago, by b", "l (never claimed, or its row was pruned)"},
		{"free, with work that can't be read", with(free, func(l *operator.Listing) { l.Undone = errors.New("what was done is not known") }),
			"l is free: it was never claimed, or its row was pruned\n  what was done is not known", "free; what was done is not known", "l (never claimed, or its row was pruned)"},
	} {
		assert.Equal(t, []string{c.sentence, c.change, c.nobodys}, []string{Sentence(c.l), Change(c.l), Leaderless([]operator.Listing{c.l})}, c.what)
		strange := with(c.l, func(l *operator.Listing) {
			l.Name, l.Writer = "l\x1b", strings.Replace(l.Writer, "a", "a\x1b", 1)
			if l.Member.Name != "" {
				l.Member.Name = "orders\x1b/member/0001"
			}
			if l.LeaseRecord != nil && l.LeaseRecord.ID != "" {
				l.LeaseRecord.ID = "a\x1b"
			}
			if l.Done.Key != "" {
				l.Done.Key, l.Done.By = "42\x1b", l.Done.By+"\x1b"
			}
		})
		assert.NotContains(t, Sentence(strange)+Change(strange)+Leaderless([]operator.Listing{strange}), "\x1b", c.what)
	}
	// Leaderless names each lock without a holder, whatever is around it.
	assert.Equal(t, "l (released 7.0s ago), l (never claimed, or its row was pruned)", Leaderless([]operator.Listing{held, released, held, free, held}))
}
