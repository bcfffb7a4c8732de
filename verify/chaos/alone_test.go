//go:build chaos && unix

package chaos

import (
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// soon is the number of leases that a group may take to reach the required state without other faults.
const soon = 60

// alone is a fault that a group suffers without any others, while its members share the partitions evenly. With other
// faults, it would be impossible to tell how far this one spreads from one member or one partition.
type alone struct {
	name   string
	suffer func(*team, *rand.Rand)
}

var (
	canaryAlone  = alone{"canary, alone", (*team).sufferCanary}
	damagesAlone = []alone{
		{"claims of a partition fail, alone", func(t *team, r *rand.Rand) { t.sufferDamage(r, refer) }},
		{"rows of a partition garbled, alone", func(t *team, r *rand.Rand) { t.sufferDamage(r, garble(garbage)) }},
		{"rows of a partition newer, alone", func(t *team, r *rand.Rand) { t.sufferDamage(r, garble(newer)) }},
	}
)

// sufferAlone attacks the group alternately with a canary and with damage.
func (t *team) sufferAlone() {
	a, r := canaryAlone, rand.New(rand.NewPCG(t.turn, 0)) // not the dice of attacks, of which there are now more, now fewer
	if t.turn%2 > 0 {
		a = damagesAlone[r.IntN(len(damagesAlone))]
	}
	t.h.add(record{Kind: kindFault, Lock: t.base.Lock, Note: a.name})
	a.suffer(t, r)
	t.h.add(record{Kind: kindMend, Lock: t.base.Lock, Note: a.name})
}

// sufferCanary starts a member with one additional partition, and rolls it back. In the meantime, no member has more
// than its share plus one, even while the canary is not running.
func (t *team) sufferCanary(r *rand.Rand) {
	m, all, start := t.members[r.IntN(len(t.members))], append(slices.Clone(t.locks), t.extra), now()
	m.update()
	t.must("share with the canary", func() bool { return t.share(all) })
	time.Sleep(t.leases(2)) // they go on to
	m.rollBack()
	t.must("share after the rollback", func() bool { return t.share(t.locks) })
	expired, _ := t.lost(start)
	others := max(len(t.members)-1-len(expired), 1) // what expired on a machine that was too slow is not the canary's fault
	limit := (len(all)+others-1)/others + 1
	for who, most := range t.h.mostAtATime(all, start) {
		if t.member(who) != nil || strings.HasPrefix(who, m.name+".") {
			assert.LessOrEqual(t.tb, most, limit, "%s had too many of %d partitions at a time, as a canary came to %d members and went", who, len(all), len(t.members))
		}
	}
}

// sufferDamage damages a partition and kills its member and a second one, so that the remaining members claim it
// together with other partitions. Until the damage is repaired, no member has the partition, and the members share the
// others, including eventually the two killed members after they return.
func (t *team) sufferDamage(r *rand.Rand, d damage) {
	m, from, lock, start := t.members[r.IntN(len(t.members))], r.IntN(len(t.locks)), "", now()
	t.must("show what it has", func() bool { lock = m.lock(from); return lock != "" })
	others := slices.DeleteFunc(slices.Clone(t.locks), func(l string) bool { return l == lock })
	mend := d(t, lock)
	if !assert.NotNil(t.tb, mend, "member %s of a group that shares evenly has no partition", m.name) {
		return
	}
	m.kill()
	m.next().kill()
	killed := now()
	t.must("have the partitions but one", func() bool { // by what is reported after the kills
		_, all := t.have(others)
		return all && now() > killed+int64(4*reportHeld)
	})
	m.start()
	m.next().start()
	t.must("share the partitions but one", func() bool { return t.share(others) })
	shared := now()
	time.Sleep(t.leases(3)) // a member that can claim nothing goes after two
	mended := now()
	mend()
	t.must("share all again", func() bool { return t.share(t.locks) })
	expired, left := t.lost(start)
	if len(expired) == 0 { // on a machine that was too slow, another member may have had it before the damage was done
		for _, term := range t.h.between(lock, killed+int64(reportHeld), mended) {
			t.tb.Errorf("%s had %s, which could not be claimed", term.who, lock)
		}
	}
	for _, other := range others {
		gap, _ := longestGap(t.h.between(other, shared, mended))
		assert.True(t.tb, gap < t.leases(2) || len(expired) > 0, "%s: nobody had it for %v, as %s could not be claimed", other, gap, lock)
	}
	assert.True(t.tb, len(left) == 0 || len(expired) > 0, "members gave their terms up, as %s could not be claimed: %v", lock, left)
}

// lost returns the terms of running members that ended after that time: those that ended because the machine was too
// slow, and the others.
func (t *team) lost(after int64) (expired, others []record) {
	for _, r := range t.h.lostAfter(after) {
		switch {
		case t.member(r.Who) == nil:
		case r.Expired || t.aborted(r):
			expired = append(expired, r)
		default:
			others = append(others, r)
		}
	}
	return expired, others
}

// aborted reports whether the emulator aborted a claim of that member in the last two leases of the term. It aborts
// whatever comes while another transaction runs. On a slow machine, that can be every claim of two leases, and then the
// member is right to give up its term.
func (t *team) aborted(r record) bool {
	log, err := os.ReadFile(filepath.Join(t.h.dir, r.Who+".log"))
	require.NoError(t.tb, err)
	for line := range strings.Lines(string(log)) {
		stamp, rest, _ := strings.Cut(strings.TrimPrefix(line, "time="), " ")
		at, err := time.Parse(time.RFC3339Nano, stamp)
		if err == nil && strings.Contains(rest, "transaction aborted") && at.UnixNano() <= r.At && time.Duration(r.At-at.UnixNano()) < t.leases(2) {
			return true
		}
	}
	return false
}

// must waits until the group is in the required state.
func (t *team) must(what string, cond func() bool) {
	assert.True(t.tb, t.h.await(t.leases(soon), cond), "group %s does not %s within %d leases", t.base.Lock, what, soon)
}
