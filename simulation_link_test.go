package spindle

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

	"github.com/spindle-lock/spindle/internal/memtable"
	"github.com/spindle-lock/spindle/internal/table"
)

// simLink is a process's way to the table: a table.Store with a network in between.
type simLink struct{ p *simProcess }

var errSimUnavailable = errors.New("unavailable")

type simReply struct {
	rows []table.Row
	at   time.Time
	err  error
}

// simFate is what becomes of one RPC.
type simFate struct {
	request time.Duration   // until it lands; negative: never
	reply   time.Duration   // from there until it is known; negative: never
	again   []time.Duration // when it lands again
	refused time.Duration   // until the caller is told that it failed, whatever became of it; 0: it isn't
	abort   bool            // Spanner aborts the transaction
}

func (l simLink) Read(ctx context.Context, step string, bound table.Bound, keys table.Keys) ([]table.Row, time.Time, error) {
	r := l.p.rpc(ctx, step, false, func() (r simReply) {
		r.rows, r.at, r.err = l.p.w.store.Read(context.Background(), step, bound, keys)
		l.p.looking = step == "observe" && !slices.ContainsFunc(r.rows, func(row table.Row) bool { return row.Name == simName })
		return r
	})
	l.p.sees(step, r)
	return r.rows, r.at, r.err
}

func (l simLink) Commit(ctx context.Context, step string, writes []table.Write) error {
	return l.p.rpc(ctx, step, true, func() simReply {
		return simReply{err: l.p.w.store.Commit(context.Background(), step, writes)}
	}).err
}

// Transact may run the transaction again that was applied, as a client does that has lost the reply.
func (l simLink) Transact(ctx context.Context, step string, fn func(context.Context, table.Reader) ([]table.Write, error)) (time.Time, error) {
	if step == "confirm" && l.p.sick {
		return time.Time{}, simPick(l.p.diceAt(step), errSimUnavailable, status.Error(codes.FailedPrecondition, "sick"))
	}
	at, err := l.transact(ctx, step, fn)
	if err == nil && l.p.runsAgain(step) {
		return l.transact(ctx, step, fn)
	}
	return at, err
}

func (l simLink) transact(ctx context.Context, step string, fn func(context.Context, table.Reader) ([]table.Write, error)) (time.Time, error) {
	txn := l.p.w.store.Begin()
	writes, err := fn(ctx, simReader{l.p, txn, step})
	if err != nil {
		return time.Time{}, err
	}
	r := l.p.rpc(ctx, step, false, func() (r simReply) {
		r.at, r.err = txn.Commit(step, writes)
		return r
	})
	return r.at, r.err
}

func (p *simProcess) diceAt(purpose string) *simDice {
	d := p.w.dice(p, purpose)
	return &d
}

func (p *simProcess) runsAgain(step string) bool {
	p.w.mu.Lock()
	defer p.w.mu.Unlock()
	if !p.w.faulty() || !p.diceAt(step+" again").chance(p.w.plan.twice) {
		return false
	}
	p.w.fault("transaction run again", 0)
	return true
}

type simReader struct {
	p    *simProcess
	txn  *memtable.Transaction
	step string
}

func (r simReader) Read(ctx context.Context, keys table.Keys) ([]table.Row, error) {
	reply := r.p.rpc(ctx, r.step+"'s read", false, func() (reply simReply) {
		reply.rows, reply.err = r.txn.Read(context.Background(), keys)
		r.p.w.disturb()
		return reply
	})
	return reply.rows, reply.err
}

// sees remembers whose term the process knows of, for what the operator may do.
func (p *simProcess) sees(step string, r simReply) {
	p.w.mu.Lock()
	defer p.w.mu.Unlock()
	p.looking = false
	if step != "observe" || r.err != nil {
		return
	}
	p.seen = 0
	for _, row := range r.rows {
		if row.Name == simName && row.Heartbeat.After(row.Token) {
			p.seen = table.TokenAt(row.Token)
		}
	}
}

