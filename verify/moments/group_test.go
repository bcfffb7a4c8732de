package moments

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/spindle-lock/spindle"
	"github.com/spindle-lock/spindle/group"
	"github.com/spindle-lock/spindle/internal/table"
	"github.com/spindle-lock/spindle/internal/testkit/moments"
)

const partitions = 4

// members are the machine and another member of its group.
type members struct {
	own, mate *group.Group
	done      chan error

	mu      sync.Mutex
	parts   [partitions]part
	stopped bool // the machine's ctx has ended
}

// part is what a test has seen of one partition.
type part struct {
	works  int           // how much work of the machine runs
	let    int           // how often the machine has been asked to let it go
	paused bool          // the machine was asked to pause it
	token  spindle.Token // under which the machine had it last
	idle   time.Time     // since when nobody has it, after the machine had it
	moves  bool          // the machine had it last
	over   time.Time     // since when the machine neither has it nor works on it
}

// A member joins, shares partitions with another member, and leaves. Whatever happens at whatever moment: no partition has
// two members, the member acts no longer than a lease after it sent the last word or the last look that was answered, no work
// begins after Run's ctx has ended, a partition is let go only after a call of LetGo, it is released as soon as its own work
// has returned, and has another owner soon although a request was refused, Run ends with an error only if something was not
// answered in time, events and metrics agree, and in the end the other member has all partitions.
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
			"2 is paused":  ask((*members).pause),
			"2 is resumed": ask(func(m *members, p string) error { return m.own.Resume(p) }),
			"2 is let go":  ask((*members).letGo),
			"the other member is let go of 1": func(w *moments.World) {
				_ = w.Values.(*members).mate.LetGo("1")
			},
			"all are paused": func(w *moments.World) {
				for p := range partitions {
					_ = w.Values.(*members).pause(fmt.Sprint(p))
				}
			},
			"its slot is taken": func(w *moments.World) {
				for i := range 3 {
					w.Break(table.SlotName("g", i), func(o table.Observation) bool { return o.Holder() == "machine" })
				}
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
	m.of(p).let++
	m.mu.Unlock()
	return m.own.LetGo(p)
}

func (m *members) pause(p string) error {
	m.mu.Lock()
	m.of(p).paused = true
	m.mu.Unlock()
	return m.own.Pause(p)
}

func (m *members) of(p string) *part { return &m.parts[p[0]-'0'] }

// lingers reports whether the work on a partition takes a while to return. Other work returns at once, before it has to.
func lingers(p string) bool { return (p[0]-'0')%2 == 0 }

func liveMember(w *moments.World) {
	m := &members{done: make(chan error, 1)}
	w.Values = m
	idle := func(ctx context.Context, _ group.Partition) error { <-ctx.Done(); return nil }
	m.mate = group.New(nil, "locktable", "g", group.Numbered(partitions), w.Beside("mate"), group.WithWork(idle))
	m.own = group.New(nil, "locktable", "g", group.Numbered(partitions), w.Options(), group.WithEarlyReturn(group.KeepIdle), spindle.WithObserver(func(ev spindle.Event) {
		if ev.Kind == spindle.Elected {
			w.Terms.Add(1)
		}
	}), group.WithWork(func(ctx context.Context, p group.Partition) error { return m.work(w, ctx, p.Name()) }))
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
	defer w.Every(moments.Lease/100, func() error { return m.look(w) })()
	has := func() bool { return len(m.own.Held()) > 0 }
	defer w.Renewed(has, []string{"look"}, []string{"confirm", "heartbeat"})()
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
	for _, weight := range []int{1, 3, 1} { // partitions move to the other member, and back
		_ = m.mate.SetWeight(weight)
		for start := time.Now(); time.Since(start) < 4*moments.Lease/3 && w.Ctx.Err() == nil; time.Sleep(moments.Lease / 50) {
		}
	}
	w.End()
	ended := time.Now()
	var err error
	select {
	case err = <-m.done:
	case <-time.After(6 * moments.Lease):
		w.Errorf("Run does not end")
		<-m.done
	}
	if err != nil && w.Faultless() {
		w.Errorf("Run: %v", err)
	}
	if took := time.Since(ended); took > 3*moments.Lease {
		w.Errorf("Run ended after %v", took)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for p, part := range m.parts {
		if part.works != 0 {
			w.Errorf("work on %d still runs", p)
		}
	}
}

// moves reports whether each partition that the machine gives up moves to the other member, which waits for it. A single
// request that is refused makes no difference.
func moves(w *moments.World) bool {
	for _, event := range []string{"its slot is taken", "2 is let go", "1 and 3 are let go"} {
		if w.Happens(event) {
			return false
		}
	}
	return w.Faultless() || w.Only() && w.Happens("the request is refused")
}

// look checks that partitions move on.
func (m *members) look(w *moments.World) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	for p := range partitions {
		if err := m.lookAt(w, fmt.Sprint(p)); err != nil {
			return err
		}
	}
	return nil
}

func (m *members) lookAt(w *moments.World, p string) error {
	part := m.of(p)
	own, token := m.own.Has(p)
	others, _ := m.mate.Has(p)
	isReleased := func() bool {
		row := w.Store.Rows()[table.PartitionName("g", p)]
		return table.TokenAt(row.Token) != table.Token(part.token) || row.Heartbeat.IsZero()
	}
	switch {
	case own:
		part.token, part.over = token, time.Time{}
	case part.token == 0 || others || part.works > 0 || m.stopped || isReleased():
		part.over = time.Time{}
	case part.over.IsZero():
		part.over = time.Now()
	}
	switch {
	case own, part.works > 0 && !others, part.paused, m.stopped:
		part.idle, part.moves = time.Time{}, own || part.works > 0
	case others:
		part.idle, part.moves = time.Time{}, false
	case !part.moves:
	case part.idle.IsZero():
		part.idle = time.Now()
	}
	if took := time.Since(part.over); !part.over.IsZero() && took > moments.Lease/20 && w.Faultless() && !w.Happens("its slot is taken") {
		return fmt.Errorf("%s is not released %v after its work has returned", p, took)
	}
	if took := time.Since(part.idle); !part.idle.IsZero() && took > moments.Lease/10 && moves(w) {
		return fmt.Errorf("nobody has %s for %v", p, took)
	}
	return nil
}

func (m *members) work(w *moments.World, ctx context.Context, p string) error {
	m.mu.Lock()
	m.of(p).works++
	if m.of(p).works > 1 {
		w.Errorf("work on %s runs twice in one process", p)
	}
	if m.stopped {
		w.Errorf("work on %s begins after Run's ctx has ended", p)
	}
	m.mu.Unlock()
	if lingers(p) {
		<-ctx.Done()
		time.Sleep(moments.Lease / 8)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.of(p).works--
	if errors.Is(context.Cause(ctx), group.ErrLetGo) {
		if m.of(p).let--; m.of(p).let < 0 {
			w.Errorf("%s was let go without a call of LetGo", p)
		}
	}
	return nil
}
