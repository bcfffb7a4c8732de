package elect

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/spindle-lock/spindle/internal/table"
)

var origin = time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)

const (
	tokenOne = table.Token(1_900_000_000_000_000)
	tokenTwo = tokenOne + 1
)

// Observations of one lock, all at the same instant.
func absent(orphanLeases map[table.Token]table.LeaseRecord) table.Observation {
	return table.Observation{Name: "m", At: origin, OrphanLeases: orphanLeases}
}

func released() table.Observation {
	return table.Observation{Name: "m", At: origin, Exists: true, Token: tokenOne}
}

func bareClaim(ago time.Duration) table.Observation {
	at := origin.Add(-ago)
	return table.Observation{Name: "m", At: origin, Exists: true, Token: table.TokenAt(at), Heartbeat: at, Writer: "w"}
}

func heldBy(token table.Token, ago time.Duration, p *table.LeaseRecord) table.Observation {
	return table.Observation{Name: "m", At: origin, Exists: true, Token: token, Heartbeat: origin.Add(-ago), Writer: "w", LeaseRecord: p}
}

func orphan(token table.Token, lease time.Duration) map[table.Token]table.LeaseRecord {
	return map[table.Token]table.LeaseRecord{token: {Lease: lease}}
}

func later(o table.Observation, d time.Duration) table.Observation {
	o.At = o.At.Add(d)
	return o
}

