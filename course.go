package spindle

import (
	"github.com/spindle-lock/spindle/internal/elect"
	"github.com/spindle-lock/spindle/internal/table"
)

// course tracks the stage that a leader's term has reached. It is a state machine without side effects: it maps each
// event to the acts that the leader must carry out. It follows two rules:
//
//   - Once the work's context has been canceled, the term must end.
//   - The lock is released only after the work has returned.
type course struct {
	handover     bool // whether the leader announces that it is leaving even if it leaves because Run's ctx has ended
	keepOnReturn bool // whether the term continues after its work has returned

	stage stage
	idle  bool          // whether the work has returned, or there is no work
	early bool          // whether the term ends because the work has returned
	by    table.Request // the request that ends the term, or ""
}

// stage is a part of a term's course.
type stage int

const (
	leading  stage = iota
	leaving        // announced; the work continues until the followers have had time to see this
	draining       // the work's context is canceled; heartbeats continue until the work has returned
	hung           // like draining, but the work has stalled: this process no longer acts; heartbeats end a lease later
	lost           // the lock is no longer held, but the work has not returned
	over
)

// happening is the kind of an event.
type happening int

const (
	runEnded  happening = iota // Run's ctx has ended
	asked                      // StepDown was called; answer is set
	requested                  // another process has requested a handover; By is set
	announced                  // the followers have had time to see that the leader is leaving
	returned                   // the work has returned
	jeopardy                   // a heartbeat failed; Err is set
	safe                       // a heartbeat was acknowledged again
	stalled                    // the work has made no progress, so its context has been canceled; Err is set
	termEnded                  // the lock is no longer held; Err is set
	timeIsUp                   // the grace period, which begins when Run's ctx ends, has elapsed
)

// event is an occurrence that the leader reacts to.
type event struct {
	what            happening
	elect.TermEvent // for the events of the keeper
	answer          chan<- error
}

// act is something that the leader does.
type act int

const (
	announce   act = iota // announce that the leader is leaving
	cancelWork            // cancel the work's context
	release               // release the lock
	stall                 // no longer act under the lock, because the work has stalled
	expire                // let the lock expire, because the work has not returned
	lose                  // accept that the lock is lost
	abandon               // stop waiting for work that has not returned since the lock was lost
)

// on handles an event, and returns the acts to carry out, in order.
func (c *course) on(e event) []act {
	if e.what == returned {
		c.idle = true
	}
	if c.stage == over {
		return nil
	}
	switch before := c.stage; e.what {
	case runEnded:
		if before == leading && c.handover {
			return c.leave(e)
		} else if before <= leaving && !c.handover {
			return c.drain()
		}
	case asked, requested:
		if before == leading {
			return c.leave(e)
		}
	case announced:
		if before == leaving {
			return c.drain()
		}
	case returned:
		return c.finish()
	case stalled:
		if before <= draining && !c.idle {
			c.stage = hung
			return []act{stall}
		}
	case termEnded:
		if c.idle {
			return c.end(lose)
		}
		c.stage = lost
		return []act{lose}
	case timeIsUp:
		if before == draining || before == hung {
			return c.end(expire)
		} else if before == lost {
			return c.end(abandon)
		}
	}
	return nil
}

func (c *course) leave(e event) []act {
	c.stage, c.by = leaving, e.By
	return []act{announce}
}

// finish handles the return of the leader function.
func (c *course) finish() []act {
	switch before := c.stage; {
	case before == leading && c.keepOnReturn:
		return nil
	case before <= leaving:
		c.early = before == leading // an announcement would only prolong a term without work
		return c.drain()
	case before == draining, before == hung:
		return c.end(release)
	}
	return c.end()
}

func (c *course) drain() []act {
	if c.idle {
		return c.end(cancelWork, release)
	}
	c.stage = draining
	return []act{cancelWork}
}

func (c *course) end(last ...act) []act {
	c.stage = over
	return last
}
