//go:build chaos && unix

package chaos

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync"
	"testing"
	"time"

	"cloud.google.com/go/spanner"
	"github.com/stretchr/testify/assert"

	"github.com/spindle-lock/spindle"
	"github.com/spindle-lock/spindle/group"
	"github.com/spindle-lock/spindle/internal/options"
)

const (
	groupSize  = 4
	partitions = 8

	// groupLease is longer than the lease for locks. Twelve members and their work write all the time, each in its own
	// process. If two cores can't keep up, members lose their terms because of the load, not because of the faults.
	groupLease = time.Second
)

// Each partition of a group is a lock in the history, with its own register, which the member that has the partition
// increments.
func TestGroupChaos(t *testing.T) {
	chaos(t, groupSize, candidate{Lease: groupLease, Partitions: partitions}, func(team *team, mended int64) {
		team.recovers()
		for _, lock := range team.locks {
			ok := team.h.await(settle, func() bool { return team.h.accepted(lock, mended) > 0 })
			assert.True(t, ok, "partition %s: no write was accepted in %v after the last fault", lock, settle)
		}
		team.sufferAlone()
	})
}

// recovers waits until the members share the partitions evenly, and the table shows the same.
func (t *team) recovers() {
	assert.Eventually(t.tb, func() bool { return t.h.await(0, t.evenly) && t.seen() }, 2*settle, groupLease/4,
		"group %s: its partitions are not held evenly %v after the last fault", t.base.Lock, 2*settle)
}

// seen reports whether the table shows that every member has its share.
func (t *team) seen() bool {
	view, err := group.Members(t.tb.Context(), t.db, t.base.Table, t.base.Lock)
	even := err == nil && len(view.Members) == len(t.members)
	for _, name := range view.Unassigned {
		even = even && t.base.Lock+"/"+name == t.extra
	}
	for _, m := range view.Members {
		even = even && len(m.Partitions) == len(t.locks)/len(t.members)
	}
	return even
}

// evenly reports whether every member has its share. The history must be locked.
func (t *team) evenly() bool { return t.share(t.locks) }

// share reports whether all of the partitions are held and each member has its share of them, give or take one. The
// history must be locked.
func (t *team) share(locks []string) bool {
	has, all := t.have(locks)
	for _, m := range t.members {
		n, size := has[m.current().who], len(t.members)
		all = all && n >= len(locks)/size && n <= (len(locks)+size-1)/size
	}
	return all
}

// have returns how many of the partitions each process has, and whether all of them are held. The history must be
// locked.
func (t *team) have(locks []string) (has map[string]int, all bool) {
	has, all = map[string]int{}, true
	for _, lock := range locks {
		if term := t.h.holder(lock, now()-int64(4*reportHeld)); term != nil {
			has[term.who]++
		} else {
			all = false
		}
	}
	return has, all
}

func partitionLocks(c candidate) []string {
	locks := make([]string, c.Partitions)
	for i := range locks {
		locks[i] = fmt.Sprintf("%s/%d", c.Lock, i)
	}
	return locks
}

// groupMember is the code in a process of a group.
type groupMember struct {
	*worker
	group *group.Group
	works sync.Map // partition to token: where work has not returned
}

func (w *worker) runMember(opts []spindle.GroupOption) error {
	m := &groupMember{worker: w}
	m.group = group.New(w.db, w.Table, w.Lock, group.Numbered(w.Partitions), options.Join(opts...), group.WithWork(m.work))
	done := make(chan error, 1)
	if err := m.group.Run(w.ctx, done); err != nil {
		return err
	}
	var all []*interval
	for i, lock := range partitionLocks(w.candidate) {
		seen := &partitionSeen{groupMember: m, name: strconv.Itoa(i)}
		all = append(all, &interval{lock: lock, has: seen.acts})
	}
	w.watch(done, all...)
	return nil
}

// work writes like lead, and is sometimes slow to return.
func (m *groupMember) work(ctx context.Context, p group.Partition) error {
	m.works.Store(p.Name(), p.Token())
	defer m.works.Delete(p.Name())
	f := m.partition(p)
	for ctx.Err() == nil {
		m.write(f)
		pause(ctx, 100*time.Millisecond+rand.N(200*time.Millisecond))
	}
	if rand.N(4) == 0 {
		time.Sleep(rand.N(m.Lease / 4))
		m.write(f)
	}
	m.writeLate(ctx, f)
	return nil
}

func (m *groupMember) partition(p group.Partition) fenced {
	i, err := strconv.ParseInt(p.Name(), 10, 64)
	if err != nil {
		panic(err)
	}
	return fenced{partitionLocks(m.candidate)[i], i, p.Token(),
		func(ctx context.Context, ms []*spanner.Mutation) (time.Time, error) { return p.Apply(ctx, ms) },
		p.ReadWriteTransaction}
}

// partitionSeen is the sequence of observations of one partition.
type partitionSeen struct {
	*groupMember
	name          string
	token         spindle.Token
	next, witness *group.Partition
}

// acts reports whether no other member may act on the partition: as long as the member has it, and then until its work
// has returned. During that time, the member must still be running. A witness shows that it is: a different partition
// that the member had in the same term, between two looks at which it had this one.
func (s *partitionSeen) acts() (bool, spindle.Token) {
	switch has, token := s.group.Has(s.name); {
	case has && token == s.token:
		s.witness, s.next = s.next, s.another()
	case has:
		s.token, s.witness, s.next = token, nil, s.another()
	case !s.lingers():
		s.token = 0
	}
	return s.token != 0, s.token
}

func (s *partitionSeen) another() *group.Partition {
	for _, p := range s.group.Held() {
		if p.Name() != s.name {
			return &p
		}
	}
	return nil
}

func (s *partitionSeen) lingers() bool {
	working, _ := s.works.Load(s.name)
	if s.witness == nil || working != s.token {
		return false
	}
	has, token := s.group.Has(s.witness.Name())
	return has && token == s.witness.Token()
}
