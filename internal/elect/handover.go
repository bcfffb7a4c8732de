package elect

import (
	"context"
	"errors"
	"math"
	"time"

	"github.com/spindle-lock/spindle/internal/table"
)

// Announce tells the followers that the term is about to end, and returns when those that look as often as they
// should have seen it: a third of the lease and a round trip later. From then on they look so often that the
// release is found at once. It returns before that if ctx ends or the term is over, if the announcement does not
// get through for a third of the lease, and, if heartbeats don't either, while there is time to stop the work.
//
// It calls heard, unless that is nil, once the announcement is in the table.
//
// There is no way back: an announcement that comes late would mark a term that goes on.
func (t *Term) Announce(ctx context.Context, heard func()) {
	limited, cancel := context.WithTimeout(ctx, t.lease/3)
	defer cancel()
	retry := Backoff{Max: t.lease / 10}
	for limited.Err() == nil && !t.pressed() {
		sent := t.clock.Now()
		attempt, done := context.WithTimeout(limited, longestAttempt)
		err := t.table.Announce(attempt, t.token, t.names...)
		done()
		switch {
		case err == nil:
			if heard != nil {
				heard()
			}
			t.linger(ctx, t.lease/3+t.clock.Now().Since(sent))
			return
		case errors.Is(err, table.ErrSuperseded):
			return // which the next heartbeat is told too
		}
		Sleep(limited, t.clock, retry.Pause(t.clock))
	}
}

// linger waits, but not into the time that is needed to stop.
func (t *Term) linger(ctx context.Context, d time.Duration) {
	began := t.clock.Now()
	for ctx.Err() == nil && !t.pressed() {
		left := d - t.clock.Now().Since(began)
		if left <= 0 {
			return
		}
		Sleep(ctx, t.clock, min(left, max(t.spare(), t.lease/50)))
	}
}

// pressed reports whether heartbeats fail and the time that is left is needed to stop in.
func (t *Term) pressed() bool { return t.jeopardy.Load() && t.spare() <= 0 }

// spare is the time that is left, less a sixth of the lease.
func (t *Term) spare() time.Duration { return t.Left() - t.lease/6 }

// CancelWork ends the term's context, and nothing else: the lock stays held until the work has returned.
func (t *Term) CancelWork(reason error) { t.end(reason) }

// Requested waits for a request to hand the lock over that the holder is to accept, for which it looks once a lease.
// It returns "" if ctx ends before: the term's context, or one within it.
func (t *Term) Requested(ctx context.Context) table.Request {
	for {
		Sleep(ctx, t.clock, Jitter(t.clock, t.lease))
		if ctx.Err() != nil {
			return ""
		}
		if by, _ := t.asked(ctx); by != "" { // what fails is asked again
			return by
		}
	}
}

func (t *Term) asked(ctx context.Context) (table.Request, error) {
	ctx, cancel := context.WithTimeout(ctx, min(t.lease/3, longestAttempt))
	defer cancel()
	operator, preference, err := t.table.Asked(ctx, t.names[0], t.token)
	switch {
	case err != nil:
		return "", err
	case operator:
		return table.ByOperator, nil
	case preference && t.clock.Now().Since(t.began) >= t.ignoreFor:
		return table.ByPreference, nil
	}
	return "", nil
}

// Yield makes the candidate leave the lock, of a term that it gave up, to others: until another holds it, or
// a third of a lease has passed since it was released, or a lease, if it is not known to be released. Asked is
// the request that it has accepted, or "".
func (c *Candidate) Yield(t *Term, released bool, asked table.Request) {
	c.yielded, c.coolingSince, c.coolDown = t.token, c.Clock.Now(), c.LeaseRecord.Lease
	if released {
		c.coolDown /= 3
	}
	c.preference.spurned = asked == table.ByPreference
}

// recognise takes in what was observed of handovers.
func (c *Candidate) recognise(o table.Observation, h *lockHistory, began Instant) {
	if o.Leaving() && h.leaving != o.Token {
		h.leaving, h.marked = o.Token, h.looked
		if h.looked == (Instant{}) {
			h.marked = began
		}
	}
	h.looked = began
	if !o.Confirmed() || o.Token == c.own {
		return
	}
	if c.yielded != 0 {
		c.yielded, c.coolDown = 0, 0
	}
	c.preference.see(o, c.LeaseRecord.Rank)
}

// signal tells others of the candidate, in the pause until its next look, and returns what is left of that. While a
// holder is leaving the pause is short: a name gets a tenth of the lease, which is how often the others look then.
func (c *Candidate) signal(ctx context.Context, seen []LockView, pause time.Duration) time.Duration {
	began := c.Clock.Now()
	within := func(limit time.Duration, send func(context.Context, []LockView)) {
		ctx, cancel := context.WithTimeout(ctx, limit)
		defer cancel()
		send(ctx, seen)
	}
	within(pause, c.prefer)
	within(max(pause, c.shortest(seen)/10), c.succeed)
	return max(pause-c.Clock.Now().Since(began), 0)
}

// succeed names the candidate as the successor of a leaving holder that has none, so that a crowd of followers
// does not look for the release, and claim the lock, all at once. Lower priorities leave that to higher ones.
func (c *Candidate) succeed(ctx context.Context, seen []LockView) {
	for _, s := range seen {
		if _, named := s.Successor(); s.Leaving() && !named && c.LeaseRecord.Rank == 0 && c.coolDownLeft() <= 0 {
			// What fails is only a signal that the others don't get.
			_ = c.try(ctx, func(ctx context.Context) error { return c.Table.Succeed(ctx, c.ID, s.Name, s.Token) })
		}
	}
}

// watch is the pause before the next look at a lock whose holder is leaving. It goes on for a third of its lease
// after it has said so, and had not said so yet at marked: before a third has passed since then, there is nothing
// to see. Then the successor looks each hundredth of the lease, or everybody each fiftieth if there is none yet; the
// others look each tenth, as the successor may be gone. If the holder takes longer than a lease, so do all.
func (c *Candidate) watch(seen []LockView) time.Duration {
	pause := time.Duration(math.MaxInt64)
	for _, s := range seen {
		if !s.Leaving() || s.LeaseRecord == nil {
			continue
		}
		lease, since := s.LeaseRecord.Lease, c.Clock.Now().Since(c.history(s.Name).marked)
		every := lease / 50
		if id, named := s.Successor(); named && id == c.ID {
			every = lease / 100
		} else if named {
			every = lease / 10
		}
		if since > lease {
			every = max(every, since/20)
		}
		pause = min(pause, max(Jitter(c.Clock, every), lease/3-since))
	}
	return pause
}
