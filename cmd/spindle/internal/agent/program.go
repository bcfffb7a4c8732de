package agent

import (
	"context"
	"net/http"
	"sync"

	"github.com/spindle-lock/spindle/internal/table"
)

// programs limits what each program of an agent may use, so that no single program can use up what the others need. One
// program may have at most half of the holds. Programs that the system can't tell apart share the key "". Together,
// they count as one program, which may have all the holds.
type programs struct {
	maxHolds int // of all programs

	mu    sync.Mutex
	holds int
	byKey map[string]*program
}

// program is what the agent knows about a process. It is deleted once the process has no connections and no holds.
type program struct {
	key    string
	conns  int              // its open connections
	begins chan struct{}    // has a value for each of its requests that is beginning
	holds  map[*hold]int    // how many activities each has: the hold itself, its response, its requests to Spanner
	asked  map[string]*hold // by a lock's name: the last hold that asked for the lock; semaphores are left out
}

// atATime limits how many requests may begin at a time. All programs that can't be told apart share this limit. Every
// other program has a limit of its own, which is half as high.
const atATime = 64

// share returns how much the program may have of a total.
func (p *program) share(all int) int {
	if p.key == "" {
		return all
	}
	return (all + 1) / 2
}

// of returns the program with a key, and creates it if necessary. The caller holds ps.mu.
func (ps *programs) of(key string) *program {
	p := ps.byKey[key]
	if p == nil {
		p = &program{key: key, holds: map[*hold]int{}, asked: map[string]*hold{}}
		p.begins = make(chan struct{}, p.share(atATime))
		ps.byKey[key] = p
	}
	return p
}

// forget deletes a program if it has no connections and no holds. The caller holds ps.mu.
func (ps *programs) forget(p *program) {
	if p.conns == 0 && len(p.holds) == 0 {
		delete(ps.byKey, p.key)
	}
}

// connect counts a new connection of a program, and reports whether the program may have that many. It may have one for
// each hold that it may have, and as many again for other requests.
func (ps *programs) connect(key string) (p *program, may bool) {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	p = ps.of(key)
	p.conns++
	return p, p.conns <= 2*p.share(ps.maxHolds)
}

// hangUp stops counting a connection that was closed.
func (ps *programs) hangUp(p *program) {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	p.conns--
	ps.forget(p)
}

// enter counts a new hold until end is called for it. It refuses the hold if there are too many holds, or if the
// program has already asked for one of the hold's locks.
func (ps *programs) enter(h *hold) *problem {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	p := ps.of(h.who.Key)
	defer ps.forget(p)
	if ps.holds >= ps.maxHolds {
		return tooMany("this agent already has %d requests that hold locks or wait for locks, and --max-holds does not allow more", ps.holds)
	}
	if len(p.holds) >= p.share(ps.maxHolds) {
		return tooMany("this program already has %d requests that hold locks or wait for locks, and a single program may have at most half of --max-holds", len(p.holds))
	}
	if bad := p.repeats(h); bad != nil {
		return bad
	}
	ps.count(h)
	return nil
}

// tooMany refuses a request that may succeed later.
func tooMany(format string, args ...any) *problem {
	p := wrong(http.StatusTooManyRequests, "too-many", format, args...)
	p.retryAfter = 1
	return p
}

// repeats refuses a hold if its program already holds one of the locks or waits for it, because the program would then
// wait for itself. Semaphores don't count. A hold that the program has given up doesn't count either, because it ends
// even if the program does nothing more.
func (p *program) repeats(h *hold) *problem {
	if p.key == "" || h.asked.kind == semaphores {
		return nil
	}
	for _, name := range h.asked.names {
		if other := p.asked[name]; other != nil && other.status().phase.wants() && !other.peer.HasClosed() {
			return wrong(http.StatusConflict, "already-held", "this program has already asked for %.64q in another request: the threads of a program must share one hold", name)
		}
	}
	for _, name := range h.asked.names {
		p.asked[name] = h
	}
	return nil
}

// begin counts an activity of a hold until end is called. A hold that is over still counts until its response has been
// sent and its last request to Spanner has been answered.
func (ps *programs) begin(h *hold) {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	ps.count(h)
}

func (ps *programs) count(h *hold) {
	p := ps.of(h.who.Key)
	if p.holds[h]++; p.holds[h] == 1 {
		ps.holds++
	}
}

func (ps *programs) end(h *hold) {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	p := ps.of(h.who.Key)
	if p.holds[h]--; p.holds[h] > 0 {
		return
	}
	ps.holds--
	delete(p.holds, h)
	for _, name := range h.asked.names {
		if p.asked[name] == h {
			delete(p.asked, name)
		}
	}
	ps.forget(p)
}

// counted returns a Store whose requests count as activities of a hold.
func (ps *programs) counted(h *hold, s table.Store) table.Store {
	return table.Via(func(ctx context.Context, _ string, call func(context.Context, table.Store) error) error {
		ps.begin(h)
		defer ps.end(h)
		return call(ctx, s)
	})
}