// rpc sends a request and waits for the reply, or for ctx to end. What was sent lands, or does not,
// whatever has become of the process by then. Only a replayed one may land again.
func (p *simProcess) rpc(ctx context.Context, step string, replayed bool, land func() simReply) simReply {
	p.await(step)
	f, ok := p.fate(step, replayed)
	if !ok {
		return simReply{err: table.ErrSuperseded} // of a crashed process: let it end
	}
	answer := make(chan simReply, 2)
	if f.request >= 0 {
		time.AfterFunc(f.request, func() { p.w.land(p, step, f, land, answer) })
	}
	for _, later := range f.again {
		time.AfterFunc(later, func() { p.w.land(p, step+" again", simFate{reply: -1}, land, nil) })
	}
	if f.refused > 0 {
		time.AfterFunc(f.refused, func() { answer <- simReply{err: errSimUnavailable} })
	}
	var r simReply
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
	p.w.told(p, step, r)
	return r
}

// fate draws what becomes of an RPC: false where the process has crashed.
func (p *simProcess) fate(step string, replayed bool) (simFate, bool) {
	w := p.w
	w.mu.Lock()
	defer w.mu.Unlock()
	if p.dead {
		return simFate{}, false
	}
	d := w.dice(p, step, uint64(p.lease()))
	f := simFate{request: d.spread(100*time.Microsecond, w.plan.latency), reply: d.spread(100*time.Microsecond, w.plan.latency)}
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

// late lets a confirmation land when candidates with shorter leases take its claim for a dead one, and
// their claims just after that.
func (w *simWorld) late(p *simProcess, step string, f *simFate, d *simDice) {
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
func (w *simWorld) cut(p *simProcess, f *simFate, d *simDice) {
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
func (w *simWorld) land(p *simProcess, step string, f simFate, apply func() simReply, answer chan<- simReply) {
	w.mu.Lock()
	w.actor, w.committed = p, time.Time{}
	var r simReply
	if f.abort && isSimTransaction(step) {
		r.err = table.ErrAborted
	} else {
		r = apply()
	}
	wait := max(f.reply, time.Until(w.committed)) // a commit is answered when its timestamp has passed
	if w.tracing {
		w.tracef(p, "%s lands: %s", step, simOutcome(r.err))
	}
	w.mu.Unlock()
	w.soon()
	if f.reply >= 0 {
		time.AfterFunc(wait, func() { answer <- r })
	}
}

func isSimTransaction(step string) bool {
	return step == "claim" || step == "confirm" || step == "withdraw"
}

func simOutcome(err error) string {
	if err != nil {
		return err.Error()
	}
	return "ok"
}

// told is when the process goes on after an RPC.
func (w *simWorld) told(p *simProcess, step string, r simReply) {
	w.mu.Lock()
	if w.tracing && !p.dead {
		w.tracef(p, "%s: %s", step, simOutcome(r.err))
	}
	w.mu.Unlock()
	w.soon()
}

// fencedWrite writes into the register under a token, in one commit with the real fence.
func (p *simProcess) fencedWrite(token Token) {
	ctx, cancel := context.WithTimeout(context.Background(), p.lease())
	defer cancel()
	writes := []table.Write{
		simWriteOf(p.lock.Fence(token)),
		{Kind: table.Update, Name: simRegister, Set: []table.Cell{{Column: table.ColWriter, Value: strconv.FormatInt(int64(token), 10)}}},
	}
	p.rpc(ctx, "fenced write", true, func() simReply {
		err := p.w.store.Commit(context.Background(), "fenced write", writes)
		p.w.checkRefused(p, token, err)
		return simReply{err: err}
	})
}

// simWriteOf reads what a mutation does, so that the fence of the product is what is tested.
func simWriteOf(m *spanner.Mutation) table.Write {
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
