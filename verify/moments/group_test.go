package moments

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/spindle-lock/spindle/group"
	"github.com/spindle-lock/spindle/internal/testkit/moments"
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
// two members, no work begins after Run's ctx has ended, a partition is let go only after a call of LetGo, and in the end the
// other member has all partitions.
func TestMemberAtEachMoment(t *testing.T) {
	ask := func(f func(*members, string) error) func(*moments.World) {
		return func(w *moments.World) {
			m := w.Values.(*members)
			if err := f(m, "2"); err != nil {
				w.Errorf("%v", err)
			}
		}
	}
	moments.AtEachMoment(t, moments.Machine{
		Live: liveMember,
		Events: moments.Common(map[string]func(*moments.World){
			"2 is paused":  ask(func(m *members, p string) error { return m.own.Pause(p) }),
			"2 is resumed": ask(func(m *members, p string) error { return m.own.Resume(p) }),
			"2 is let go":  ask((*members).letGo),
			"the other member is let go of 1": func(w *moments.World) {
				_ = w.Values.(*members).mate.LetGo("1")
			},
			"1 and 3 are let go": func(w *moments.World) {
				m := w.Values.(*members)
				_, _ = m.letGo("1"), m.letGo("3")
			},
		}),
		After: func(w *moments.World) {
			m := w.Values.(*members)
			w.Until("the other member has all partitions", 4*moments.Lease, func() bool { return len(m.mate.Held()) == partitions })
		},
	})
}

func (m *members) letGo(p string) error {
	m.mu.Lock()
	m.let[p]++
	m.mu.Unlock()
	return m.own.LetGo(p)
}

func liveMember(w *moments.World) {
	m := &members{done: make(chan error, 1), works: map[string]int{}, let: map[string]int{}}
	w.Values = m
	idle := func(ctx context.Context, _ group.Partition) error { <-ctx.Done(); return nil }
	m.mate = group.New(nil, "locktable", "g", group.Numbered(partitions), w.Beside("mate"), group.WithWork(idle))
	m.own = group.New(nil, "locktable", "g", group.Numbered(partitions), w.Options(), group.WithWork(func(ctx context.Context, p group.Partition) error {
		return m.work(w, ctx, p.Name())
	}))
	ctx, cancel := context.WithCancel(context.Background())
	mateDone := make(chan error, 1)
	_ = m.mate.Run(ctx, mateDone)
	w.Others.Go(func() {
		<-w.Remains.Ctx.Done()
		cancel()
		<-mateDone
	})
	for i := range partitions {
		p := fmt.Sprint(i)
		has := func(g *group.Group) func() bool { return func() bool { ok, _ := g.Has(p); return ok } }
		defer w.Apart(has(m.own), has(m.mate))()
	}
	stopping := context.AfterFunc(w.Ctx, func() {
		m.mu.Lock()
		m.stopped = true
		m.mu.Unlock()
	})
	defer stopping()
	if err := m.own.Run(w.Ctx, m.done); err != nil {
		w.Errorf("Run: %v", err)
		return
	}
	for start := time.Now(); time.Since(start) < 4*moments.Lease && w.Ctx.Err() == nil; time.Sleep(moments.Lease / 50) {
	}
	w.End()
	ended := time.Now()
	select {
	case <-m.done:
	case <-time.After(6 * moments.Lease):
		w.Errorf("Run does not end")
		<-m.done
	}
	if took := time.Since(ended); took > 3*moments.Lease {
		w.Errorf("Run ended after %v", took)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for p, n := range m.works {
		if n != 0 {
			w.Errorf("work on %s still runs", p)
		}
	}
}

func (m *members) work(w *moments.World, ctx context.Context, p string) error {
	m.mu.Lock()
	m.works[p]++
	if m.works[p] > 1 {
		w.Errorf("work on %s runs twice in one process", p)
	}
	if m.stopped {
		w.Errorf("work on %s begins after Run's ctx has ended", p)
	}
	m.mu.Unlock()
	<-ctx.Done()
	m.mu.Lock()
	defer m.mu.Unlock()
	m.works[p]--
	if errors.Is(context.Cause(ctx), group.ErrLetGo) {
		if m.let[p]--; m.let[p] < 0 {
			w.Errorf("%s was let go without a call of LetGo", p)
		}
	}
	return nil
}