// TestWhenALockIsFree checks how long after the last of the observations the lock can be claimed by a candidate with a
// lease of 10 s, and with a lock delay if one is given.
func TestWhenALockIsFree(t *testing.T) {
	const s = time.Second
	minute := &table.LeaseRecord{Lease: time.Minute}
	delayed := rules{lease: 10 * s, delay: 5 * s, id: "me"}
	plain := rules{lease: 10 * s, id: "me"}
	own := rules{lease: 10 * s, id: "me", own: tokenOne}
	ownDelayed := rules{lease: 10 * s, delay: 5 * s, id: "me", own: tokenOne}
	reclaims := rules{lease: 10 * s, delay: 5 * s, id: "w", reclaim: true}
	for _, c := range []struct {
		name string
		r    rules
		seen []table.Observation
		free time.Duration
	}{
		{"never claimed", delayed, []table.Observation{absent(nil)}, 0},
		{"released", delayed, []table.Observation{released()}, 0},
		{"released, after it was held", delayed, []table.Observation{heldBy(tokenOne, s, minute), released()}, 0},
		{"held: the holder's lease counts", plain, []table.Observation{heldBy(tokenOne, 20*s, minute)}, 40 * s},
		{"held: and the lock delay", delayed, []table.Observation{heldBy(tokenOne, 20*s, minute)}, 45 * s},
		{"held: by a lease record that was read before", plain, []table.Observation{heldBy(tokenOne, 20*s, minute), heldBy(tokenOne, s, nil)}, 59 * s},
		{"held by another, whose lease record is not known", plain, []table.Observation{heldBy(tokenOne, 20*s, minute), heldBy(tokenTwo, 2*s, nil)}, 8 * s},
		{"held, the lease record not known, with an orphan lease", plain, []table.Observation{{Name: "m", At: origin, Exists: true, Token: tokenTwo, Heartbeat: origin, OrphanLeases: orphan(tokenOne, time.Minute)}}, 60 * s},
		{"expired", plain, []table.Observation{heldBy(tokenOne, 61*s, minute)}, -s},
		{"expired, within the lock delay", delayed, []table.Observation{heldBy(tokenOne, 61*s, minute)}, 4 * s},
		{"a bare claim has no lease record", delayed, []table.Observation{bareClaim(3 * s)}, 7 * s},
		{"its own last term", own, []table.Observation{heldBy(tokenOne, 0, minute)}, 0},
		{"its own last term, with a lock delay", ownDelayed, []table.Observation{heldBy(tokenOne, 0, minute)}, 65 * s},
		{"another's term after its own", own, []table.Observation{heldBy(tokenTwo, 0, minute)}, 60 * s},
		{"its own id, to be reclaimed", reclaims, []table.Observation{heldBy(tokenOne, 0, minute)}, 0},
		{"another's id, not to be reclaimed", rules{lease: 10 * s, id: "me", reclaim: true}, []table.Observation{heldBy(tokenOne, 0, minute)}, 60 * s},
		{"gone, with an orphan lease", plain, []table.Observation{absent(orphan(tokenOne, time.Minute))}, 60 * s},
		{"gone, with an orphan lease, and the lock delay", delayed, []table.Observation{absent(orphan(tokenOne, time.Minute))}, 65 * s},
		{"gone, with its own orphan lease", own, []table.Observation{absent(orphan(tokenOne, time.Minute))}, 0},
		{"gone, after a holder was seen", plain, []table.Observation{heldBy(tokenOne, 20*s, minute), absent(nil)}, 60 * s},
		{"gone, after a holder was seen, and the lock delay", delayed, []table.Observation{heldBy(tokenOne, 20*s, minute), absent(nil)}, 65 * s},
		{"gone for a while: from when that was first seen", plain, []table.Observation{heldBy(tokenOne, 20*s, minute), absent(nil), later(absent(nil), 50*s)}, 10 * s},
		{"gone for a while, then another orphan lease", plain, []table.Observation{absent(orphan(tokenOne, time.Minute)), later(absent(orphan(tokenTwo, time.Minute)), 50*s)}, 60 * s},
		{"gone, back, and gone again", plain, []table.Observation{heldBy(tokenOne, 0, minute), absent(nil), later(heldBy(tokenOne, 0, nil), 30*s), later(absent(nil), 50*s)}, 60 * s},
		{"gone, after it was released", delayed, []table.Observation{heldBy(tokenOne, 0, minute), released(), absent(nil)}, 0},
		{"gone, after a bare claim, which may have been confirmed", plain, []table.Observation{bareClaim(0), absent(nil)}, 10 * s},
		{"gone, after a bare claim, and the lock delay", delayed, []table.Observation{bareClaim(0), absent(nil)}, 15 * s},
		{"gone, after a bare claim of a released lock", plain, []table.Observation{released(), bareClaim(0), absent(nil)}, 10 * s},
		{"gone, after a bare claim over a holder with a short lease", plain, []table.Observation{heldBy(tokenOne, 0, &table.LeaseRecord{Lease: s}), bareClaim(0), absent(nil)}, 10 * s},
		{"gone, after a bare claim, with an orphan lease", plain, []table.Observation{bareClaim(0), absent(orphan(tokenOne, time.Minute))}, 60 * s},
		{"gone, after a bare claim, with a short orphan lease", plain, []table.Observation{bareClaim(0), absent(orphan(tokenOne, s))}, 10 * s},
		{"gone, after a bare claim over a holder", plain, []table.Observation{heldBy(tokenOne, 0, minute), bareClaim(0), absent(nil)}, 60 * s},
	} {
		t.Run(c.name, func(t *testing.T) {
			var h lockHistory
			for _, o := range c.seen {
				h.learn(o, c.r)
			}
			last := c.seen[len(c.seen)-1]
			before := h
			assert.Equal(t, c.free, h.freeIn(last, c.r))
			assert.Equal(t, before, h, "to ask changes nothing")
		})
	}
}

// A holder can have been leaving since the last poll that did not show it. That poll was of this holder's term or before.
func TestAHolderMayHaveBeenLeavingSinceTheLastPollThatDidNotShowIt(t *testing.T) {
	var h lockHistory
	leaving := func(token table.Token) table.Observation {
		o := heldBy(token, 0, nil)
		o.Writer = ""
		return o
	}
	for i, poll := range []struct {
		o    table.Observation
		from int
	}{
		{leaving(tokenOne), 0}, // the first poll
		{leaving(tokenOne), 0},
		{heldBy(tokenTwo, 0, nil), 0},
		{leaving(tokenTwo), 2},
		{leaving(tokenTwo), 2},
		{leaving(tokenTwo + 1), 4},
	} {
		h.learnLeaving(poll.o, Instant{Wall: int64(i + 1)})
		assert.Equal(t, Instant{Wall: int64(poll.from + 1)}, h.marked, "poll %d", i)
	}
}

