package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"
)

const warmUp = 10 // turns that are not measured, because they create the connections and the lock's rows

// A stint records one turn: when the process asked for the lock, acquired it, began to unlock it, and finished
// unlocking it. Each time is in nanoseconds since 1970.
type stint struct{ Asked, Held, Left, Done int64 }

// turns repeatedly locks a mutex, holds it, and unlocks it. At the end, it reports all turns at once.
func (t task) turns(tell func(report), orders <-chan string) error {
	m, err := systemNamed(t.System).mutex(t.Place, t.Name)
	if err != nil {
		return err
	}
	tell(report{Kind: ready})
	<-orders
	ctx, cancel := context.WithTimeout(context.Background(), t.Duration)
	defer cancel()
	var took []stint
	for t.Turns == 0 || len(took) < t.Turns {
		s := stint{Asked: time.Now().UnixNano()}
		if err := m.Lock(ctx); err != nil {
			if ctx.Err() != nil {
				break
			}
			return err
		}
		s.Held = time.Now().UnixNano()
		time.Sleep(t.Hold)
		s.Left = time.Now().UnixNano()
		if err := m.Unlock(context.Background()); err != nil {
			return err
		}
		s.Done = time.Now().UnixNano()
		took = append(took, s)
	}
	tell(report{Kind: done, Took: took})
	return nil
}

// take lets processes take turns, and returns each process's turns. It calls begun just before the turns begin.
func (s system) take(g *ground, processes int, t task, begun func()) (all [][]stint, err error) {
	places, err := s.places(g, processes)
	if err != nil {
		return nil, err
	}
	running := make([]*process, processes)
	t.Kind, t.System, t.Name = "turns", s.name, "turns"
	for i := range running {
		t.Place = places[i]
		if running[i], err = g.run(t); err != nil {
			return nil, err
		}
		if _, err := running[i].await(time.Minute); err != nil {
			return nil, err
		}
	}
	begun()
	for _, p := range running {
		if err := p.Send("go"); err != nil {
			return nil, err
		}
	}
	for _, p := range running {
		r, err := p.await(t.Duration + time.Minute)
		if err != nil {
			return nil, err
		}
		all = append(all, r.Took)
	}
	return all, nil
}

// measureCycles returns how long it takes to lock and unlock a mutex without contention.
func (s system) measureCycles(g *ground, cycles int) ([]time.Duration, error) {
	all, err := s.take(g, 1, task{Turns: warmUp + cycles, Duration: 2 * time.Minute}, func() {})
	if err != nil {
		return nil, err
	}
	return lengths(all[0])
}

// lengths returns how long each measured turn took. It fails if the system was too slow for any turn to be measured.
func lengths(turns []stint) (took []time.Duration, err error) {
	if len(turns) <= warmUp {
		return nil, fmt.Errorf("there were only %d turns, and the first %d are not measured", len(turns), warmUp)
	}
	for _, turn := range turns[warmUp:] {
		took = append(took, time.Duration(turn.Done-turn.Asked))
	}
	slices.Sort(took)
	return took, nil
}

// A contest contains the measurements of processes that took turns.
type contest struct {
	turns    []float64       // of each process
	idle     []time.Duration // from the end of each turn's work until the lock is next held
	requests []float64       // per turn
}

// measureTurns lets processes compete for one mutex, and hold it for the given time in each turn.
func (s system) measureTurns(g *ground, processes int, hold, during time.Duration) (c contest, err error) {
	var sent atomic.Int64
	g.via = func(_ int, addr string) (string, error) { return g.proxy(addr, &sent) }
	all, err := s.take(g, processes, task{Hold: hold, Duration: during}, func() { sent.Store(0) })
	if err != nil {
		return c, err
	}
	for _, took := range all {
		c.turns = append(c.turns, float64(len(took)))
	}
	slices.Sort(c.turns)
	order := slices.Concat(all...)
	if len(order) == 0 {
		return c, fmt.Errorf("no process had a turn within %v", during)
	}
	slices.SortFunc(order, func(a, b stint) int { return cmp.Compare(a.Held, b.Held) })
	for i := range len(order) - 1 {
		c.idle = append(c.idle, time.Duration(order[i+1].Held-order[i].Left))
	}
	slices.Sort(c.idle)
	if len(c.idle) > 0 && c.idle[0] <= 0 {
		return c, errors.New("two processes held the lock at the same time")
	}
	c.requests = []float64{float64(sent.Load()) / float64(len(order))}
	return c, nil
}
