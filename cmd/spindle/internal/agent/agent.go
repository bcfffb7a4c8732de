package agent

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spindle-lock/spindle/cmd/spindle/internal/peer"
	"github.com/spindle-lock/spindle/internal/batch"
	"github.com/spindle-lock/spindle/internal/elect"
	"github.com/spindle-lock/spindle/internal/loop"
	"github.com/spindle-lock/spindle/internal/table"
)

// Config configures an Agent.
type Config struct {
	Locks     table.Table
	TableName string
	Allow     []string // prefixes of the names that programs may lock; if empty, all names are allowed
	MaxHolds  int      // how many holds there may be at a time
	Host      string   // appears in the ids of holders
	Log       *slog.Logger
}

// Agent holds locks for programs.
type Agent struct {
	Config
	warnings *slog.Logger // for the locks, which log only warnings; the agent itself logs the rest
	clock    elect.Clock
	clocks   func() reading // reads the clocks that programs can read too
	identify func(net.Conn) (process, *problem)
	requests batch.Requests
	barred   barred
	counts   counts

	mu       sync.Mutex
	holds    map[string]*hold // by id
	past     []*hold          // holds that are over, oldest first
	draining bool             // programs get no more locks
}

// New returns an Agent without any holds.
func New(c Config) *Agent {
	clock := elect.SystemClock{}
	return &Agent{Config: c, clocks: readClocks, identify: identify, warnings: slog.New(atLeast{c.Log.Handler(), slog.LevelWarn}), clock: clock, barred: barred{clock: clock, names: map[string][]bar{}}, holds: map[string]*hold{}, counts: newCounts()}
}

// remembered is how many holds are remembered after they are over, because a program may ask late how its hold ended.
const remembered = 1000

// newHold returns a hold for a request. If it succeeds, the hold owns the peer.
func (a *Agent) newHold(r *request, p process) (*hold, *problem) {
	if wrong := a.check(r); wrong != nil {
		return nil, wrong
	}
	if err := p.Watch(); err != nil {
		return nil, wrong(http.StatusServiceUnavailable, "unavailable", "%v", err)
	}
	p.Describe()
	id, who := newID(), p.Who()
	h := &hold{owner: owner{id, a.holderOf(id, r, who), r, who, p}, agent: a, machine: machine{releasesAtEOF: r.releasesAtEOF},
		events: loop.NewInbox[event](), lines: newLines(), mute: make(chan struct{}), ended: make(chan struct{})}
	h.log = a.Log.With("kind", r.kind, "names", r.names, "holder", h.holder)
	h.wait.decided = make(chan struct{})
	h.wait.ctx, h.wait.quit = context.WithCancelCause(context.Background())
	var err error
	if h.lock, err = newLocker(r, h); err != nil {
		return nil, wrong(http.StatusBadRequest, "bad-parameter", "%v", err)
	}
	return h, a.add(h)
}

func (a *Agent) check(r *request) *problem {
	for _, name := range r.names {
		if wrong := a.allowed(name); wrong != nil {
			return wrong
		}
	}
	return nil
}

func (a *Agent) allowed(name string) *problem {
	begins := func(prefix string) bool { return strings.HasPrefix(name, prefix) }
	if len(a.Allow) > 0 && !slices.ContainsFunc(a.Allow, begins) {
		return wrong(http.StatusForbidden, "name-not-allowed", "this agent does not allow the name %.64q: names must begin with %s (--allow-name)", name, strings.Join(a.Allow, " or "))
	}
	return nil
}

// add adds a hold. It fails if the agent is draining or full. It also fails if the program already holds one of the
// locks or waits for it, because the program would then be waiting for itself.
func (a *Agent) add(h *hold) *problem {
	a.mu.Lock()
	defer a.mu.Unlock()
	switch {
	case a.draining:
		return wrong(http.StatusServiceUnavailable, "stopping", "this agent is stopping and gives out no more locks")
	case len(a.holds) >= a.MaxHolds:
		return wrong(http.StatusTooManyRequests, "too-many", "this agent already has %d holds, and --max-holds does not allow more", len(a.holds))
	}
	for _, other := range a.holds {
		if name := h.repeats(other); name != "" {
			return wrong(http.StatusConflict, "already-held", "this program has already asked for %.64q in another request: the threads of a program must share one hold", name)
		}
	}
	a.holds[h.id] = h
	return nil
}

