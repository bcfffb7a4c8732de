package share

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/spindle-lock/spindle/internal/plan"
	"github.com/spindle-lock/spindle/internal/table"
)

// This test covers the heart of the protocol, which is when a partition can be claimed, as seen in one snapshot.
func TestWhenAPartitionCanBeClaimed(t *testing.T) {
	at := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	ago := func(d time.Duration) time.Time { return at.Add(-d) }
	token := func(d time.Duration) table.Token { return table.TokenAt(ago(d)) }
	member := func(slot int, joined time.Duration) table.LeaseRef {
		return table.LeaseRef{Name: table.SlotName("orders", slot), Token: token(joined)}
	}
	own, live, evicted, replaced := member(0, time.Hour), member(1, time.Hour), member(2, time.Hour), member(3, 2*time.Hour)
	gone, other := member(4, time.Hour), table.LeaseRef{Name: table.SlotName("bills", 1), Token: token(time.Hour)}
	row := func(h table.LeaseRef, heartbeat time.Time) table.Observation {
		return table.Observation{Name: h.Name, At: at, Exists: true, Heartbeat: heartbeat, Token: h.Token}
	}
	members := map[string]table.Observation{
		own.Name: row(own, ago(time.Second)), live.Name: row(live, ago(time.Hour/2)), evicted.Name: row(evicted, time.Time{}),
		replaced.Name: row(member(3, time.Hour), ago(time.Second)),
	}
	const name = "orders/partition/17"
	held := func(by string, heartbeat time.Duration, p *table.LeaseRecord) table.Observation {
		return table.Observation{Name: name, At: at, Exists: true, Heartbeat: ago(heartbeat), Token: token(heartbeat + time.Second), Writer: by, LeaseRecord: p}
	}
	with := func(h table.LeaseRef) table.Observation {
		return held(h.Key(), time.Hour, &table.LeaseRecord{With: h.Key(), Lease: 20 * time.Second})
	}
	bare := func(by string, claimed time.Duration) table.Observation {
		s := held(by, claimed, nil)
		s.Token = token(claimed)
		return s
	}
	absent := func(orphanLeases ...table.LeaseRecord) table.Observation {
		s := table.Observation{Name: name, At: at, OrphanLeases: map[table.Token]table.LeaseRecord{}}
		for i, p := range orphanLeases {
			s.OrphanLeases[token(time.Duration(i+1)*time.Minute)] = p
		}
		return s
	}
	noLease := func(s table.Observation) table.Observation { s.LeaseRecord = nil; return s }
	released := table.Observation{Name: name, At: at, Exists: true, Token: token(time.Second)}
	seen := history{assumed: 15 * time.Second, absent: ago(4 * time.Second)}
	since := map[table.LeaseRef]time.Time{gone: ago(5 * time.Second)}
	lock := table.LeaseRecord{Lease: 30 * time.Second}
	slow := member(6, time.Hour) // its row is missing as well, and its lease is known to be long

	vanished := table.SlotName("orders", 5) // its lock row is missing, and its lease row can't be read
	defer func() {
		j := Judge{Snapshot: table.GroupSnapshot{At: at, Members: members, Unreadable: map[string]error{vanished: errors.New("not JSON")}}, Own: own,
			Memory: &plan.Memory{Lease: 10 * time.Second, Missing: map[table.LeaseRef]time.Time{{Name: vanished, Token: token(time.Hour)}: ago(time.Minute)}}}
		had := table.LeaseRef{Name: vanished, Token: token(time.Hour)}
		wait, _ := j.claimableIn(with(had), history{})
		assert.Equal(t, never, wait, "its member's row is missing, and its lease row can't be read")
		assert.Equal(t, never, j.freeWith(had, never), "never has no end")
	}()
	for what, c := range map[string]struct {
		o       table.Observation
		m       history
		missing map[table.LeaseRef]time.Time
		wait    time.Duration
	}{
		"it was given back":  {o: released},
		"it never had a row": {o: absent()},
		"its row has vanished, and it had been given back":     {o: absent(), m: history{absent: ago(time.Second)}},
		"its row has vanished":                                 {o: absent(), m: seen, wait: 11 * time.Second},
		"a live member has it":                                 {o: with(live), wait: never},
		"a member that is evicted had it":                      {o: with(evicted)},
		"a member whose slot another has had it":               {o: with(replaced)},
		"the own member has it, and nobody acts on it":         {o: with(own)},
		"a missing member has it, just seen":                   {o: with(gone), wait: never},
		"a missing member has it, seen a while ago":            {o: with(gone), missing: since, wait: 15 * time.Second},
		"a missing member has a longer lease":                  {o: with(slow), missing: map[table.LeaseRef]time.Time{slow: ago(5 * time.Second)}, wait: 35 * time.Second},
		"a missing member has waited long enough":              {o: with(gone), missing: map[table.LeaseRef]time.Time{gone: ago(20 * time.Second)}},
		"an earlier term of a missing member was waited for":   {o: with(gone), missing: map[table.LeaseRef]time.Time{member(4, 3*time.Hour): ago(time.Hour)}, wait: never},
		"a member of another group has it":                     {o: with(other), wait: never},
		"a live member has it, and its lease row was deleted":  {o: noLease(with(live)), wait: never},
		"an evicted one had it, and its lease row was deleted": {o: noLease(with(evicted))},
		"a missing one has it, and its lease row was deleted":  {o: noLease(with(gone)), missing: since, wait: 5 * time.Second},
		"a live member has just claimed it":                    {o: bare(live.Key(), time.Second), wait: 9 * time.Second},
		"a live member claimed it long ago":                    {o: bare(live.Key(), time.Hour)},
		"an evicted member claimed it":                         {o: bare(evicted.Key(), time.Second)},
		"the own member claimed it":                            {o: bare(own.Key(), time.Second)},
		"a missing member claimed it":                          {o: bare(gone.Key(), 3*time.Second), wait: 7 * time.Second},
		"a lock claimed it":                                    {o: bare("somebody", 3*time.Second), wait: 7 * time.Second},
		"a lock has it":                                        {o: held("somebody", 10*time.Second, &lock), wait: 20 * time.Second},
		"a lock had it that has expired":                       {o: held("somebody", 40*time.Second, &lock)},
		"a lock has it, and its lease row was deleted":         {o: noLease(held("somebody", 3*time.Second, &lock)), wait: 7 * time.Second},
		"a leaving lock has it":                                {o: held("", 10*time.Second, &lock), wait: 20 * time.Second},
		"an orphan lease of a live member":                     {o: absent(table.LeaseRecord{With: live.Key(), Lease: time.Second}), wait: never},
		"an orphan lease of an evicted member":                 {o: absent(table.LeaseRecord{With: evicted.Key(), Lease: time.Second})},
		"an orphan lease of the own member":                    {o: absent(table.LeaseRecord{With: own.Key(), Lease: time.Second})},
		"an orphan lease of a missing member":                  {o: absent(table.LeaseRecord{With: gone.Key(), Lease: 8 * time.Second}), missing: since, wait: 5 * time.Second},
		"orphan leases of an evicted and of a live member":     {o: absent(table.LeaseRecord{With: evicted.Key(), Lease: time.Second}, table.LeaseRecord{With: live.Key(), Lease: time.Second}), wait: never},
		"an orphan lease of a lock":                            {o: absent(lock), m: seen, wait: 26 * time.Second},
		"orphan leases of two locks":                           {o: absent(table.LeaseRecord{Lease: 20 * time.Second}, lock, table.LeaseRecord{Lease: 10 * time.Second}, table.LeaseRecord{Lease: 5 * time.Second}), m: seen, wait: 26 * time.Second},
	} {
		j := Judge{Snapshot: table.GroupSnapshot{At: at, Members: members}, Own: own, Memory: &plan.Memory{Lease: 10 * time.Second, Missing: c.missing, Leases: map[table.LeaseRef]time.Duration{slow: 40 * time.Second}}}
		wait, unreadable := j.claimableIn(c.o, c.m)
		assert.Equal(t, c.wait, wait, what)
		assert.NoError(t, unreadable, what)
		for range 10 * len(c.o.OrphanLeases) { // in whichever order they are read
			wait, _ = j.claimableIn(c.o, c.m)
			assert.Equal(t, c.wait, wait, what)
		}
		live := c.o.Writer == live.Key() && c.o.Confirmed() // its row is enough
		for _, bad := range []error{table.ErrNewer, errors.New("not JSON")} {
			j.Snapshot.Unreadable = map[string]error{name: bad}
			wait, unreadable = j.claimableIn(c.o, c.m)
			_, isMember := table.MemberOf(c.o.Writer)
			switch {
			case live:
				assert.Equal(t, never, wait, what)
				assert.NoError(t, unreadable, what)
			case !c.o.Exists, c.o.LeaseRecord != nil && (bad == table.ErrNewer || !isMember):
				assert.Equal(t, never, wait, "%s, and its lease rows can't be read", what)
				assert.ErrorIs(t, unreadable, bad, what)
			case c.o.Heartbeat.IsZero():
				assert.Zero(t, wait, what)
			}
		}
	}
}

const lease = 10 * time.Second

// If a partition's row vanishes for the second time, its last holder may act for a lease from then on, whether the row showed
// a holder or a release in between. After a release, there was no holder.
func TestASecondAbsenceCountsFromItsBeginning(t *testing.T) {
	at := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	for _, heartbeat := range []time.Time{at, {}} {
		h := history{assumed: time.Hour}
		for i, exists := range []bool{true, false, false, true, false, false} {
			h.learn(table.Observation{At: at.Add(time.Duration(i) * time.Second), Exists: exists, Heartbeat: heartbeat}, lease)
		}
		assert.Equal(t, at.Add(4*time.Second), h.absent)
		assert.Equal(t, heartbeat.IsZero(), h.assumed == 0)
	}
}
