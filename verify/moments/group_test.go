package moments

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/spindle-lock/spindle/group"
)

const partitions = 4

// members are the machine and another member of its group.
type members struct {
	own, mate *group.Group
	done      chan error

	mu      sync.Mutex
	works   map[string]int // by partition, how much work of the machine runs
	let     map[string]int // by partition, how often the machine has been asked to let it go
	stopped bool           // the machine's ctx has ended
}

// A member joins, shares partitions with another member, and leaves. Whatever happens at whatever moment: no partition has
// two members, no work begins after the member was told to stop, a partition is let go only if that was asked for, and in the end the
// other member has all partitions.
func TestMemberAtEachMoment(t *testing.T) {
	ask := func(f func(*members, string) error) func(*world) {
		return func(w *world) {
			m := w.values.(*members)
			if err := f(m, "2"); err != nil {
				w.errorf("%v", err)
			}
		}
	}
	atEachMoment(t, machine{
		live: liveMember,
		events: common(map[string]func(*world){
			"2 is paused":  ask(func(m *members, p string) error { return m.own.Pause(p) }),
			"2 is resumed": ask(func(m *members, p string) error { return m.own.Resume(p) }),
			"2 is let go":  ask((*members).letGo),
			"the other member is let go of 1": func(w *world) {
				_ = w.values.(*members).mate.LetGo("1")
			},
			"1 and 3 are let go": func(w *world) {
				m := w.values.(*members)
				_, _ = m.letGo("1"), m.letGo("3")
			},
		}),
		after: func(w *world) {
			m := w.values.(*members)
			w.until("the other member has all partitions", 4*lease, func() bool { return len(m.mate.Held()) == partitions })
		},
	})
}

func (m *members) letGo(p string) error {
	m.mu.Lock()
	m.let[p]++
	m.mu.Unlock()
	return m.own.LetGo(p)
}

func liveMember(w *world) {
	m := &members{done: make(chan error, 1), works: map[string]int{}, let: map[string]int{}}
	w.values = m
	idle := func(ctx context.Context, _ group.Partition) error { <-ctx.Done(); return nil }
	m.mate = group.New(nil, "locktable", "g", group.Numbered(partitions), w.beside("mate", group.WithWork(idle))...)
	m.own = group.New(nil, "locktable", "g", group.Numbered(partitions), w.options(group.WithWork(func(ctx context.Context, p group.Partition) error {
		return m.work(w, ctx, p.Name())
	}))...)
	ctx, cancel := context.WithCancel(context.Background())
	mateDone := make(chan error, 1)
	_ = m.mate.Run(ctx, mateDone)
	w.others.Go(func() {
		<-w.remains.Ctx.Done()
		cancel()
		<-mateDone
	})
	for i := range partitions {
		p := fmt.Sprint(i)
		has := func(g *group.Group) func() bool { return func() bool { ok, _ := g.Has(p); return ok } }
		defer w.apart(has(m.own), has(m.mate))()
	}
	stopping := context.AfterFunc(w.ctx, func() {
		m.mu.Lock()
		m.stopped = true
		m.mu.Unlock()
	})
	defer stopping()
	if err := m.own.Run(w.ctx, m.done); err != nil {
		w.errorf("Run: %v", err)
		return
	}
	for start := time.Now(); time.Since(start) < 4*lease && w.ctx.Err() == nil; time.Sleep(lease / 50) {
	}
	w.end()
	ended := time.Now()
	select {
	case <-m.done:
	case <-time.After(6 * lease):
		w.errorf("Run does not end")
		<-m.done
	}
	if took := time.Since(ended); took > 3*lease {
		w.errorf("Run ended after %v", took)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for p, n := range m.works {
		if n != 0 {
			w.errorf("work on %s still runs", p)
		}
	}
}

func (m *members) work(w *world, ctx context.Context, p string) error {
	m.mu.Lock()
	m.works[p]++
	if m.works[p] > 1 {
		w.errorf("work on %s runs twice in one process", p)
	}
	if m.stopped {
		w.errorf("work on %s begins after the member was told to stop", p)
	}
	m.mu.Unlock()
	<-ctx.Done()
	m.mu.Lock()
	defer m.mu.Unlock()
	m.works[p]--
	if errors.Is(context.Cause(ctx), group.ErrLetGo) {
		if m.let[p]--; m.let[p] < 0 {
			w.errorf("%s was let go although nobody asked for it", p)
		}
	}
	return nil
}
