// Package agent holds locks for the programs of one machine or one pod. A program asks for a lock over a Unix socket,
// in plain HTTP. The response to such a request represents one hold, and lasts as long as the hold. docs/agent.md
// describes the protocol and explains why it is safe.
package agent

// The files, from the inside out:
//
//   - rules.go: the state machine of a hold, which decides when a lock may be released
//   - hold.go: the runner of a hold, which carries out what the state machine decides
//   - account.go: the part of a hold's state that requests can see
//   - kinds.go: how each kind of lock is acquired
//   - lines.go: what a program reads
//   - clocks.go: how long a program may act
//   - fence.go: how a program fences its writes
//   - promises.go: lost locks that other programs may not get yet
//   - agent.go: the holds of an agent
//   - program.go: limits on what each program may use
//   - process.go: the process that sent a request
//   - socket.go: connections, and how many requests of a program may begin at a time
//   - api.go, request.go, answer.go: the paths, their parameters, and responses
//   - counts.go: the metrics
//   - command.go, stepdown.go, logger.go: the commands agent and agent stepdown, and what they print

import (
	"cmp"
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

	"github.com/prometheus/client_golang/prometheus"

	"github.com/spindle-lock/spindle/cmd/spindle/internal/peer"
	"github.com/spindle-lock/spindle/internal/batch"
	"github.com/spindle-lock/spindle/internal/elect"
	"github.com/spindle-lock/spindle/internal/loop"
	"github.com/spindle-lock/spindle/internal/options"
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
	Warnings   *slog.Logger // the log of the locks; nil: Log

	Notified options.Option // lets locks notify other processes; nil: they don't
}

// Agent holds locks for programs.
type Agent struct {
	Config
	clock    elect.Clock
	clocks   func() reading // reads the clocks that programs can read too
	identify func(net.Conn) (process, *problem)
	requests batch.Requests
	programs programs
	promises promises
	outcomes *prometheus.CounterVec // of holds that are over

	mu       sync.Mutex
	holds    map[string]*hold // by id; those that are not over
	past     []*hold          // the last holds that ended, oldest first, because a program may ask late how its hold ended
	draining bool             // programs get no more locks
}

// New returns an Agent without any holds.
func New(c Config) *Agent {
	clock := elect.SystemClock{}
	c.Warnings = cmp.Or(c.Warnings, c.Log)
	return &Agent{Config: c, clock: clock, clocks: readClocks, identify: identify, requests: batch.Requests{Heartbeats: c.Heartbeats},
		programs: programs{maxHolds: c.MaxHolds, byKey: map[string]*program{}},
		promises: promises{clock: clock, to: map[string]map[*hold]bool{}},
		outcomes: newOutcomes(), holds: map[string]*hold{}}
}

// remembered is how many of the holds that ended an Agent remembers.
const remembered = 1000

// newHold returns a hold for a request. If newHold succeeds, the hold owns p, and closes it when the hold is over.
func (a *Agent) newHold(r *request, p process) (*hold, *problem) {
	for _, name := range r.names {
		if bad := a.allowed(name); bad != nil {
			return nil, bad
		}
	}
	if p.HasClosed() {
		return nil, wrong(http.StatusBadRequest, "closed", "the program closed the connection, or its side of it, before the request began: keep both sides open until the response ends")
	}
	h := &hold{owner: owner{id: newID(), asked: r, who: p.Who(), peer: p}, agent: a, machine: machine{releasesAtEOF: r.releasesAtEOF},
		events: loop.NewInbox[event](), lines: newLines(), reads: attention{Stall: loop.Stall{Clock: a.clock, Limit: r.stall}}, term: term{returned: make(chan bool, 1), mute: make(chan struct{})}, ended: make(chan struct{})}
	bad := a.programs.enter(h)
	if bad == nil {
		if bad = a.complete(h); bad != nil {
			a.programs.end(h)
		}
	}
	return h, bad
}

// complete fills in the rest of a hold, and adds it to the agent's holds.
func (a *Agent) complete(h *hold) *problem {
	err := h.peer.Watch(func() { h.put(event{what: streamEnds}) }, func() { h.put(event{what: exits}) })
	if err != nil {
		return wrong(http.StatusServiceUnavailable, "unavailable", "%v", err)
	}
	h.peer.Describe()
	h.who = h.peer.Who()
	h.holder = holderOf(a.Host, h.id, h.asked.label, h.who)
	h.log = a.Log.With("kind", h.asked.kind, "names", h.asked.names, "holder", h.holder)
	h.wait.decided = make(chan struct{})
	h.wait.ctx, h.wait.quit = context.WithCancelCause(context.Background())
	if h.wait.locker, err = newLocker(h); err != nil {
		return wrong(http.StatusBadRequest, "bad-parameter", "%v", err)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.draining {
		return wrong(http.StatusServiceUnavailable, "stopping", "this agent is stopping, or is being drained, and gives out no more locks until it is restarted")
	}
	a.holds[h.id] = h
	return nil
}

func (a *Agent) allowed(name string) *problem {
	begins := func(prefix string) bool { return strings.HasPrefix(name, prefix) }
	if len(a.Allow) > 0 && !slices.ContainsFunc(a.Allow, begins) {
		return wrong(http.StatusForbidden, "name-not-allowed", "this agent does not allow the name %.64q: names must begin with %s (--allow-name)", name, strings.Join(a.Allow, " or "))
	}
	return nil
}

// ended records that a hold is over, and closes its peer.
func (a *Agent) ended(h *hold) {
	h.wait.quit(nil)
	h.liftOnceOver()
	a.outcomes.WithLabelValues(h.status().outcome()).Inc()
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
	if i := slices.IndexFunc(a.past, func(h *hold) bool { return h.id == id }); i >= 0 {
		return a.past[i]
	}
	return a.holds[id]
}

// all returns the holds that are not over.
func (a *Agent) all() (all []*hold) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, h := range a.holds {
		all = append(all, h)
	}
	return all
}

// Drain stops giving out locks and asks all programs to release theirs. It returns when all holds are over, or when ctx
// ends. It does not release a lock whose program may still act: that lock stays held until the program releases it or
// ends, or until the lock expires.
func (a *Agent) Drain(ctx context.Context, reason string) {
	a.mu.Lock()
	a.draining = true
	a.mu.Unlock()
	stop(ctx, a.all(), reason)
}

// stop asks the programs that own the given holds to release their locks. It returns when all of these holds are over,
// or when ctx ends.
func stop(ctx context.Context, holds []*hold, reason string) {
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

// newID returns a new id for a hold. The id is a secret of 128 random bits, because knowing it can suffice to release
// the lock.
func newID() string {
	b := make([]byte, 16)
	_, _ = rand.Read(b) // never fails
	return hex.EncodeToString(b)
}

// proofOf returns a hash of a hold's id. The lock table contains this hash instead of the id. By sending the id, a
// program proves that the hold is its own.
func proofOf(id string) string {
	sum := sha256.Sum256([]byte(id))
	return hex.EncodeToString(sum[:8])
}

// holderOf returns the holder's id for the lock table. This id identifies the program, not the agent.
func holderOf(host, id, label string, p peer.Identity) string {
	program := label
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
	return fmt.Sprintf("%s/%d/%.200s/%s", clean(host), p.PID, clean(strings.ToValidUTF8(program, "")), proofOf(id))
}
