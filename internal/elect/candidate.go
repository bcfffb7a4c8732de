package elect

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spindle-lock/spindle/internal/table"
)

// longestAttempt limits one attempt of whatever step: a server that hangs must not cost a long lease.
const longestAttempt = 10 * time.Second

// Candidate stands for locks. It belongs to one goroutine at a time, and to one that holds none of them.
type Candidate struct {
	Table     table.Table
	Clock     Clock
	Names     []string      // the locks that it looks at
	ID        string        // written as the holder's
	Promise   table.Promise // made with each term
	LockDelay time.Duration
	Reclaim   bool

	own  table.Token // of its last claim: whenever it stands again, nobody holds that
	seen map[string]*memory
}

// memory is what a candidate keeps of one lock from one look to the next.
type memory struct {
	holder  table.Token    // who made the promise
	promise *table.Promise // nil: none was read

	// guard is the lease of the holder that was seen last, as long as nothing has shown that its term
	// is over. Rows that vanish under a holder do not end its term before its deadline.
	guard  time.Duration
	absent time.Time // since when, by Spanner's clock, the lock row is known to be gone
	strays map[table.Token]table.Promise
}

// Sight is one lock as it was seen.
type Sight struct {
	table.Observation
	Free time.Duration // how long after the observation the lock can be claimed: now, if not positive
	New  bool          // this holder was not seen before
}

// Look observes all locks at one instant, in one RPC, and one more for holders that came since the first
// look, or where a lock row has vanished.
func (c *Candidate) Look(ctx context.Context) ([]Sight, error) {
	ctx, cancel := context.WithTimeout(ctx, c.attempt())
	defer cancel()
	observed, err := c.observe(ctx)
	if err != nil {
		return nil, fmt.Errorf("observe: %w", err)
	}
	for _, o := range observed {
		if o.Exists { // an absence is over then, whatever can't be read beside the row
			c.memory(o.Name).absent = time.Time{}
		}
	}
	fresh, err := c.readPromises(ctx, observed)
	if err != nil {
		return nil, fmt.Errorf("observe: %w", err)
	}
	sights := make([]Sight, len(observed))
	for i, o := range observed {
		m := c.memory(o.Name)
		sights[i] = Sight{Observation: o, Free: c.freeIn(m, o), New: fresh[o.Name]}
		sights[i].Promise = m.promiseOf(o.Token)
	}
	return sights, nil
}

// observe reads the lease rows along with the lock rows while nothing is known yet. The wall clock only
// bounds the keys of the first look; a wrong one makes for a second.
func (c *Candidate) observe(ctx context.Context) ([]table.Observation, error) {
	if c.seen == nil {
		return c.Table.Survey(ctx, time.Now(), c.Names...)
	}
	return c.Table.Observe(ctx, c.Names...)
}

func (c *Candidate) memory(name string) *memory {
	m := c.seen[name]
	if m == nil {
		if c.seen == nil {
			c.seen = map[string]*memory{}
		}
		m = &memory{}
		c.seen[name] = m
	}
	return m
}

// promiseOf returns what the holder of token promised, if that was read.
func (m *memory) promiseOf(token table.Token) *table.Promise {
	if m.holder != token {
		return nil
	}
	return m.promise
}

// readPromises reads what the holders promised that were not seen before, and says which these are.
func (c *Candidate) readPromises(ctx context.Context, observed []table.Observation) (map[string]bool, error) {
	var unknown []table.Observation
	fresh := map[string]bool{}
	for _, o := range observed {
		m := c.memory(o.Name)
		switch {
		case !o.Held() || m.promiseOf(o.Token) != nil:
		case o.Promise != nil:
			m.holder, m.promise, fresh[o.Name] = o.Token, o.Promise, true
		default:
			unknown = append(unknown, o)
		}
	}
	if unknown == nil {
		return fresh, nil
	}
	promises, err := c.Table.Promises(ctx, unknown...)
	for _, o := range unknown {
		m := c.memory(o.Name)
		if p, ok := promises[o.Name]; ok {
			m.holder, m.promise, fresh[o.Name] = o.Token, &p, true
		}
		if err != nil {
			m.guard = max(m.guard, c.Promise.Lease) // there is a holder all the same
		}
	}
	return fresh, err
}

