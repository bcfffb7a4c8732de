package main

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"sync"
	"time"
)

// measureFailovers lets crews compete for a lock each. In each round, it ends a holder with a signal. It returns how
// long the lock was without a holder, in leases and in ascending order.
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
	var mu sync.Mutex
	var took []float64
	var failures []error
	var running sync.WaitGroup
	for _, c := range all {
		running.Go(func() {
			gaps, err := c.failovers(rounds, signal)
			mu.Lock()
			defer mu.Unlock()
			took, failures = append(took, gaps...), append(failures, err)
		})
	}
	running.Wait()
	slices.Sort(took)
	return took, errors.Join(failures...)
}

func (c *crew) failovers(rounds int, signal os.Signal) ([]float64, error) {
	var took []float64
	for range rounds {
		if err := c.await("all parts of the lock were held", c.settled); err != nil {
			return took, err
		}
		// Candidates get to know each other, and the signal comes at any time between two heartbeats.
		if err := c.rest(lease/2 + rand.N(lease/3)); err != nil {
			return took, err
		}
		victim := c.holder()
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

// rest waits for d.
func (c *crew) rest(d time.Duration) error {
	over := time.After(d)
	for {
		select {
		case e := <-c.events:
			if err := c.note(e); err != nil {
				return err
			}
		case <-over:
			return nil
		}
	}
}
