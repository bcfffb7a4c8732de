package agent

import (
	"container/list"
	"slices"
	"sync"
)

// turns limits how many things the agent does at a time. Half of them at most are one program's. The others wait in a
// queue of their program, and the programs are served in turn, so that a program waits only for itself, however many
// requests another one sends. Programs that the system can't tell apart, whose key is "", count as one and may do all.
type turns struct {
	all int

	mu    sync.Mutex
	busy  int
	queue map[string]*queue // by the program's key
	order []*queue          // the first one is served next; some may be empty
}

// queue is what waits for the turn of one program.
type queue struct {
	key     string
	busy    int
	waits   list.List // of *place
	ordered bool      // it is in order
}

// place is the right to do one thing, or the wait for it.
type place struct {
	of    *turns
	queue *queue
	at    *list.Element
	turn  chan struct{} // closed once the turn has come
}

// most is how much of something one program may have.
func most(all int, key string) int {
	if key == "" {
		return all
	}
	return (all + 1) / 2
}

// take puts a new place at the end of a program's queue. The caller must leave it.
func (t *turns) take(key string) *place {
	t.mu.Lock()
	defer t.mu.Unlock()
	q := t.queue[key]
	if q == nil {
		if t.queue == nil {
			t.queue = map[string]*queue{}
		}
		q = &queue{key: key}
		t.queue[key] = q
	}
	p := &place{of: t, queue: q, turn: make(chan struct{})}
	p.at = q.waits.PushBack(p)
	if !q.ordered {
		q.ordered, t.order = true, append(t.order, q)
	}
	t.serve()
	return p
}

// leave gives the place up, or stops waiting for it.
func (p *place) leave() {
	t, q := p.of, p.queue
	t.mu.Lock()
	defer t.mu.Unlock()
	select {
	case <-p.turn:
		q.busy--
		t.busy--
		t.serve()
	default:
		q.waits.Remove(p.at)
	}
	if q.busy == 0 && q.waits.Len() == 0 {
		delete(t.queue, q.key)
	}
}

// serve takes one place of each program in turn, as long as there is room. t.mu is held.
func (t *turns) serve() {
	for i := 0; i < len(t.order) && t.busy < t.all; {
		q := t.order[i]
		first := q.waits.Front()
		if first != nil && q.busy >= most(t.all, q.key) {
			i++
			continue
		}
		t.order = slices.Delete(t.order, i, i+1)
		if q.ordered = first != nil; q.ordered {
			close(q.waits.Remove(first).(*place).turn)
			q.busy++
			t.busy++
			t.order = append(t.order, q)
		}
	}
}
