package agent

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spindle-lock/spindle/internal/table"
	"github.com/spindle-lock/spindle/internal/testkit/memstore"
)

// link is an agent's connection to Spanner: a table.Store with a network in between.
type link struct{ a *agentProcess }

var errUnavailable = errors.New("unavailable")

type reply struct {
	rows []table.Row
	at   time.Time
	err  error
}

// Read implements table.Store.
func (l link) Read(ctx context.Context, step string, bound table.Bound, keys table.Keys) ([]table.Row, time.Time, error) {
	w := l.a.host.w
	r := l.a.rpc(ctx, step, sizeOf(keys), false, func() (r reply) {
		r.rows, r.at, r.err = w.store.Read(context.Background(), step, bound, keys)
		return r
	})
	return r.rows, r.at, r.err
}

// Commit implements table.Store.
func (l link) Commit(ctx context.Context, step string, writes []table.Write) error {
	w := l.a.host.w
	return l.a.rpc(ctx, step, len(writes), true, func() reply {
		return reply{err: w.store.Commit(context.Background(), step, writes)}
	}).err
}

// Transact implements table.Store.
func (l link) Transact(ctx context.Context, step string, fn func(context.Context, table.Reader) ([]table.Write, error)) (time.Time, error) {
	txn := l.a.host.w.store.Begin()
	writes, err := fn(ctx, reader{l.a, txn, step})
	if err != nil {
		return time.Time{}, err
	}
	r := l.a.rpc(ctx, step, len(writes), false, func() (r reply) {
		if l.a.host.aborts(step) {
			return reply{err: table.ErrAborted}
		}
		r.at, r.err = txn.Commit(step, writes)
		return r
	})
	return r.at, r.err
}

type reader struct {
	a    *agentProcess
	txn  *memstore.Transaction
	step string
}

func (r reader) Read(ctx context.Context, keys table.Keys) ([]table.Row, error) {
	reply := r.a.rpc(ctx, r.step+"'s read", sizeOf(keys), false, func() (reply reply) {
		reply.rows, reply.err = r.txn.Read(context.Background(), keys)
		return reply
	})
	return reply.rows, reply.err
}

// aborts reports whether Spanner aborts a transaction. w.mu is held.
func (h *host) aborts(step string) bool {
	d := h.dice("abort", step)
	if !h.w.faulty() || !d.chance(h.w.plan.abort) {
		return false
	}
	h.w.fault("transaction aborted")
	h.disturb(h.w.plan.longest / 2)
	return true
}

// fate is the outcome of one request to Spanner.
type fate struct {
	request time.Duration // until it is applied; negative: never
	reply   time.Duration // from there until the caller learns the result; negative: never
	again   time.Duration // when it is applied again; 0: never
	refused time.Duration // when the caller gets an error, although the request may be applied; 0: never
}

// rpc sends a request, and waits for the reply or for ctx to end. The request is applied, or not, even if the agent has
// ended by then.
func (a *agentProcess) rpc(ctx context.Context, step string, size int, replayed bool, apply func() reply) reply {
	a.chanceOfStop(step, 0.002)
	f, ok := a.fate(step, size, replayed)
	if !ok {
		return reply{err: table.ErrSuperseded} // of an agent that has ended
	}
	answer := make(chan reply, 2)
	w := a.host.w
	if f.request >= 0 {
		time.AfterFunc(f.request, func() { w.land(step, f, apply, answer) })
	}
	if f.again > 0 {
		time.AfterFunc(f.again, func() { w.land(step, fate{reply: -1}, apply, nil) })
	}
	if f.refused > 0 {
		time.AfterFunc(f.refused, func() { answer <- reply{err: errUnavailable} })
	}
	var r reply
	select {
	case r = <-answer:
	case <-ctx.Done():
		r.err = ctx.Err()
	case <-a.died:
		r.err = table.ErrSuperseded
	}
	a.chanceOfStop(step+" done", 0.002)
	return r
}

func sizeOf(keys table.Keys) int { return len(keys.Names) + len(keys.Ranges) }

// fate draws the outcome of a request, which does not depend on its contents, because they have nonces. It returns false
// if the agent has ended.
func (a *agentProcess) fate(step string, size int, replayed bool) (f fate, alive bool) {
	h, w := a.host, a.host.w
	w.mu.Lock()
	defer w.mu.Unlock()
	d := h.dice(a.name, step, size)
	way := func() time.Duration { return d.spread(100*time.Microsecond, w.plan.latency) }
	f = fate{request: way(), reply: way()}
	if a.dead || !w.faulty() {
		return f, !a.dead
	}
	for _, one := range []*time.Duration{&f.request, &f.reply} {
		if d.chance(w.plan.slow) {
			*one = d.spread(w.plan.longest/50, 2*w.plan.longest)
			w.fault("slow request")
			h.disturb(*one + w.plan.longest)
		}
	}
	if replayed && d.chance(w.plan.again) {
		f.again = d.spread(time.Millisecond, 5*w.plan.longest)
		w.fault("request applied again")
		h.disturb(f.again)
	}
	if d.chance(w.plan.refused) {
		f.refused = d.spread(100*time.Microsecond, 2*w.plan.latency)
		w.fault("error of unknown outcome")
		h.disturb(w.plan.longest)
	}
	down := time.Now().Before(h.cut) || time.Now().Before(w.outage)
	switch {
	case down, d.chance(w.plan.lost):
		f.request = -1
	case d.chance(w.plan.silent):
		f.reply = -1
	default:
		return f, true
	}
	if !down {
		w.fault("message lost")
	}
	h.disturb(2 * w.plan.longest)
	return f, true
}

// land applies a request that has reached Spanner.
func (w *world) land(step string, f fate, apply func() reply, answer chan<- reply) {
	w.mu.Lock()
	w.committed = time.Time{}
	r := apply()
	wait := max(f.reply, time.Until(w.committed)) // a commit is answered once its timestamp has passed
	w.mu.Unlock()
	if f.reply >= 0 {
		time.AfterFunc(wait, func() { answer <- r })
	}
}

// fencedWrite writes a token into a register, in one commit with the fence from the line held. The write may be applied
// late. w.mu is held.
func (t *tenure) fencedWrite() {
	w := t.p.w
	d := w.dice("fenced write", t.p.name)
	token, names := t.token, t.names
	var writes []table.Write
	for i, name := range names {
		writes = append(writes, t.fence[i], table.Write{Kind: table.Put, Name: registerOf(name),
			Set: []table.Cell{{Column: table.ColHeartbeat, Value: table.Now}, {Column: table.ColWriter, Value: fmt.Sprint(token)}}})
	}
	after := d.spread(100*time.Microsecond, w.plan.latency)
	if w.faulty() && d.chance(0.2) {
		after = d.spread(time.Millisecond, 2*w.plan.longest)
	}
	time.AfterFunc(after, func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		_ = w.store.Commit(context.Background(), "fenced write", writes)
	})
}

// registerOf returns the row that fenced writes under a lock write.
func registerOf(lock string) string { return "register of " + lock }