// freeIn says how long after the observation the lock can be claimed.
func (c *Candidate) freeIn(m *memory, o table.Observation) time.Duration {
	if !o.Exists {
		return c.absentFor(m, o)
	}
	switch {
	case o.Heartbeat.IsZero():
		m.guard = 0
		return 0
	case c.Reclaim && o.Writer == c.ID:
		return 0
	case o.Token == c.own && c.own != 0 && c.LockDelay == 0:
		return 0
	case !o.Held():
		m.guard = max(m.guard, c.Promise.Lease) // a bare claim does not show that the term before it is over
		return o.Heartbeat.Add(c.Promise.Lease).Sub(o.At)
	}
	// Where somebody deleted the promise, the candidate's own lease stands for it.
	m.guard = c.Promise.Lease
	if p := m.promiseOf(o.Token); p != nil {
		m.guard = p.Lease
	}
	return o.Heartbeat.Add(m.guard + c.LockDelay).Sub(o.At)
}

// absentFor is freeIn for a lock that has no row. It is free at once, unless its row was deleted under
// a holder: that one can't extend its lease any more, but may not know yet. A holder shows in its
// stray lease row, or was seen before.
func (c *Candidate) absentFor(m *memory, o table.Observation) time.Duration {
	if m.absent.IsZero() {
		m.absent, m.strays = o.At, o.Strays
	}
	for token, p := range o.Strays {
		if _, known := m.strays[token]; !known {
			m.absent, m.strays = o.At, o.Strays
		}
		if token != c.own {
			m.guard = max(m.guard, p.Lease)
		}
	}
	if m.guard == 0 {
		return 0
	}
	return m.absent.Add(m.guard + c.LockDelay).Sub(o.At)
}

// Claim claims and confirms all that was seen, or nothing, and returns the term that begins with it.
// The end of ctx does not interrupt it, as an election that is half done costs the other candidates a
// lease; it ends the term's context.
//
// An error that errors.Is(err, table.ErrChanged) or table.ErrSuperseded says that another was first.
func (c *Candidate) Claim(ctx context.Context, seen ...Sight) (*Term, error) {
	observed := make([]table.Observation, len(seen))
	names := make([]string, len(seen))
	for i, s := range seen {
		observed[i], names[i] = s.Observation, s.Name
	}
	running := context.WithoutCancel(ctx)
	var token table.Token
	err := c.try(running, func(ctx context.Context) (err error) {
		token, err = c.Table.Claim(ctx, c.ID, observed...)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("claim: %w", err)
	}
	c.own, c.seen = token, nil // whoever was seen before is superseded
	sent, err := c.confirm(running, token, names)
	if err != nil {
		return nil, fmt.Errorf("confirm: %w", err)
	}
	return newTerm(ctx, c, token, sent, names), nil
}

// confirm returns the instant before the confirmation was sent. Where its outcome is unknown a heartbeat
// tells, since it needs the lease rows that the confirmation inserts; if they are not there it is tried
// again, as nobody else can claim before the lease of the bare claim is over.
func (c *Candidate) confirm(ctx context.Context, token table.Token, names []string) (Instant, error) {
	ctx, cancel := context.WithTimeout(ctx, c.Promise.Lease)
	defer cancel()
	confirm := func(ctx context.Context) error { return c.Table.Confirm(ctx, token, c.Promise, names...) }
	heartbeat := func(ctx context.Context) error { return c.Table.Heartbeat(ctx, token, names...) }

	sent := c.Clock.Now()
	failed := c.try(ctx, confirm)
	retry := Backoff{First: c.Promise.Lease / 200, Max: c.Promise.Lease / 3}
	for err := failed; err != nil; {
		if errors.Is(err, table.ErrSuperseded) || ctx.Err() != nil {
			return sent, failed // not what came last: this is the cause
		}
		Sleep(ctx, c.Clock, retry.Pause(c.Clock))
		sent = c.Clock.Now()
		if err = c.try(ctx, heartbeat); errors.Is(err, table.ErrSuperseded) {
			sent = c.Clock.Now()
			err = c.try(ctx, confirm)
		}
	}
	return sent, nil
}

func (c *Candidate) try(ctx context.Context, step func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, c.attempt())
	defer cancel()
	return step(ctx)
}

// attempt limits one attempt of a candidate. The floor leaves a cold connection the time to be made;
// no RPC that is alive takes as long as the ceiling.
func (c *Candidate) attempt() time.Duration {
	return min(max(c.Promise.Lease/3, time.Second), longestAttempt)
}

// Spread is a short pause at random, for candidates that would otherwise all act at the same instant: up
// to a fiftieth of the lease, the holder's or the candidate's.
func (c *Candidate) Spread(s Sight) time.Duration {
	lease := c.Promise.Lease
	if s.Promise != nil {
		lease = min(lease, s.Promise.Lease)
	}
	return c.Clock.Random(lease/50 + 1)
}
