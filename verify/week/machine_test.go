package week

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"reflect"
	"sync"
	"time"

	"cloud.google.com/go/spanner"
	"github.com/stretchr/testify/assert"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/spindle-lock/spindle"
	"github.com/spindle-lock/spindle/internal/elect"
	"github.com/spindle-lock/spindle/internal/options"
	"github.com/spindle-lock/spindle/internal/table"
	"github.com/spindle-lock/spindle/internal/testkit/fleet"
	"github.com/spindle-lock/spindle/internal/testkit/memstore"
)

// machine is a process, its clock, and its connection to the table. It is an elect.Clock and a table.Store.
type machine struct {
	*week
	number           int
	born             elect.Instant
	rate             float64
	wall             fleet.Clock // set by hand
	has              func(lock int) (bool, spindle.Token)
	stop             context.CancelFunc
	cut, sessionless time.Time // until then

	drawing sync.Mutex
	chance  *rand.Rand
}

const restart = 5 * time.Second

// lives runs one process after another, until ctx ends.
func (m *machine) lives(ctx context.Context, live func(context.Context, *machine)) {
	for ctx.Err() == nil {
		var life context.Context
		m.mu.Lock()
		life, m.stop = context.WithCancel(ctx)
		m.mu.Unlock()
		live(life, m)
		elect.Sleep(ctx, m, restart)
	}
}

func (m *machine) options() spindle.CommonOption {
	seam := options.Option(func(c *options.Config) { c.Store, c.Clock, c.Process = m, m, fmt.Sprint("machine ", m.number) })
	return spindle.Options(seam, spindle.WithID(fmt.Sprint("machine ", m.number)), spindle.WithLease(lease), spindle.WithLogger(slog.New(slog.DiscardHandler)))
}

// end ends the process.
func (m *machine) end() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.stop()
}

// become says how the process knows what it holds.
func (m *machine) become(has func(lock int) (bool, spindle.Token)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.has = has
}

// begins is called when a term begins. The term makes fenced writes until some time after the next term has begun.
func (m *machine) begins(lock int, token spindle.Token, fence *spanner.Mutation) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.apart(lock)
	l := &m.locks[lock]
	assert.Greater(m.t, token, l.newest, "the token of a new term of lock %d", lock)
	l.newest = token
	l.terms++
	row := reflect.ValueOf(fence).Elem().FieldByName("values").Index(0).Elem().String()
	go func() {
		for late := 0; late < 5 && m.ctx.Err() == nil; {
			elect.Sleep(m.ctx, m, m.Random(2*lease))
			m.mu.Lock()
			newest := l.newest
			m.mu.Unlock()
			err := m.table.Commit(context.Background(), "fenced", []table.Write{{Kind: table.Update, Name: row}})
			if newest > token {
				assert.Error(m.t, err, "a write of lock %d that is fenced with an old token", lock)
				late++
			}
		}
	}()
}

// Now implements elect.Clock.
func (m *machine) Now() elect.Instant {
	i := m.wall.Now()
	off := int64(float64(i.Mono-m.wall.Mono.Load()-m.born.Mono) * (m.rate - 1))
	return elect.Instant{Wall: i.Wall + off, Mono: i.Mono + off}
}

// Timer implements elect.Clock.
func (m *machine) Timer(d time.Duration) *time.Timer { return time.NewTimer(m.real(d)) }

// AfterFunc implements elect.Clock.
func (m *machine) AfterFunc(d time.Duration, f func()) *time.Timer {
	return time.AfterFunc(m.real(d), f)
}

// real returns how long a timer of the machine takes. It rounds up: in virtual time, those who wait for the rest of a
// nanosecond would do so forever.
func (m *machine) real(d time.Duration) time.Duration { return time.Duration(float64(d)/m.rate) + 1 }

// Random implements elect.Clock.
func (m *machine) Random(d time.Duration) time.Duration {
	m.drawing.Lock()
	defer m.drawing.Unlock()
	return time.Duration(m.chance.Int64N(int64(d)))
}

// once reports true once in n calls.
func (m *machine) once(n int) bool { return m.Random(time.Duration(n)) == 0 }

// pass delays a request, or lets it fail.
func (m *machine) pass(ctx context.Context, step string, call func(context.Context, table.Store) error) error {
	m.mu.Lock()
	now := time.Now()
	down, sessionless, slow := now.Before(m.outage) || now.Before(m.cut), now.Before(m.sessionless), now.Before(m.slow)
	m.mu.Unlock()
	var late time.Duration
	switch {
	case sessionless:
		return spanner.ToSpannerError(status.Error(codes.NotFound, "Session not found"))
	case down && m.once(2):
		return spanner.ToSpannerError(status.Error(codes.Unavailable, "outage"))
	case down:
		<-ctx.Done()
		return memstore.ErrCut
	case slow:
		late = 100*time.Millisecond + m.Random(3*time.Second)
	case m.once(10_000):
		late = m.fault(m.Random(5 * time.Second))
	case m.once(100):
		late = m.Random(100 * time.Millisecond)
	}
	elect.Sleep(ctx, m, late)
	err := call(ctx, m.table)
	if step == "heartbeat" && ctx.Err() != nil {
		m.fault(0) // the heartbeat may have been applied, and extend the lease once more, although the term has ended
	}
	if m.once(10_000) {
		m.fault(lease) // until the caller has given up
		<-ctx.Done()
		return memstore.ErrCut
	}
	return err
}

// fault notes a fault that lasts for d.
func (m *machine) fault(d time.Duration) time.Duration {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.disturb(time.Now().Add(d))
	return d
}

// Read implements table.Store.
func (m *machine) Read(ctx context.Context, step string, bound table.Bound, keys table.Keys) ([]table.Row, time.Time, error) {
	return table.Via(m.pass).Read(ctx, step, bound, keys)
}

// Commit implements table.Store. Some commits are applied again later.
func (m *machine) Commit(ctx context.Context, step string, writes []table.Write) error {
	if m.once(1000) {
		time.AfterFunc(m.Random(3*lease), func() {
			m.fault(0) // a heartbeat extends the lease once more
			_ = m.table.Commit(context.Background(), step, writes)
		})
	}
	return table.Via(m.pass).Commit(ctx, step, writes)
}

// Transact implements table.Store. Spanner aborts one transaction in a hundred.
func (m *machine) Transact(ctx context.Context, step string, fn func(context.Context, table.Reader) ([]table.Write, error)) (time.Time, error) {
	return table.Via(m.pass).Transact(ctx, step, func(ctx context.Context, r table.Reader) ([]table.Write, error) {
		writes, err := fn(ctx, r)
		if err == nil && m.once(100) {
			err = table.ErrAborted
		}
		return writes, err
	})
}

// alone begins a fault of one machine. From the beginning on, the others have a lease to take over, unless the fault hits
// two machines at the same time.
func (m *machine) alone(until *time.Time, now time.Time, d time.Duration) {
	*until = now.Add(d)
	m.disturb(now)
	for _, other := range m.machines {
		if other != m && (now.Before(other.cut) || now.Before(other.sessionless)) {
			m.disturb(*until)
		}
	}
}
