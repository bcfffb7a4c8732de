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
	Locks      table.Table
	Heartbeats table.Store // sends the heartbeats of all holds; nil: the store of Locks
	TableName  string
	Allow      []string // prefixes of the names that programs may lock; if empty, all names are allowed
	MaxHolds   int      // how many holds there may be at a time
	Host       string   // appears in the ids of holders
	Log        *slog.Logger
}

// Agent holds locks for programs.
type Agent struct {
	Config
	warnings   *slog.Logger // for the locks, which log only warnings; the agent itself logs the rest
	clock      elect.Clock
	clocks     func() reading // reads the clocks that programs can read too
	identify   func(net.Conn) (process, *problem)
	requests   batch.Requests
	programs   programs
	beginnings turns // of requests
	barred     barred
	counts     counts

	holds sync.Map // by id; those that are not over

	mu       sync.Mutex
	past     []*hold // holds that are over, oldest first
	draining bool    // programs get no more locks
}

// New returns an Agent without any holds.
func New(c Config) *Agent {
	clock := elect.SystemClock{}
	return &Agent{Config: c, clocks: readClocks, identify: identify, warnings: slog.New(atLeast{c.Log.Handler(), slog.LevelWarn}), clock: clock, requests: batch.Requests{Heartbeats: c.Heartbeats}, barred: barred{clock: clock, names: map[string][]bar{}}, counts: newCounts(),
		programs: programs{maxHolds: c.MaxHolds, byKey: map[string]*program{}}, beginnings: turns{all: atATime}}
}

// atATime is how many requests may begin at a time. One program may have half of it.
const atATime = 64

// remembered is how many holds are remembered after they are over, because a program may ask late how its hold ended.
const remembered = 1000

// newHold returns a hold for a request. If it succeeds, the hold owns the peer.
func (a *Agent) newHold(r *request, p process) (*hold, *problem) {
	if wrong := a.check(r); wrong != nil {
		return nil, wrong
	}
	if p.HasClosed() {
		return nil, wrong(http.StatusBadRequest, "closed", "the program closed the connection, or its direction of it, before its request began")
	}
	h := &hold{owner: owner{id: newID(), asked: r, who: p.Who(), peer: p}, agent: a, machine: machine{releasesAtEOF: r.releasesAtEOF},
		events: loop.NewInbox[event](), lines: newLines(), mute: make(chan struct{}), ended: make(chan struct{})}
	bad := a.programs.enter(h)
	if bad == nil {
		if bad = a.complete(h); bad != nil {
			a.programs.end(h)
		}
	}
	return h, bad
}

// complete fills in the rest of a hold, and adds it to the others.
func (a *Agent) complete(h *hold) *problem {
	if err := h.peer.Watch(); err != nil {
		return wrong(http.StatusServiceUnavailable, "unavailable", "%v", err)
	}
	h.peer.Describe()
	h.who = h.peer.Who()
	h.holder = a.holderOf(h.id, h.asked, h.who)
	h.log = a.Log.With("kind", h.asked.kind, "names", h.asked.names, "holder", h.holder)
	h.wait.decided = make(chan struct{})
	h.wait.ctx, h.wait.quit = context.WithCancelCause(context.Background())
	var err error
	if h.lock, err = newLocker(h.asked, h); err != nil {
		return wrong(http.StatusBadRequest, "bad-parameter", "%v", err)
	}
	return a.add(h)
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

// add adds a hold, unless the agent is draining.
func (a *Agent) add(h *hold) *problem {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.draining {
		return wrong(http.StatusServiceUnavailable, "stopping", "this agent is stopping and gives out no more locks")
	}
	a.holds.Store(h.id, h)
	return nil
}

// ended records that a hold is over, and closes its peer.
func (a *Agent) ended(h *hold) {
	h.wait.quit(nil)
	a.counts.end(h)
	a.mu.Lock()
	a.holds.Delete(h.id)
	a.past = append(a.past, h)
	a.past = a.past[max(len(a.past)-remembered, 0):]
	a.mu.Unlock()
	h.peer.Close()
}

// find returns the hold with the given id, even if it is over, or nil if there is none.
func (a *Agent) find(id string) *hold {
	if h, ok := a.holds.Load(id); ok {
		return h.(*hold)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, h := range a.past {
		if h.id == id {
			return h
		}
	}
	return nil
}

// all returns the holds that are not over.
func (a *Agent) all() (all []*hold) {
	a.holds.Range(func(_, h any) bool {
		all = append(all, h.(*hold))
		return true
	})
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
