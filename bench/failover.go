package main

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"sync"
)

// measureFailovers starts several crews, each with a lock of its own. In each round, each crew's holder gets a signal
// that ends it. The function returns the times without a holder, measured in leases, in ascending order.
func (s system) measureFailovers(g *ground, crews, rounds int, signal os.Signal) ([]float64, error) {
	places, err := s.places(g, crewSize)
	if err != nil {
		return nil, err
	}
	var all []*crew
	for i := range crews {
		c, err := newCrew(g, s, fmt.Sprint("lock-", i), places)
		if err != nil {
			return nil, err
		}
		all = append(all, c)
	}
	gaps, failures := make([][]float64, crews), make([]error, crews)
	var running sync.WaitGroup
	for i, c := range all {
		running.Go(func() { gaps[i], failures[i] = c.failovers(rounds, signal) })
	}
	running.Wait()
	took := slices.Concat(gaps...)
	slices.Sort(took)
	return took, errors.Join(failures...)
}

func (c *crew) failovers(rounds int, signal os.Signal) ([]float64, error) {
	var took []float64
	for len(took) < rounds {
		if err := c.await("all parts of the lock to be held", c.settled); err != nil {
			return took, err
		}
		// Candidates need time to discover each other, and the signal must come at a random time between two
		// heartbeats.
		if err := c.rest(lease/2 + rand.N(lease/3)); err != nil {
			return took, err
		}
		victim := c.holder()
		if victim < 0 {
			continue // it was lost meanwhile
		}
		gap, err := c.end(victim, signal)
		if err != nil {
			return took, err
		}
		took = append(took, gap.Seconds()/lease.Seconds())
		if err := c.fill(victim); err != nil {
			return took, err
		}
	}
	return took, nil
}
