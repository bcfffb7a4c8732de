package group

import (
	"fmt"
	"sync"
)

// requested is what the program asks for its member's partitions. Any goroutine writes it; the loop reads it.
type requested struct {
	mu      sync.Mutex
	changed bool
	paused  map[string]bool // by name
	let     map[string]bool // whose work the release does not wait for
}

// Pause ends this member's work on a partition, and keeps it from beginning again until Resume: the context of the work
// ends with ErrPaused, and once the work has returned, the partition is released. It stays assigned to this member, so
// nobody works on it, unless the plan moves it to another member: there it is not paused. Pause returns at once. It
// fails if the partition is not in this member's list.
func (g *Group) Pause(partition string) error {
	return g.request("pause", partition, func(r *requested) { r.paused[partition] = true })
}

// Resume ends a Pause. If the partition is assigned to this member, the member claims it, under a new token.
func (g *Group) Resume(partition string) error {
	return g.request("resume", partition, func(r *requested) { delete(r.paused, partition) })
}

// LetGo releases a partition without waiting for its work to return, for work that hangs and whose writes are fenced.
// The work's context ends, with ErrLetGo unless it had already ended. If the partition is to move, its next member has
// it at once: unfenced effects of the old work may overlap the next member's. If it stays assigned to this member,
// nobody works on it before the work has returned. LetGo returns at once. It fails if the partition is not in this
// member's list, and does nothing if this member does not have it.
func (g *Group) LetGo(partition string) error {
	return g.request("let go", partition, func(r *requested) { r.let[partition] = true })
}

func (g *Group) request(step, partition string, change func(*requested)) error {
	if g.err != nil {
		return g.err
	}
	if g.byName[partition] == nil {
		return g.wrap(step, fmt.Errorf("partition %.64q is not in the list: give it a name that New was given", partition))
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

// takeRequests takes in what the program has asked for since the last call, and reports whether there was anything.
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

// handleRequests does what the program has asked for.
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