// repeats returns a name that both holds ask for if they belong to the same program, and "" otherwise. Semaphores don't
// count. Neither does a hold that the program has given up: the program can wait until that hold is over.
func (h *hold) repeats(other *hold) string {
	wanted := map[phase]bool{waiting: true, held: true, stopping: true}[other.status().phase] && !other.peer.HasClosed()
	if !wanted || other.who.Key != h.who.Key || h.asked.kind == semaphores || other.asked.kind == semaphores {
		return ""
	}
	for _, name := range h.asked.names {
		if slices.Contains(other.asked.names, name) {
			return name
		}
	}
	return ""
}

// ended records that a hold is over, and closes its peer.
func (a *Agent) ended(h *hold) {
	h.wait.quit(nil)
	a.barred.prune()
	a.counts.end(h)
	a.mu.Lock()
	delete(a.holds, h.id)
	a.past = append(a.past, h)
	a.past = a.past[max(len(a.past)-remembered, 0):]
	a.mu.Unlock()
	h.peer.Close()
}

// find returns the hold with the given id, even if it is over, or nil if there is none.
func (a *Agent) find(id string) *hold {
	a.mu.Lock()
	defer a.mu.Unlock()
	if h := a.holds[id]; h != nil {
		return h
	}
	for _, h := range a.past {
		if h.id == id {
			return h
		}
	}
	return nil
}

// all returns the holds that are not over.
func (a *Agent) all() []*hold {
	a.mu.Lock()
	defer a.mu.Unlock()
	all := make([]*hold, 0, len(a.holds))
	for _, h := range a.holds {
		all = append(all, h)
	}
	return all
}

// Drain stops giving out locks and asks all programs to release theirs. It returns once no program holds a lock, or ctx
// ends. It leaves a lock whose program may still act to expire.
func (a *Agent) Drain(ctx context.Context, reason string) {
	a.mu.Lock()
	a.draining = true
	a.mu.Unlock()
	a.stop(ctx, a.all(), reason)
}

func (a *Agent) stop(ctx context.Context, holds []*hold, reason string) {
	for _, h := range holds {
		h.stop(reason)
	}
	for _, h := range holds {
		select {
		case <-h.ended:
		case <-ctx.Done():
			return
		}
	}
}

// newID returns a new id for a hold. It is a secret with 128 random bits: the program that knows it may release the hold.
func newID() string {
	b := make([]byte, 16)
	_, _ = rand.Read(b) // never fails
	return hex.EncodeToString(b)
}

// proofOf returns the hash of a hold's id that is stored in the lock table. A program that knows the id can use it to
// prove that the hold is its own.
func proofOf(id string) string {
	sum := sha256.Sum256([]byte(id))
	return hex.EncodeToString(sum[:8])
}

// holderOf returns the id of the holder for the lock table. It identifies the program, not the agent.
func (a *Agent) holderOf(id string, r *request, p peer.Identity) string {
	program := r.label
	if program == "" {
		program = p.Command
	}
	if p.Unit != "" {
		program = strings.TrimSpace(program + " " + p.Unit)
	}
	clean := func(s string) string {
		return strings.Map(func(c rune) rune {
			if c == '/' || table.Unprintable(c) {
				return '-'
			}
			return c
		}, s)
	}
	return fmt.Sprintf("%s/%d/%.200s/%s", clean(a.Host), p.PID, clean(strings.ToValidUTF8(program, "")), proofOf(id))
}

// waitFor limits how long a request other than for a hold may take.
const waitFor = 30 * time.Second
