package lock

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"cloud.google.com/go/spanner"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/spindle-lock/spindle"
	"github.com/spindle-lock/spindle/internal/elect"
	"github.com/spindle-lock/spindle/internal/options"
	"github.com/spindle-lock/spindle/internal/table"
	"github.com/spindle-lock/spindle/internal/testkit/fleet"
	"github.com/spindle-lock/spindle/internal/testkit/memstore"
)

var silent = spindle.WithLogger(slog.New(slog.DiscardHandler))

// way is the connection between a process and the table. It takes time, and records the steps that pass.
type way struct {
	takes time.Duration // each step

	mu    sync.Mutex
	steps []string
	at    []time.Time
}

// to returns the way to a store. A step fails if ctx has already ended. The end of ctx does not call back what was sent before.
func (w *way) to(store table.Store) table.Store {
	return table.Via(func(ctx context.Context, step string, call func(context.Context, table.Store) error) error {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		w.mu.Lock()
		w.steps, w.at = append(w.steps, step), append(w.at, time.Now())
		w.mu.Unlock()
		time.Sleep(w.takes)
		return call(context.WithoutCancel(ctx), store)
	})
}

// sent returns the steps that have been sent.
func (w *way) sent() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.steps)
}

// when returns the times at which a step was sent.
func (w *way) when(step string) (at []time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for i, s := range w.steps {
		if s == step {
			at = append(at, w.at[i])
		}
	}
	return at
}

// bed is a table, and the processes that use it.
type bed struct {
	*testing.T
	store     *memstore.Store
	processes []*process
}

// process is a link to the table, with a queue of its own.
type process struct {
	memstore.Link
	*way
	id    int64
	clock elect.Clock
	log   journal
}

// journal records the log of a process's locks, from level Info on.
type journal struct {
	mu   sync.Mutex
	text strings.Builder
}

func (j *journal) Write(line []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.text.Write(line)
}

// lines returns the lines that contain a text.
func (j *journal) lines(text string) (found []string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for line := range strings.Lines(j.text.String()) {
		if strings.Contains(line, text) {
			found = append(found, line)
		}
	}
	return found
}

var lastProcess atomic.Int64 // of all tests: queues are of a real process

func inVirtualTime(t *testing.T, f func(b *bed)) {
	fleet.Bubble(t, func(t *testing.T) { onBed(t, f) })
}

func onBed(t *testing.T, f func(b *bed)) {
	b := &bed{T: t, store: &memstore.Store{}}
	f(b)
	for _, p := range b.processes {
		p.Cut() // what is still held is lost
	}
	time.Sleep(24 * time.Hour) // whatever hangs ends with its time-out
}

func (b *bed) process() *process {
	p := &process{way: &way{}, id: lastProcess.Add(1), clock: elect.SystemClock{}}
	p.Link.Store = p.to(b.store)
	b.processes = append(b.processes, p)
	return p
}

func (p *process) options(opts []Option) []Option {
	return append(opts, spindle.WithLogger(slog.New(slog.NewTextHandler(&p.log, nil))), options.Option(func(c *options.Config) {
		c.Store, c.Clock, c.Process = &p.Link, p.clock, fmt.Sprint("process ", p.id)
	}))
}

func (p *process) mutex(name string, opts ...Option) *Mutex {
	return New(nil, "locktable", name, p.options(opts)...)
}

func (p *process) set(names ...string) *Set {
	return All(nil, "locktable", names, p.options(nil)...)
}

func (p *process) semaphore(name string, n int, opts ...Option) *Semaphore {
	return NewSemaphore(nil, "locktable", name, n, p.options(opts)...)
}

// lose takes a lock away from its holder, as an operator would.
func (b *bed) lose(name string, token spindle.Token) {
	b.Helper()
	if err := b.store.Commit(b.Context(), "operator", []table.Write{{Kind: table.Delete, Name: table.LeaseKey(name, table.Token(token))}}); err != nil {
		b.Fatal(err)
	}
}

func within1s(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, time.Second)
}

// failing answers these steps with an error, each time.
func failing(err error, steps ...string) func(string) error {
	return func(step string) error {
		if slices.Contains(steps, step) {
			return err
		}
		return nil
	}
}

func refused(code codes.Code) error {
	return spanner.ToSpannerError(status.Error(code, "refused here"))
}

// stepping is a machine's clock. Its wall clock can be set, and its random choices are always the largest possible
// ones.
type stepping struct {
	elect.SystemClock
	wall atomic.Int64
}

func (c *stepping) Now() elect.Instant {
	i := c.SystemClock.Now()
	i.Wall += c.wall.Load()
	return i
}

func (c *stepping) Random(d time.Duration) time.Duration { return d - 1 }

// isFree reports whether a row is a free row rather than a lease row.
func isFree(row table.Row) bool { return strings.Contains(row.Writer, `"free":true`) }
