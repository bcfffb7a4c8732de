package main

import (
	"context"
	"slices"
	"time"
)

const warmUp = 10 // turns, which create the connections and the lock's rows

// turns locks a mutex, holds it, and unlocks it, again and again. It reports how long each turn took.
func (t task) turns(tell func(report), orders <-chan string) error {
	m, err := systemNamed(t.System).mutex(t.Place, t.Name)
	if err != nil {
		return err
	}
	tell(report{Kind: ready})
	<-orders
	ctx, cancel := context.WithTimeout(context.Background(), t.Duration)
	defer cancel()
	var took []time.Duration
	for t.Turns == 0 || len(took) < t.Turns {
		start := time.Now()
		if err := m.Lock(ctx); err != nil {
			if ctx.Err() != nil {
				break
			}
			return err
		}
		time.Sleep(t.Hold)
		if err := m.Unlock(context.Background()); err != nil {
			return err
		}
		took = append(took, time.Since(start))
	}
	tell(report{Kind: done, Took: took})
	return nil
}

// take lets processes take turns, and returns the turns of each of them.
func (s system) take(g *ground, processes int, t task) (all [][]time.Duration, err error) {
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
	all, err := s.take(g, 1, task{Turns: warmUp + cycles, Duration: 2 * time.Minute})
	if err != nil {
		return nil, err
	}
	took := all[0][warmUp:]
	slices.Sort(took)
	return took, nil
}

// measureTurns returns how often each process got a mutex that all of them want, in ascending order.
func (s system) measureTurns(g *ground, processes int, during time.Duration) (turns []float64, err error) {
	all, err := s.take(g, processes, task{Hold: turn, Duration: during})
	for _, took := range all {
		turns = append(turns, float64(len(took)))
	}
	slices.Sort(turns)
	return turns, err
}
