package main

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"syscall"
	"time"
)

// A crew is three processes that compete for one lock. Each process has a seat. If a process is killed or stopped, a
// new process gets its seat.
type crew struct {
	ground *ground
	sys    system
	name   string // of the lock
	seats  []*seat
	events chan event
	past   []event        // since the current round began
	owner  map[string]int // the seat that holds each part of the lock
}

type seat struct {
	*process
	place place
	ended bool // the process has been told to end
}

// An event is a report of the process in a seat.
type event struct {
	report
	seat  int
	by    *process
	ended bool // the process has ended
}

const crewSize = 3

func newCrew(g *ground, sys system, name string, places []place) (*crew, error) {
	c := &crew{ground: g, sys: sys, name: name, events: make(chan event, 1000), owner: map[string]int{}}
	for i, p := range places[:crewSize] {
		c.seats = append(c.seats, &seat{place: p})
		if err := c.fill(i); err != nil {
			return nil, err
		}
	}
	return c, nil
}

// fill starts a process in a seat.
func (c *crew) fill(i int) error {
	s := c.seats[i]
	p, err := c.ground.run(task{Kind: "compete", System: c.sys.name, Place: s.place, Name: c.name})
	if err != nil {
		return err
	}
	s.process, s.ended = p, false
	go func() {
		for r := range p.reports {
			c.events <- event{report: r, seat: i, by: p}
		}
		c.events <- event{seat: i, by: p, ended: true}
	}()
	return nil
}

// await waits until cond is true.
func (c *crew) await(what string, cond func() bool) error {
	met, err := c.within(time.Minute, cond)
	if err == nil && !met {
		err = fmt.Errorf("%s: after a minute, still waiting for %s", c.name, what)
	}
	return err
}

// rest waits for d.
func (c *crew) rest(d time.Duration) error {
	_, err := c.within(d, func() bool { return false })
	return err
}

// within records events until cond is true, for at most d, and reports whether cond became true.
func (c *crew) within(d time.Duration, cond func() bool) (met bool, err error) {
	for over := time.After(d); !cond(); {
		select {
		case e := <-c.events:
			if err := c.note(e); err != nil {
				return false, err
			}
		case <-over:
			return false, nil
		}
	}
	return true, nil
}

func (c *crew) note(e event) error {
	current := c.seats[e.seat].process == e.by
	switch {
	case e.ended && current && !c.seats[e.seat].ended:
		return errors.Join(fmt.Errorf("%s: a candidate has ended", c.name), e.by.failure)
	case e.Kind == held && current:
		c.owner[e.Part] = e.seat
	case e.Kind == left && c.owner[e.Part] == e.seat:
		delete(c.owner, e.Part)
	}
	c.past = append(c.past, e)
	return nil
}

// settled reports whether all parts are held, in equal shares.
func (c *crew) settled() bool {
	if len(c.owner) < c.sys.parts {
		return false
	}
	if c.sys.parts == 1 {
		return true
	}
	for i := range c.seats {
		if len(c.ownedBy(i)) < c.sys.parts/crewSize {
			return false
		}
	}
	return true
}

func (c *crew) ownedBy(i int) (parts []string) {
	for part, owner := range c.owner {
		if owner == i {
			parts = append(parts, part)
		}
	}
	return parts
}

// holder returns a seat that holds a part of the lock, or -1.
func (c *crew) holder() int {
	for _, i := range c.owner {
		return i
	}
	return -1
}

// end sends a signal that ends the process in a seat. It returns how long the lock then had no holder. For a lock with
// several parts, it returns the longest time that a part had no holder. After SIGKILL, the time begins with the signal.
// Otherwise, it begins when the process has stopped its work.
func (c *crew) end(i int, s os.Signal) (time.Duration, error) {
	parts, victim := c.ownedBy(i), c.seats[i]
	victim.ended = true
	c.past = nil
	for _, part := range parts {
		delete(c.owner, part)
	}
	began := time.Now().UnixNano()
	if err := victim.Signal(s); err != nil {
		return 0, err
	}
	if s == syscall.SIGKILL {
		victim.process = nil // from now on, its reports don't count
	}
	var gaps []time.Duration
	err := c.await("the lock to be held again", func() bool {
		gaps = nil
		for _, part := range parts {
			from, to := began, c.first(held, part, func(e event) bool { return e.seat != i })
			if s != syscall.SIGKILL {
				from = c.first(left, part, func(e event) bool { return e.by == victim.process })
			}
			if from == 0 || to == 0 {
				return false
			}
			gaps = append(gaps, time.Duration(to-from))
		}
		return true
	})
	if err != nil {
		return 0, err
	}
	if slices.Min(gaps) <= 0 {
		return 0, fmt.Errorf("%s: two processes held the lock at the same time", c.name)
	}
	return slices.Max(gaps), nil
}

// first returns the time of the first event of this round that matches, or 0.
func (c *crew) first(kind, part string, match func(event) bool) int64 {
	for _, e := range c.past {
		if e.Kind == kind && e.Part == part && match(e) {
			return e.At
		}
	}
	return 0
}
