package group

import (
	"fmt"
	"sync"

	"github.com/spindle-lock/spindle/internal/table"
)

// requested holds what the program asks for with Pause, Resume, LetGo and SetWeight. The loop reads it.
type requested struct {
	mu      sync.Mutex
	changed bool
	weight  int             // 0 means 1
	paused  map[string]bool // by name
	let     map[string]bool // partitions whose release does not wait for the work
}

// Pause ends this member's work on a partition, and prevents new work on it until Resume is called. The work's context
// is canceled with the cause ErrPaused, and the partition is released once the work has returned. The partition stays
// assigned to this member, so no other member works on it either. However, a pause affects only one member: if a later
// plan assigns the partition to another member, that member works on it.
//
// A pause lasts until Resume is called, even if Run ends and is called again. The function Members, the spindle command
// and the metrics count paused partitions separately from partitions without a member.
//
// Pause returns immediately. It returns an error if the partition is not in this member's list.
func (g *Group) Pause(partition string) error {
	return g.request("pause", partition, func(r *requested) { r.paused[partition] = true })
}

// Resume ends a Pause. If the partition is assigned to this member, the member claims it under a new token.
func (g *Group) Resume(partition string) error {
	return g.request("resume", partition, func(r *requested) { delete(r.paused, partition) })
}

// LetGo releases a partition without waiting for its work to return. Use it if the work hangs and all its writes are
// fenced. The work's context is canceled with the cause ErrLetGo, unless it is already canceled.
//
// If the partition has to move, its next owner can claim it immediately. Anything that the old work does without a
// fence may then overlap with the new work. If the partition stays assigned to this member, no new work on it begins
// until the old work has returned.
//
// LetGo returns immediately. It does nothing if this member does not own the partition. It returns an error if the
// partition is not in this member's list.
func (g *Group) LetGo(partition string) error {
	return g.request("let go", partition, func(r *requested) { r.let[partition] = true })
}

// SetWeight changes this member's weight to n. WithWeight sets the initial weight. The member writes the new weight
// into its row, and the other members see it when they next read that row. Then only as many partitions move as the new
// shares require. For example, a program can measure its machine's capacity, and use the capacity as the weight. Round
// the weight, because each change can move partitions.
//
// The weight stays set if Run ends and is called again. SetWeight returns immediately. It returns an error if n is not
// in the range from 1 to 1000.
func (g *Group) SetWeight(n int) error {
	switch {
	case g.err != nil:
		return g.err
	case n < 1 || n > table.MaxWeight:
		return g.wrap("set weight", fmt.Errorf("weight %d: want 1 to %d", n, table.MaxWeight))
	}
	g.change(func(r *requested) { r.weight = n })
	return nil
}

func (g *Group) request(step, partition string, change func(*requested)) error {
	if g.err != nil {
		return g.err
	}
	if g.byName[partition] == nil {
		return g.wrap(step, fmt.Errorf("partition %.64q is not in the list that was passed to New", partition))
	}
	g.change(change)
	return nil
}

func (g *Group) change(change func(*requested)) {
	r := &g.requested
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.paused == nil {
		r.paused, r.let = map[string]bool{}, map[string]bool{}
	}
	change(r)
	if !r.changed {
		r.changed = true
		g.inbox.Put(outcome{})
	}
}

// takeRequests applies the requests that the program has made since the last call, and reports whether there were any.
func (m *member) takeRequests() bool {
	r := &m.g.requested
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.changed {
		return false
	}
	paused, resumed := m.inventory.Pause(r.paused)
	if len(paused) > 0 {
		m.voice.log.Info("partitions are paused by the program; until it resumes them, no member works on those that are assigned to this member", "partitions", len(paused), "first", paused[0].Name)
	}
	if len(resumed) > 0 {
		m.voice.log.Info("partitions were resumed by the program", "partitions", len(resumed), "first", resumed[0].Name)
	}
	for _, e := range m.inventory.All {
		if r.let[e.Name] && e.Assigned != nil {
			e.Assigned.Let = true
		}
	}
	m.candidate.LeaseRecord.Weight = r.weight
	r.changed = false
	clear(r.let)
	return true
}

// numberPaused returns the number of partitions that the program has paused. Any goroutine may call it.
func (r *requested) numberPaused() int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return int64(len(r.paused))
}
