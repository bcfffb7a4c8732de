//go:build chaos && unix

package chaos

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"os/signal"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"cloud.google.com/go/spanner"

	"github.com/spindle-lock/spindle"
	"github.com/spindle-lock/spindle/internal/options"
)

// candidate contains the instructions for a process when it is started. The process is this test binary, run again. It
// reports its events as lines of JSON, before and after each one, so that the received lines are true however it ends.
type candidate struct {
	Who, Lock, Database, Table string
	Lease                      time.Duration
	FirstValue                 int64 // its writes count up from here: no two writes have the same value
	Scripted                   bool  // it writes when it is told to, and not on its own
	Handover                   bool
	Priority                   int // if Handover
	Partitions                 int // it is a member of the group Lock, which has so many
	Reclaim                    bool

	Agents   int    // so many members are programs of agents
	Command  string // the path of the command spindle, for agents
	Socket   string // it is a program of the agent that listens there
	Postgres bool   // the database's dialect
}

const (
	pollHasLock = time.Millisecond
	reportHeld  = 25 * time.Millisecond // what a SIGKILL can cost of a recorded interval

	// rowTime is how long one row of the register is used. It bounds the histories that a checker has to search.
	// Candidates do not have to agree on it, because every row is a separate register.
	rowTime     = 20 * time.Second
	rowsAtATime = 100 // one for each partition of a group
)

// Only holders write a register row. Its token is the last writer's token. Its count is the number of writes that read
// the row before they overwrote it; each adds one.
var registerColumns = []string{"id", "value", "token", "count"}

// runCandidate leaves its client open, because writes of terms that have ended can still be in transit when it ends.
func runCandidate(args []string, orders <-chan string) error {
	var c candidate
	if err := json.Unmarshal([]byte(args[0]), &c); err != nil {
		return err
	}
	w := &worker{candidate: c, out: json.NewEncoder(os.Stdout)}
	w.value.Store(c.FirstValue)
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	w.ctx = ctx
	err := w.run(orders)
	if ctx.Err() != nil {
		return nil // it was told to end, perhaps before it could start
	}
	return err
}

func (w *worker) run(orders <-chan string) (err error) {
	c := w.candidate
	w.db, err = spanner.NewClientWithConfig(w.ctx, c.Database, spanner.ClientConfig{DisableNativeMetrics: true})
	if err != nil {
		return err
	}
	both := []spindle.GroupOption{
		spindle.WithID(c.id()),
		spindle.WithLease(c.Lease),
		spindle.WithObserver(w.observe),
		spindle.WithLogger(slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelDebug}))),
	}
	if c.Handover {
		both = append(both, spindle.WithHandover())
	}
	if c.Reclaim {
		both = append(both, spindle.WithReclaim())
	}
	if c.Partitions > 0 {
		return w.runMember(both)
	}
	opts := []spindle.Option{options.Join(both...)}
	if !c.Scripted {
		opts = append(opts, spindle.WithLeader(w.lead))
	}
	if c.Handover {
		opts = append(opts, spindle.WithPriority(c.Priority))
	}
	w.lock = spindle.New(w.db, c.Table, c.Lock, opts...)
	w.stepsDown = w.stepDown
	if c.Socket != "" {
		return w.runProgram(orders)
	}
	go w.obey(orders)
	done := make(chan error, 1)
	if err := w.lock.Run(w.ctx, done); err != nil {
		return err
	}
	w.watch(done, &interval{lock: c.Lock, has: w.lock.HasLock})
	if w.last != 0 {
		w.write(w.under(w.last)) // it was released
	}
	return nil
}

// id is the id of the process or, as for a pod, the id of its member.
func (c candidate) id() string {
	if c.Reclaim {
		name, _, _ := strings.Cut(c.Who, ".")
		return name
	}
	return c.Who
}

// worker is the code in a candidate's process.
type worker struct {
	candidate
	db    *spanner.Client
	lock  *spindle.Lock
	ctx   context.Context // Run's
	value atomic.Int64
	works atomic.Int64  // the token that it works under
	last  spindle.Token // of the last term, once Run is done

	stepsDown func()

	mu  sync.Mutex
	out *json.Encoder
}