func TestALockThatWasNotReleasedIsToldFromOneThatWas(t *testing.T) {
	r, p := rules{lease: lease}, &table.LeaseRecord{Lease: lease}
	for _, c := range []struct {
		seen        []table.Observation
		notReleased bool
	}{
		{[]table.Observation{absent(nil)}, false},
		{[]table.Observation{released()}, false},
		{[]table.Observation{heldBy(tokenOne, time.Hour, p)}, true},
		{[]table.Observation{heldBy(tokenOne, time.Hour, p), released()}, false},
		{[]table.Observation{heldBy(tokenOne, time.Hour, p), absent(nil)}, true},
		{[]table.Observation{bareClaim(time.Hour)}, true},
		{[]table.Observation{absent(orphan(tokenOne, lease))}, true},
	} {
		var h lockHistory
		for _, o := range c.seen {
			h.learn(o, r)
		}
		assert.Equal(t, c.notReleased, h.notReleased(c.seen[len(c.seen)-1]), "%v", c.seen)
	}
}

// The terms of a candidate that yields to preferences in vain ignore them for ever longer. That ends once a candidate of
// higher priority has kept the lock for three leases, and for no other holder.
func TestAPreferenceIsIgnoredUntilOneHasKeptTheLock(t *testing.T) {
	const own = 5
	held := func(rank int, leases time.Duration) table.Observation {
		return heldBy(table.TokenAt(origin.Add(-leases*lease)), 0, &table.LeaseRecord{Lease: lease, Rank: rank})
	}
	var p preference
	assert.Zero(t, p.ignoreFor(lease))
	for range 2 {
		for _, want := range []time.Duration{10 * lease, 20 * lease} {
			p.spurned = true
			assert.Equal(t, want, p.ignoreFor(lease))
		}
		assert.Equal(t, 20*lease, p.ignoreFor(lease), "no longer, if it did not yield to one again")
		p.see(held(own, 9), own)
		p.see(held(own-1, 2), own)
		assert.Equal(t, 20*lease, p.ignoreFor(lease))
		p.spurned = true
		p.see(held(own-1, 3), own)
		assert.Zero(t, p.ignoreFor(lease))
	}
}

// A candidate waits in full for a term that it could not keep, and then lets others go first, whatever would let it claim its own lock at
// once. Otherwise a process that can claim but not send heartbeats would win the lock again and again. A lock delay ends early only for
// the candidate's own id with WithReclaim.
func TestNothingShortensTheWaitAfterATermThatWasNotKept(t *testing.T) {
	o := heldBy(tokenOne, lease/4, &table.LeaseRecord{Lease: time.Minute})
	for n := range 2 * 2 * 2 * 3 * 3 * 2 {
		pick := func(of ...any) any { at := n % len(of); n /= len(of); return of[at] }
		r := rules{lease: lease, yieldFor: lease / 3, reclaim: pick(false, true).(bool), id: pick("me", o.Writer).(string), delay: pick(time.Duration(0), lease/2).(time.Duration),
			own: pick(table.Token(0), tokenOne, tokenTwo).(table.Token), unkept: pick(table.Token(0), tokenOne, tokenTwo).(table.Token), rank: pick(0, table.MaxRank).(int)}
		want := time.Minute - lease/4 + r.delay
		if r.rank > 0 {
			want += time.Second
		}
		switch {
		case r.unkept == tokenOne:
			want += r.yieldFor
		case r.reclaim && r.id == o.Writer, r.own == tokenOne && r.delay == 0:
			want = 0
		}
		var h lockHistory
		h.learn(o, r)
		assert.Equal(t, want, h.freeIn(o, r), "%+v", r)
	}
}
