package main

import (
	"context"
	"slices"
	"time"
)

// cycle locks and unlocks a mutex that no other process uses.
func (t task) cycle(tell func(report)) error {
	mutexes, err := systemNamed(t.System).mutex(t.Place)
	if err != nil {
		return err
	}
	m, err := mutexes(t.Name)
	if err != nil {
		return err
	}
	const warmUp = 10 // creates the connections and the lock's rows
	var took []time.Duration
	for i := range warmUp + t.Cycles {
		start := time.Now()
		if err := m.Lock(context.Background()); err != nil {
			return err
		}
		if err := m.Unlock(context.Background()); err != nil {
			return err
		}
		if i >= warmUp {
			took = append(took, time.Since(start))
		}
	}
	tell(report{Kind: done, Took: took})
	return nil
}

// turns locks a mutex, holds it, and unlocks it, again and again, together with other processes. It counts the turns.
func (t task) turns(tell func(report), orders <-chan string) error {
	mutexes, err := systemNamed(t.System).mutex(t.Place)
	if err != nil {
		return err
	}
	m, err := mutexes(t.Name)
	if err != nil {
		return err
	}
	tell(report{Kind: ready})
	<-orders
	ctx, cancel := context.WithTimeout(context.Background(), t.Duration)
	defer cancel()
	n := 0
	for ctx.Err() == nil {
		if err := m.Lock(ctx); err != nil {
			if ctx.Err() != nil {
				break
			}
			return err
		}
		n++
		time.Sleep(t.Hold)
		if err := m.Unlock(context.Background()); err != nil {
			return err
		}
	}
	tell(report{Kind: done, N: n})
	return nil
}

// measureCycles returns how long it takes to lock and unlock a mutex without contention.
func (s system) measureCycles(g *ground, cycles int) ([]time.Duration, error) {
	places, err := s.start(g, 1)
	if err != nil {
		return nil, err
	}
	p, err := g.run(task{Kind: "cycle", System: s.name, Place: places[0], Name: "alone", Cycles: cycles})
	if err != nil {
		return nil, err
	}
	r, err := p.await(2 * time.Minute)
	slices.Sort(r.Took)
	return r.Took, err
}

// measureTurns returns how often each process got a mutex that all of them want, in ascending order.
func (s system) measureTurns(g *ground, processes int, during time.Duration) ([]float64, error) {
	places, err := s.start(g, processes)
	if err != nil {
		return nil, err
	}
	var all []*process
	for _, at := range places {
		p, err := g.run(task{Kind: "turns", System: s.name, Place: at, Name: "turns", Hold: turn, Duration: during})
		if err != nil {
			return nil, err
		}
		if _, err := p.await(time.Minute); err != nil {
			return nil, err
		}
		all = append(all, p)
	}
	for _, p := range all {
		if err := p.Send("go"); err != nil {
			return nil, err
		}
	}
	var turns []float64
	for _, p := range all {
		r, err := p.await(during + time.Minute)
		if err != nil {
			return nil, err
		}
		turns = append(turns, float64(r.N))
	}
	slices.Sort(turns)
	return turns, nil
}
