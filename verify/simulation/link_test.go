package simulation

import (
	"context"
	"errors"
	"reflect"
	"slices"
	"strconv"
	"time"

	"cloud.google.com/go/spanner"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/spindle-lock/spindle"
	"github.com/spindle-lock/spindle/internal/table"
	"github.com/spindle-lock/spindle/internal/testkit/memstore"
)

// link is a process's connection to the table: a table.Store with a network in between.
type link struct{ p *process }

var errUnavailable = errors.New("unavailable")

type reply struct {
	rows []table.Row
	at   time.Time
	err  error
}

// fate is the outcome of one RPC.
type fate struct {
	request time.Duration   // until it lands; negative: never
	reply   time.Duration   // from there until it is known; negative: never
	again   []time.Duration // when it lands again
	refused time.Duration   // until the caller is told that it failed, whatever became of it; 0: it isn't
	abort   bool            // Spanner aborts the transaction
}

func (l link) Read(ctx context.Context, step string, bound table.Bound, keys table.Keys) ([]table.Row, time.Time, error) {
	if l.p.fails(step) {
		return nil, time.Time{}, errUnavailable
	}
	r := l.p.rpc(ctx, step, false, func() (r reply) {
		r.rows, r.at, r.err = l.p.w.store.Read(context.Background(), step, bound, keys)
		l.p.looking = step == "observe" && !slices.ContainsFunc(r.rows, func(row table.Row) bool { return row.Name == lockName })
		return r
	})
	l.p.sees(step, r)
	return r.rows, r.at, r.err
}

func (l link) Commit(ctx context.Context, step string, writes []table.Write) error {
	if l.p.fails(step) {
		return errUnavailable
	}
	return l.p.rpc(ctx, step, true, func() reply {
		return reply{err: l.p.w.store.Commit(context.Background(), step, writes)}
	}).err
}

// Transact can run an applied transaction again, like a client that has lost the reply.
func (l link) Transact(ctx context.Context, step string, fn func(context.Context, table.Reader) ([]table.Write, error)) (time.Time, error) {
	if l.p.fails(step) {
		return time.Time{}, pick(l.p.diceAt(step), errUnavailable, status.Error(codes.FailedPrecondition, "sick"))
	}
	at, err := l.transact(ctx, step, fn)
	if err == nil && l.p.runsAgain(step) {
		return l.transact(ctx, step, fn)
	}
	return at, err
}

// fails reports whether the process is sick: a candidate can't confirm, and a member can't claim partitions.
func (p *process) fails(step string) bool {
	if p.member == nil {
		return p.sick && step == "confirm"
	}
	return p.sick && step == p.member.ails && !p.w.calm()
}

func (l link) transact(ctx context.Context, step string, fn func(context.Context, table.Reader) ([]table.Write, error)) (time.Time, error) {
	txn := l.p.w.store.Begin()
	writes, err := fn(ctx, reader{l.p, txn, step})
	if err != nil {
		return time.Time{}, err
	}
	if l.p.w.poisons(step, writes) {
		return time.Time{}, errUnavailable
	}
	r := l.p.rpc(ctx, step, false, func() (r reply) {
		r.at, r.err = txn.Commit(step, writes)
		return r
	})
	return r.at, r.err
}

// poisons reports whether one of the partitions can't be claimed by any process.
func (w *world) poisons(step string, writes []table.Write) bool {
	return step == "claim-partitions" && w.poison != "" && !w.calm() &&
		slices.ContainsFunc(writes, func(write table.Write) bool { return write.Name == w.poison })
}

func (p *process) diceAt(purpose string) *dice {
	d := p.w.dice(p, purpose)
	return &d
}

func (p *process) runsAgain(step string) bool {
	p.w.mu.Lock()
	defer p.w.mu.Unlock()
	if !p.w.faulty() || !p.diceAt(step+" again").chance(p.w.plan.twice) {
		return false
	}
	p.w.fault("transaction run again", 0)
	return true
}

type reader struct {
	p    *process
	txn  *memstore.Transaction
	step string
}

func (r reader) Read(ctx context.Context, keys table.Keys) ([]table.Row, error) {
	reply := r.p.rpc(ctx, r.step+"'s read", false, func() (reply reply) {
		reply.rows, reply.err = r.txn.Read(context.Background(), keys)
		r.p.w.disturb()
		return reply
	})
	return reply.rows, reply.err
}

