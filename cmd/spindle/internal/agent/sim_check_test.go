package agent

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spindle-lock/spindle/internal/table"
)

// The invariants:
//
//	one acts           no two programs act under one name at the same time
//	tokens grow        no program acts under a token after another program has acted under a larger one, and no claim has
//	                   a smaller token than an earlier one
//	fence              no fenced write commits after a claim with a larger token
//	free at once       the lock of a program that has ended is free without waiting for its lease, unless a fault delays
//	                   its agent
//	expires            once a program has lost its lock, or has closed its connection for longer than the doubt, no heartbeats
//	                   are sent, unless a fault delays its agent
//	once               no program acts for a key after another program has recorded the key as done
//	turns              after the last fault, every program has its turn; in elections and semaphores, some program has
//	lines              come in an order that docs/agent.md allows
//	nothing left over  when all programs have ended
type observed struct {
	tenures    []*tenure        // that may act
	acted      map[string]int64 // by name, the largest token under which a program has acted
	turns      []int            // by slot
	key        int              // for once: the number of the next key
	done       map[string]bool  // keys
	silent     map[string]bool  // lease rows that must get no more heartbeats
	violations []violation
	trace      []string
}

type violation struct{ invariant, text string }

func observe(slots int) observed {
	return observed{acted: map[string]int64{}, turns: make([]int, slots), done: map[string]bool{}, silent: map[string]bool{}}
}

func (w *world) violate(invariant, format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	w.tracef("VIOLATION", "of %q: %s", invariant, text)
	if !slices.ContainsFunc(w.violations, func(v violation) bool { return v.invariant == invariant }) {
		w.violations = append(w.violations, violation{invariant, text})
	}
}

// begins records a program that holds a lock. w.mu is held.
func (w *world) begins(t *tenure) {
	w.tenures = append(w.tenures, t)
	w.turns[t.p.slot]++
	w.counts["terms"]++
}

// check checks which programs act now. It is called whenever a program might begin or continue to act. w.mu is held.
func (w *world) check() {
	w.tenures = slices.DeleteFunc(w.tenures, func(t *tenure) bool { return !t.working || t.p.dead })
	acting := map[string]*tenure{}
	for _, t := range w.tenures {
		if !t.acts() {
			continue
		}
		for _, name := range t.names {
			if o := acting[name]; o != nil {
				w.violate("one acts", "%s acts under %s and token %d, and so does %s under %d", t.p.name, name, t.token, o.p.name, o.token)
			}
			acting[name] = t
			if t.token < w.acted[name] {
				w.violate("tokens grow", "%s acts under %s and token %d, after a program that acted under %d", t.p.name, name, t.token, w.acted[name])
			}
			w.acted[name] = max(w.acted[name], t.token)
		}
		if w.done[t.key] {
			w.violate("once", "%s acts for the key %s, which is done", t.p.name, t.key)
		}
	}
}

// released records a release that was acknowledged.
func (w *world) released(t *tenure, path string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if strings.HasSuffix(path, "/done") {
		w.done[t.key] = true
		w.completed(t.key)
	}
}

// completed makes the programs go on to the next key. w.mu is held.
func (w *world) completed(key string) {
	if n, err := strconv.Atoi(key); err == nil && n == w.key {
		w.key++
	}
}

// expectRelease checks that the lock of a program that ends is released, if its agent lives and no fault delays it.
// The argument after says when both signs of the end are visible. A lock that may expire before that is not checked. w.mu
// is held.
func (w *world) expectRelease(t *tenure, after time.Duration) {
	ms := after.Milliseconds() + 1
	if !t.working || t.socket.agent.dead || !t.p.clocks().plus(reading{ms, ms, ms}, 1).before(t.until) {
		return
	}
	h, since := t.p.host, time.Now()
	w.after(after+8*w.plan.latency+30*time.Millisecond, func() {
		if t.socket.agent.dead || !h.disturbed.Before(since) {
			return
		}
		w.counts["locks of ended programs that had to be free at once"]++
		rows := w.store.Rows()
		for _, name := range t.names {
			if _, still := rows[table.LeaseKey(name, table.Token(t.token))]; still {
				w.violate("free at once", "%s has ended, but %s is still held under %d", t.p.name, name, t.token)
			}
		}
	})
}

// documentedDoubt is how long the agent may wait for the second sign that a program has ended (R3 in docs/agent.md).
const documentedDoubt = 100 * time.Millisecond

// expectSilence checks that the agent sends no more heartbeats for a hold after the given time, so that the lock
// expires. w.mu is held.
func (w *world) expectSilence(t *tenure, after time.Duration) {
	h, since := t.p.host, time.Now()
	w.after(after+8*w.plan.latency+30*time.Millisecond, func() {
		if h.disturbed.Before(since) {
			for _, name := range t.names {
				w.silent[table.LeaseKey(name, table.Token(t.token))] = true
			}
		}
	})
}

// commits checks a commit.
func (w *world) commits(step string, at time.Time, before, after map[string]table.Row) {
	w.committed = at
	for name, row := range after {
		old, existed := before[name]
		if old == row {
			continue
		}
		if lock, ok := strings.CutPrefix(name, registerOf("")); ok {
			token, _ := strconv.ParseInt(row.Writer, 10, 64)
			w.counts["fenced writes"]++
			if newest := after[lock].Token; !newest.IsZero() && int64(table.TokenAt(newest)) > token {
				w.violate("fence", "a fenced write under %d commits after the claim of %s under %d", token, lock, table.TokenAt(newest))
			}
			continue
		}
		if key := table.LeaseKey(name, table.TokenAt(row.Token)); step == "heartbeat" && w.silent[key] {
			w.violate("expires", "a heartbeat under %s, whose program has lost the lock", key)
		}
		if existed && !row.Token.IsZero() && row.Token.Before(old.Token) {
			w.violate("tokens grow", "%s: the token of %s goes from %v to %v", step, name, old.Token, row.Token)
		}
	}
}
