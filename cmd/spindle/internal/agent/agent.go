package agent

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"log/slog"
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

// Config is what an agent needs to know.
type Config struct {
	Locks     table.Table
	TableName string
	Allow     []string // prefixes of the names that programs may lock; none: all names
	MaxHolds  int      // how many programs may hold locks, or wait for them
	Host      string   // of the ids of holders
	Log       *slog.Logger
}

// Agent holds locks for programs.
type Agent struct {
	Config
	warnings *slog.Logger // of locks: what they do otherwise is logged here
	clock    elect.Clock
	requests batch.Requests
	barred   barred
	counts   counts

	mu       sync.Mutex
	holds    map[string]*hold // by id
	past     []*hold          // that are over, the oldest first
	draining bool             // no program gets a lock any more
}

// New returns an Agent that holds nothing.
func New(c Config) *Agent {
	clock := elect.SystemClock{}
	return &Agent{Config: c, warnings: slog.New(atLeast{c.Log.Handler(), slog.LevelWarn}), clock: clock, barred: barred{clock: clock, names: map[string]promise{}}, holds: map[string]*hold{}, counts: newCounts()}
}

// remembered is how many holds that are over are remembered: a program may ask late what became of its own.
const remembered = 1000

// newHold returns a hold for a request. It owns the peer then.
func (a *Agent) newHold(r *request, p *peer.Peer) (*hold, *problem) {
	if wrong := a.check(r); wrong != nil {
		return nil, wrong
	}
	p.Describe()
	id := newID()
	h := &hold{agent: a, id: id, holder: a.holderOf(id, r, p), asked: r, peer: p, events: loop.NewInbox[event](), lines: newLines(),
		mute: make(chan struct{}), decided: make(chan struct{}), ended: make(chan struct{}), machine: machine{releasesAtEOF: r.releasesAtEOF}}
	h.log = a.Log.With("kind", r.kind, "names", r.names, "holder", h.holder)
	h.waits, h.quit = context.WithCancelCause(context.Background())
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
		return wrong(http.StatusForbidden, "name-not-allowed", "this agent does not lock %.64q: its names begin with %s (--allow-name)", name, strings.Join(a.Allow, " or "))
	}
	return nil
}

// add adds a hold, unless its program asks for what it has, or waits for, already: it would wait for itself.
func (a *Agent) add(h *hold) *problem {
	a.mu.Lock()
	defer a.mu.Unlock()
	switch {
	case a.draining:
		return wrong(http.StatusServiceUnavailable, "stopping", "this agent is stopping: its programs get no locks any more")
	case len(a.holds) >= a.MaxHolds:
		return wrong(http.StatusTooManyRequests, "too-many", "%d programs hold locks of this agent or wait for them, and no more are allowed (--max-holds)", len(a.holds))
	}
	for _, other := range a.holds {
		if name := h.repeats(other); name != "" {
			return wrong(http.StatusConflict, "already-held", "this program already holds %.64q, or waits for it, by another request: threads of one program share one hold", name)
		}
	}
	a.holds[h.id] = h
	return nil
}

// repeats returns a name that another hold of the same program is about, or "". A hold that the program has given up does
// not count: the program waits until it is over.
func (h *hold) repeats(other *hold) string {
	wanted := map[phase]bool{waiting: true, held: true, stopping: true}[other.phase()] && !other.peer.HasClosed()
	if !wanted || other.peer.Key != h.peer.Key || h.asked.kind == semaphores || other.asked.kind == semaphores {
		return ""
	}
	for _, name := range h.asked.names {
		if slices.Contains(other.asked.names, name) {
			return name
		}
	}
	return ""
}

// ended takes in that a hold is over.
func (a *Agent) ended(h *hold) {
	h.quit(nil)
	h.peer.Close()
	a.counts.end(h)
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.holds, h.id)
	a.past = append(a.past, h)
	a.past = a.past[max(len(a.past)-remembered, 0):]
}

// find returns a hold by its id, also one that is over.
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

// Drain lets no program get a lock any more, asks all to release theirs, and returns when none is held any more, or ctx
// ends. It never releases a lock whose program may still act: what is left expires.
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

// newID returns the id of a hold, which only its program can know: 128 random bits.
func newID() string {
	b := make([]byte, 16)
	_, _ = rand.Read(b) // never fails
	return hex.EncodeToString(b)
}

// proofOf returns what the lock table has of a hold's id: whoever knows the id can show that the hold is its own.
func proofOf(id string) string {
	sum := sha256.Sum256([]byte(id))
	return hex.EncodeToString(sum[:8])
}

// holderOf returns the id of a holder in the lock table, which names the program and not the agent.
func (a *Agent) holderOf(id string, r *request, p *peer.Peer) string {
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

// waitFor limits how long a client's question may take.
const waitFor = 30 * time.Second