func (w *worker) say(r record) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if r.At == 0 {
		r.At = now()
	}
	r.Lock, r.Who = cmp.Or(r.Lock, w.Lock), w.Who
	_ = w.out.Encode(r)
}

func (w *worker) observe(e spindle.Event) {
	if e.Kind == spindle.Lost && errors.Is(e.Err, spindle.ErrSteppedDown) && w.works.Load() == int64(e.Token) && w.ctx.Err() == nil {
		panic("it stepped down before its work had returned")
	}
	w.say(record{Kind: kindEvent, Token: e.Token, Expired: errors.Is(e.Err, spindle.ErrExpired), Note: strings.TrimSpace(e.Kind.String() + " " + text(e.Err))})
}

// now reads the machine's clock. TestChaos checks that the clock was not set in the meantime.
func now() int64 { return time.Now().UnixNano() }

// watch calls HasLock repeatedly until done. It reports intervals from the end of the first call that returned true to
// the start of the last one, so each interval lies within the time during which the process believed that it held the
// lock.
func (w *worker) watch(done <-chan error, all ...*interval) {
	tick := time.NewTicker(pollHasLock)
	defer tick.Stop()
	w.say(record{Kind: kindStarted})
	for {
		for _, i := range all {
			i.look(w)
		}
		select {
		case <-tick.C:
		case err := <-done:
			for _, i := range all {
				i.flush(w)
			}
			w.say(record{Kind: kindStopped, Note: text(err)})
			return
		}
	}
}

// interval is the observed state of one lock.
type interval struct {
	lock string
	has  func() (bool, spindle.Token)
	in   record // the interval, and its last report in At
}

func (i *interval) look(w *worker) {
	before := now()
	has, token := i.has()
	after := now()
	switch {
	case !has || token != i.in.Token:
		i.flush(w)
		i.in = record{}
		if has {
			i.in = record{Kind: kindHeld, Lock: i.lock, Token: token, From: after}
		}
	default:
		i.in.To = before
		if i.in.To-i.in.At > int64(reportHeld) {
			i.flush(w)
		}
	}
}

func (i *interval) flush(w *worker) {
	if i.in.From != 0 && i.in.To > i.in.From && i.in.To > i.in.At {
		i.in.At = i.in.To
		w.say(i.in)
	}
}

// lead is the guarded work. It writes as long as the term lasts, and then once more, deliberately too late. The fence
// lets that last write commit only if no process has claimed the lock since.
func (w *worker) lead(ctx context.Context, term spindle.Term) {
	token := term.Token()
	w.works.Store(int64(token))
	defer w.works.Store(0)
	for ctx.Err() == nil {
		w.write(w.under(token))
		pause(ctx, 10*time.Millisecond+rand.N(30*time.Millisecond))
	}
	w.last = token
	w.writeLate(ctx, w.under(token))
}

// writeLate writes once more, some time after the loss that ended ctx.
func (w *worker) writeLate(ctx context.Context, f fenced) {
	if errors.Is(context.Cause(ctx), spindle.ErrExpired) || errors.Is(context.Cause(ctx), spindle.ErrSuperseded) {
		time.AfterFunc(rand.N(w.Lease), func() { w.write(f) })
	}
}

func pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// fenced is a lock or partition held under one token; it commits through its fence.
type fenced struct {
	lock  string
	row   int64 // of the register
	token spindle.Token

	apply    func(context.Context, []*spanner.Mutation) (time.Time, error)
	transact func(context.Context, func(context.Context, *spanner.ReadWriteTransaction) error) (time.Time, error)
}

func (w *worker) under(token spindle.Token) fenced {
	return fenced{w.Lock, 0, token,
		func(ctx context.Context, ms []*spanner.Mutation) (time.Time, error) {
			return w.lock.Apply(ctx, token, ms)
		},
		func(ctx context.Context, fn func(context.Context, *spanner.ReadWriteTransaction) error) (time.Time, error) {
			return w.lock.ReadWriteTransaction(ctx, token, fn)
		}}
}

