package main

import (
	"sync/atomic"
	"time"
)

// atRest has the numbers of requests per lease while nothing happens, on average. A number that was not measured is
// missing.
type atRest struct{ holder, waiter []float64 }

// measureRest counts the requests of a holder and of two other candidates. In a group, all three are members that hold
// their share.
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
	if err := c.await("all parts of the lock were held", c.settled); err != nil {
		return atRest{}, err
	}
	if err := c.rest(2 * lease); err != nil {
		return atRest{}, err
	}
	var before [crewSize]int64
	for i := range sent {
		before[i] = sent[i].Load()
	}
	if err := c.rest(time.Duration(leases) * lease); err != nil {
		return atRest{}, err
	}
	var holders, waiters int
	var ofHolders, ofWaiters float64
	for i := range sent {
		n := float64(sent[i].Load()-before[i]) / float64(leases)
		if len(c.ownedBy(i)) > 0 {
			holders, ofHolders = holders+1, ofHolders+n
		} else {
			waiters, ofWaiters = waiters+1, ofWaiters+n
		}
	}
	result := atRest{holder: []float64{ofHolders / float64(holders)}}
	if waiters > 0 {
		result.waiter = []float64{ofWaiters / float64(waiters)}
	}
	return result, nil
}