// sees records the terms that the process has seen, which limits the operator's deletions.
func (p *process) sees(step string, r reply) {
	p.w.mu.Lock()
	defer p.w.mu.Unlock()
	p.looking = false
	if step != "observe" || r.err != nil {
		return
	}
	p.seen = 0
	for _, row := range r.rows {
		if row.Name == lockName && row.Heartbeat.After(row.Token) {
			p.seen = table.TokenAt(row.Token)
		}
	}
}

// rpc sends a request, and waits for the reply or for ctx to end. The request is applied, or not, even if the process
// has ended by then. Only a replayed request can be applied again.
func (p *process) rpc(ctx context.Context, step string, replayed bool, land func() reply) reply {
	p.await(step)
	f, ok := p.fate(step, replayed)
	if !ok {
		return reply{err: table.ErrSuperseded} // of a crashed process: let it end
	}
	sent := time.Now()
	answer := make(chan reply, 2)
	if f.request >= 0 {
		time.AfterFunc(f.request, func() { p.w.land(p, step, sent, f, land, answer) })
	}
	for _, later := range f.again {
		time.AfterFunc(later, func() { p.w.land(p, step+" again", sent, fate{reply: -1}, land, nil) })
	}
	if f.refused > 0 {
		time.AfterFunc(f.refused, func() { answer <- reply{err: errUnavailable} })
	}
	var r reply
	select {
	case r = <-answer:
	case <-ctx.Done():
		r.err = ctx.Err()
		d := p.w.dice(p, step)
		time.Sleep(d.between(1, 100*time.Microsecond)) // contexts around it may end at the same instant
	case <-p.died:
		r.err = table.ErrSuperseded
	}
	p.await(step + " done")
	p.w.told(p, step, sent, r)
	return r
}

// fate draws the outcome of an RPC. It returns false if the process has crashed.
func (p *process) fate(step string, replayed bool) (fate, bool) {
	w := p.w
	w.mu.Lock()
	defer w.mu.Unlock()
	if p.dead {
		return fate{}, false
	}
	d := w.dice(p, step, uint64(p.lease()))
	f := fate{request: d.spread(100*time.Microsecond, w.plan.latency), reply: d.spread(100*time.Microsecond, w.plan.latency)}
	if !w.faulty() {
		return f, true
	}
	slow, least := w.plan.slow, w.plan.longest/50
	if slices.Contains(w.sore, step) {
		slow, least = 0.4, w.plan.longest/5
	}
	for _, way := range []*time.Duration{&f.request, &f.reply} {
		if d.chance(slow) {
			*way = d.spread(least, 2*w.plan.longest)
			w.fault("slow RPC", *way)
		}
	}
	if replayed && d.chance(w.plan.again) {
		f.again = append(f.again, d.spread(time.Millisecond, 5*w.plan.longest))
		w.fault("request applied again", f.again[0])
	}
	if d.chance(w.plan.refused) {
		f.refused = d.spread(100*time.Microsecond, 2*w.plan.latency)
		w.fault("error of unknown outcome", 0)
	}
	if f.abort = d.chance(w.plan.abort); f.abort {
		w.fault("transaction aborted", 0)
	}
	w.late(p, step, &f, &d)
	w.cut(p, &f, &d)
	w.quiet(f.request + f.reply)
	return f, true
}

// late delays a confirmation until candidates with shorter leases regard its claim as expired, just before their own
// claims commit. It delays a member's heartbeat until other members evict it, and the confirmation of its claims until
// after that.
func (w *world) late(p *process, step string, f *fate, d *dice) {
	switch dies := p.member != nil && w.plan.moody; {
	case dies && step == "confirm-partitions" && d.chance(0.1):
		f.request = p.lease() + d.spread(p.lease()/20, p.lease())
		w.fault("slow RPC", f.request)
		w.cutOff(p, d, f.request)
	case dies && step == "heartbeat" && d.chance(0.01):
		f.request = d.between(p.lease()*6/10, p.lease()*8/10)
		w.fault("slow RPC", f.request)
		w.cutOff(p, d, 2*f.request)
	case dies && step == "evict's read" && d.chance(0.3):
		f.request = d.spread(time.Millisecond, p.lease()/4)
		w.fault("slow RPC", f.request)
	}
	shortest := slices.Min(w.plan.leases)
	switch {
	case !w.plan.moody || !w.plan.mixed || !d.chance(0.3):
	case step == "confirm" && p.lease() > shortest:
		f.request = shortest + d.spread(time.Millisecond, shortest/3)
		w.fault("slow RPC", f.request)
	case step == "claim's read" && p.lease() == shortest:
		f.request = d.spread(time.Millisecond, shortest/3)
		w.fault("slow RPC", f.request)
	}
}