// write makes one write to the register through the fence, and reports it. Most writes read and write in a transaction;
// some write blindly. A write does not end with the term, because fences are meant for writes that are in transit when
// a lock is lost.
func (w *worker) write(f fenced) {
	r := record{Kind: kindInvoke, Lock: f.lock, Token: f.token, Value: w.value.Add(1), Row: f.row + now()/int64(rowTime)*rowsAtATime}
	r.Blind = r.Value%4 == 0
	w.say(r)
	ctx, cancel := context.WithTimeout(context.Background(), w.Lease/2)
	defer cancel()
	var at time.Time
	var err error
	if r.Blind {
		at, err = f.apply(ctx, mutations(r))
	} else {
		at, err = f.transact(ctx, func(ctx context.Context, txn *spanner.ReadWriteTransaction) error {
			if err := readRegister(ctx, txn, &r); err != nil {
				return err
			}
			return txn.BufferWrite(mutations(r))
		})
	}
	w.sayOutcome(r, at, err)
}

func mutations(r record) []*spanner.Mutation {
	values := []any{r.Row, r.Value, int64(r.Token)}
	if !r.Blind {
		values = append(values, r.Count+1)
	}
	return []*spanner.Mutation{spanner.InsertOrUpdate("register", registerColumns[:len(values)], values)}
}

// rowReader is the part that all kinds of transactions have in common.
type rowReader interface {
	ReadRow(ctx context.Context, table string, key spanner.Key, columns []string) (*spanner.Row, error)
}

// readRegister reads the row's content into r. Before the first write, r is zero.
func readRegister(ctx context.Context, txn rowReader, r *record) error {
	r.Prev, r.PrevToken, r.Count = 0, 0, 0
	row, err := txn.ReadRow(ctx, "register", spanner.Key{r.Row}, registerColumns)
	if errors.Is(err, spanner.ErrRowNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	var id, token int64
	var count spanner.NullInt64 // none, if only blind writes were made
	if err := row.Columns(&id, &r.Prev, &token, &count); err != nil {
		return err
	}
	r.PrevToken, r.Count = spindle.Token(token), count.Int64
	return nil
}

// sayOutcome reports a write. Only a fenced write is known not to have been applied.
func (w *worker) sayOutcome(r record, at time.Time, err error) {
	r.At, r.Note = now(), text(err)
	switch {
	case err == nil:
		r.Kind, r.Commit = kindAccepted, at.UnixMicro()
	case errors.Is(err, spindle.ErrFenced):
		r.Kind = kindFenced
	default:
		r.Kind = kindUnknown
	}
	w.say(r)
}

// command instructs a candidate to step down, or to ask the holder of a token to do so. It instructs a scripted
// candidate to make the two halves of a write that is not guarded by a transaction, with as much time in between as the
// test requires.
type command struct {
	Do    string // step down, ask, read, write, write fenced
	Token spindle.Token
	Row   int64
}

// obey carries out commands.
func (w *worker) obey(orders <-chan string) {
	var r record
	for order := range orders {
		var c command
		if err := json.Unmarshal([]byte(order), &c); err != nil {
			panic(err)
		}
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		var at time.Time
		var err error
		switch c.Do {
		case "step down":
			go w.stepsDown()
		case "ask":
			go w.ask(c.Token)
		case "read":
			r = record{Kind: kindInvoke, Token: c.Token, Value: w.value.Add(1), Row: c.Row}
			w.say(r)
			err = readRegister(ctx, w.db.Single(), &r)
			w.say(record{Kind: kindRead, Note: text(err)})
		case "write":
			at, err = w.db.Apply(ctx, mutations(r))
			w.sayOutcome(r, at, err)
		case "write fenced":
			at, err = w.lock.Apply(ctx, r.Token, mutations(r))
			w.sayOutcome(r, at, err)
		}
		cancel()
	}
}

func (w *worker) stepDown() {
	_, token := w.lock.HasLock()
	err := w.lock.StepDown(w.ctx)
	w.say(record{Kind: kindSteppedDown, Token: token, Note: text(err)})
}

// ask gives up after a while, because its own network might be the one that fails.
func (w *worker) ask(token spindle.Token) {
	ctx, cancel := context.WithTimeout(w.ctx, 5*w.Lease)
	defer cancel()
	h, err := w.lock.RequestHandover(ctx, token)
	if err == nil && (h.From.Token != token || h.To.Token <= token || h.Gap < 0) {
		panic(fmt.Sprintf("asked for a handover of %v, and had %+v", token, h))
	}
	w.say(record{Kind: kindHandover, Token: token, Note: text(err)})
}

func text(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}
