package main

import (
	"sync/atomic"
	"time"
)

// atRest contains the average numbers of requests that a holder and a waiter send per lease while the lock stays held.
// Each slice contains one number, or none if there was no such process or nothing was measured.
type atRest struct{ holder, waiter []float64 }

// measureRest counts the requests of a holder and of two other candidates. In a group, all three processes are holders,
// because each member holds its share of the partitions.
func (s system) measureRest(g *ground, leases int) (atRest, error) {
	var sent [crewSize]atomic.Int64
	g.via = func(i int, addr string) (string, error) { return g.proxy(addr, &sent[i]) }
	places, err := s.places(g, crewSize)
	if err != nil {
		return atRest{}, err
	}
	c, err := newCrew(g, s, "lock", places)
	if err != nil {
		return atRest{}, err
	}
	if err := c.await("all parts of the lock to be held", c.settled); err != nil {
		return atRest{}, err
	}
	if err := c.rest(2 * lease); err != nil {
		return atRest{}, err
	}
	for i := range sent {
		sent[i].Store(0)
	}
	if err := c.rest(time.Duration(leases) * lease); err != nil {
		return atRest{}, err
	}
	var holders, waiters []float64
	for i := range sent {
		n := float64(sent[i].Load()) / float64(leases)
		if len(c.ownedBy(i)) > 0 {
			holders = append(holders, n)
		} else {
			waiters = append(waiters, n)
		}
	}
	return atRest{holder: mean(holders), waiter: mean(waiters)}, nil
}

func mean(all []float64) []float64 {
	if all == nil {
		return nil
	}
	sum := 0.0
	for _, n := range all {
		sum += n
	}
	return []float64{sum / float64(len(all))}
}