// cut loses the request or the reply, by itself or because the network is cut.
func (w *world) cut(p *process, f *fate, d *dice) {
	now := time.Now()
	down := now.Before(w.outage) || now.Before(p.cutOut)
	switch {
	case down || d.chance(w.plan.lost):
		f.request = -1
		if !down {
			w.fault("request lost", 0)
		} else if f.refused == 0 && d.chance(0.5) {
			f.refused = d.spread(100*time.Microsecond, 2*w.plan.latency)
		}
	case now.Before(p.cutBack):
		f.reply = -1
	case d.chance(w.plan.silent):
		f.reply = -1
		w.fault("reply lost", 0)
	}
}

// land is the arrival of a request at Spanner.
func (w *world) land(p *process, step string, sent time.Time, f fate, apply func() reply, answer chan<- reply) {
	w.mu.Lock()
	w.actor, w.sent, w.committed = p, sent, time.Time{}
	var r reply
	if f.abort && isTransaction(step) {
		r.err = table.ErrAborted
	} else {
		r = apply()
	}
	wait := max(f.reply, time.Until(w.committed)) // a commit is answered when its timestamp has passed
	if w.tracing {
		w.tracef(p, "%s lands: %s", step, outcomeOf(r.err))
	}
	w.mu.Unlock()
	w.soon()
	if f.reply >= 0 {
		time.AfterFunc(wait, func() { answer <- r })
	}
}

func isTransaction(step string) bool {
	return slices.Contains([]string{"claim", "confirm", "withdraw", "evict", "claim-partitions", "confirm-partitions", "reconcile", "publish"}, step)
}

func outcomeOf(err error) string {
	if err != nil {
		return err.Error()
	}
	return "ok"
}

// told returns when the process continues after an RPC.
func (w *world) told(p *process, step string, sent time.Time, r reply) {
	w.mu.Lock()
	switch {
	case step == "heartbeat" && r.err == nil:
		p.beat = sent
	case step == "release" && (r.err == nil || errors.Is(r.err, table.ErrMissing)) && p.releasedAt.IsZero():
		p.releasedAt = time.Now()
	}
	if w.tracing && !p.dead {
		w.tracef(p, "%s: %s", step, outcomeOf(r.err))
	}
	w.mu.Unlock()
	w.soon()
}

// fencedWrite writes into the register under a token, in one commit with the real fence.
func (p *process) fencedWrite(lock string, token spindle.Token, fence *spanner.Mutation) {
	ctx, cancel := context.WithTimeout(context.Background(), p.lease())
	defer cancel()
	writes := []table.Write{
		writeOf(fence),
		{Kind: table.Update, Name: registerOf(lock), Set: []table.Cell{{Column: table.ColHeartbeat, Value: table.Now}, {Column: table.ColWriter, Value: strconv.FormatInt(int64(token), 10)}}},
	}
	p.rpc(ctx, "fenced write", true, func() reply {
		err := p.w.store.Commit(context.Background(), "fenced write", writes)
		p.w.checkRefused(p, lock, token, err)
		return reply{err: err}
	})
}

// registerOf returns the row that fenced writes under a lock write.
func registerOf(lock string) string { return "register of " + lock }

// writeOf decodes a mutation, so that the production fence is tested.
func writeOf(m *spanner.Mutation) table.Write {
	v := reflect.ValueOf(m).Elem()
	w := table.Write{Kind: table.Update}
	switch op := v.FieldByName("op").Int(); op {
	case 0:
		return table.Write{Kind: table.Delete, Name: v.FieldByName("keySet").Elem().Index(0).Elem().String()}
	case 1:
		w.Kind = table.Insert
	case 4: // Update
	default:
		panic("the simulation does not know this operation: " + strconv.Itoa(int(op)))
	}
	columns, values := v.FieldByName("columns"), v.FieldByName("values")
	for i := range columns.Len() {
		if value := values.Index(i).Elem(); columns.Index(i).String() == table.ColName {
			w.Name = value.String()
		} else {
			w.Set = append(w.Set, table.Cell{Column: columns.Index(i).String(), Value: value.String()})
		}
	}
	return w
}
