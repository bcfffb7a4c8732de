package group

import (
	"fmt"
	"sync"
)

// requested holds the program's requests about partitions. Any goroutine can write it, and the loop reads it.
type requested struct {
	mu      sync.Mutex
	changed bool
	paused  map[string]bool // by name
	let     map[string]bool // partitions whose release does not wait for the work
}

// Pause ends this member's work on a partition, and keeps it from beginning again until Resume is called. The context
// of the work ends with ErrPaused. Once the work has returned, the partition is released. It stays assigned to this
// member, so no member works on it. If the plan moves the partition to another member, it is not paused there. Pause
// returns immediately. It returns an error if the partition is not in this member's list.
func (g *Group) Pause(partition string) error {
	return g.request("pause", partition, func(r *requested) { r.paused[partition] = true })
}

// Resume ends a Pause. If the partition is assigned to this member, the member claims it under a new token.
func (g *Group) Resume(partition string) error {
	return g.request("resume", partition, func(r *requested) { delete(r.paused, partition) })
}

// LetGo releases a partition without waiting for its work to return. It is for work that hangs and whose writes are
// fenced. The context of the work ends with ErrLetGo, unless it had already ended. If the partition must move, its next
// member gets it immediately, so unfenced effects of the old work may overlap with the new work. If it stays assigned
// to this member, no member works on it until the work has returned. LetGo returns immediately. It returns an error if
// the partition is not in this member's list, and does nothing if this member does not have the partition.
func (g *Group) LetGo(partition string) error {
	return g.request("let go", partition, func(r *requested) { r.let[partition] = true })
}

func (g *Group) request(step, partition string, change func(*requested)) error {
	if g.err != nil {
		return g.err
	}
	if g.byName[partition] == nil {
		return g.wrap(step, fmt.Errorf("partition %.64q is not in the list that was passed to New", partition))
	}
	r := &g.requested
	r.mu.Lock()
	if r.paused == nil {
		r.paused, r.let = map[string]bool{}, map[string]bool{}
	}
	change(r)
	r.changed = true
	r.mu.Unlock()
	signal(g.wake)
	return nil
}

// takeRequests applies the requests that the program has made since the last call, and reports whether there were any.
func (m *member) takeRequests() bool {
	r := &m.requested
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.changed {
		return false
	}
	for _, e := range m.inventory.all {
		e.paused = r.paused[e.name]
		if r.let[e.name] && e.assigned != nil {
			e.assigned.let = true
		}
	}
	r.changed = false
	clear(r.let)
	return true
}

// handleRequests carries out the program's requests.
func (t *term) handleRequests() {
	if !t.m.takeRequests() {
		return
	}
	for _, e := range t.m.inventory.all {
		switch {
		case e.state == held && e.paused:
			t.revoke(e, ErrPaused)
		case e.state == held && e.assigned.let:
			t.revoke(e, ErrLetGo)
		}
		if e.state == revoking && e.assigned.let {
			t.releases.sooner(t.m.config.Clock, 0)
		}
	}
	t.soon(0)
}
