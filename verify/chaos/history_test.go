//go:build chaos && unix

package chaos

import (
	"cmp"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spindle-lock/spindle"
)

// record is one line of a history, reported by a process or the nemesis. Times are in nanoseconds of the machine's
// clock.
type record struct {
	At    int64         `json:"at"`
	Lock  string        `json:"lock,omitempty"`
	Who   string        `json:"who,omitempty"`
	Kind  string        `json:"kind"`
	Token spindle.Token `json:"token,omitempty"`

	From int64 `json:"from,omitempty"` // of held: HasLock said true from here
	To   int64 `json:"to,omitempty"`   // to here

	Row       int64         `json:"row,omitempty"` // of a write: of the register
	Value     int64         `json:"value,omitempty"`
	Blind     bool          `json:"blind,omitempty"` // it did not read what it overwrote
	Prev      int64         `json:"prev,omitempty"`  // what it read
	PrevToken spindle.Token `json:"prevToken,omitempty"`
	Count     int64         `json:"count,omitempty"`  // of writes that were not blind, before it
	Commit    int64         `json:"commit,omitempty"` // commit timestamp in microseconds, as tokens are

	Expired bool `json:"expired,omitempty"` // of an event: a term ended as Spanner could not be reached

	Note string `json:"note,omitempty"` // an error, or what the nemesis does
}

const (
	kindStarted = "started"
	kindHeld    = "held"
	kindEvent   = "event"   // of spindle's
	kindStopped = "stopped" // Run is done

	kindSteppedDown = "stepped down" // StepDown has returned
	kindHandover    = "handover"     // RequestHandover has

	kindInvoke   = "invoke" // a write begins
	kindRead     = "read"   // it has read, if it is scripted
	kindAccepted = "accepted"
	kindFenced   = "fenced"
	kindUnknown  = "unknown"
	kindFinal    = "final" // what a row holds after everything

	kindFault = "fault"
	kindMend  = "mend"
	kindKill  = "kill"
	kindExit  = "exit"
)

// term is one period of holding a lock, as far as its process could report it.
type term struct {
	lock, who string
	token     spindle.Token
	from, to  int64
}

// write is one write to the register. A write whose outcome was never reported is unknown: it can take effect at any
// time after its call, or never.
type write struct {
	record
	call, end int64
	outcome   string
}

const never = math.MaxInt64

// history is the recorded history. Every record is written to the file immediately, so that it exists however a test
// ends.
type history struct {
	dir  string
	file *os.File

	mu      sync.Mutex
	out     *json.Encoder
	changed chan struct{} // closed and replaced at each record
	last    map[string]record
	terms   []*term
	open    map[string]*term // by process and lock
	newest  map[string]*term // by lock
	writes  []*write
	values  map[int64]*write
	finals  []record
	lost    []record        // ends of terms, as their processes said
	agents  map[string]bool // processes that are programs of agents
	seldom  map[string]bool // locks that are not always to have a holder
	faults  map[string]int
	given   map[string]int // handovers without an error, by how they were asked for
	started int            // processes
	joined  int            // terms of locks, and of members of groups
}

// newHistory keeps the history of a test that fails or does not end, and prints its location.
func newHistory(tb testing.TB) *history {
	tb.Helper()
	dir := filepath.Join(*keepIn, tb.Name())
	var err error
	if *keepIn == "" {
		dir, err = os.MkdirTemp("", "spindle-chaos-")
	} else {
		err = os.MkdirAll(dir, 0o777)
	}
	require.NoError(tb, err)
	file, err := os.Create(filepath.Join(dir, "history.jsonl"))
	require.NoError(tb, err)
	h := &history{
		dir: dir, file: file, out: json.NewEncoder(file), changed: make(chan struct{}),
		last: map[string]record{}, open: map[string]*term{}, newest: map[string]*term{}, values: map[int64]*write{}, seldom: map[string]bool{}, agents: map[string]bool{}, faults: map[string]int{}, given: map[string]int{},
	}
	tb.Cleanup(func() {
		_ = file.Close()
		switch {
		case tb.Failed():
			tb.Logf("history and logs are kept in %s", dir)
		case *keepIn == "":
			_ = os.RemoveAll(dir)
		}
	})
	return h
}

// addAgent notes that the process is a program of an agent.
func (h *history) addAgent(who string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.agents[who] = true
}

func (h *history) add(r record) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if r.At == 0 {
		r.At = now()
	}
	_ = h.out.Encode(r)
	switch r.Kind {
	case kindStarted:
		h.started++
	case kindHeld:
		h.held(r)
	case kindInvoke:
		w := &write{record: r, call: r.At, end: never, outcome: kindUnknown}
		h.writes, h.values[r.Value] = append(h.writes, w), w
	case kindAccepted, kindFenced:
		w := h.values[r.Value]
		w.record, w.end, w.outcome = r, r.At, r.Kind
	case kindFinal:
		h.finals = append(h.finals, r)
	case kindSteppedDown, kindHandover:
		if r.Note == "" {
			h.given[r.Kind]++
		}
	case kindEvent:
		if r.Note == spindle.Elected.String() {
			h.joined++
		}
		if strings.HasPrefix(r.Note, spindle.Lost.String()) {
			h.lost = append(h.lost, r)
		}
	case kindFault:
		h.faults[r.Note]++
	}
	h.last[r.Who+" "+r.Kind] = r
	close(h.changed)
	h.changed = make(chan struct{})
}

func (h *history) held(r record) {
	of := r.Who + " " + r.Lock
	t := h.open[of]
	if t == nil || t.token != r.Token {
		t = &term{lock: r.Lock, who: r.Who, token: r.Token, from: r.From}
		h.terms, h.open[of] = append(h.terms, t), t
	}
	t.to = r.To
	if n := h.newest[r.Lock]; n == nil || t.token > n.token {
		h.newest[r.Lock] = t
	}
}

// await waits until cond returns true. It calls cond with the history locked.
func (h *history) await(limit time.Duration, cond func() bool) bool {
	timeout := time.After(limit)
	for {
		h.mu.Lock()
		ok, changed := cond(), h.changed
		h.mu.Unlock()
		if ok {
			return true
		}
		select {
		case <-changed:
		case <-timeout:
			return false
		}
	}
}

// lastOf returns the last record of that kind from that process, for use in cond.
func (h *history) lastOf(who, kind string) record { return h.last[who+" "+kind] }

// holder returns the process that most recently reported holding the lock after that time, or nil.
func (h *history) holder(lock string, after int64) *term {
	if t := h.newest[lock]; t != nil && t.to > after {
		return t
	}
	return nil
}

// latest returns the newest known token of the lock.
func (h *history) latest(lock string) spindle.Token {
	h.mu.Lock()
	defer h.mu.Unlock()
	if t := h.newest[lock]; t != nil {
		return t.token
	}
	return 1
}

// accepted returns how many writes to that lock's register were accepted after that time.
func (h *history) accepted(lock string, after int64) int {
	n := 0
	for _, w := range h.writes {
		if w.Lock == lock && w.outcome == kindAccepted && w.call > after {
			n++
		}
	}
	return n
}

// fenced reports whether a write was refused because its token was old. The history must be locked.
func (h *history) fenced() bool {
	return slices.ContainsFunc(h.writes, func(w *write) bool { return w.outcome == kindFenced })
}

// byAgents returns how many terms are of programs of agents. The history must be locked.
func (h *history) byAgents() (n int) {
	for _, t := range h.terms {
		if h.agents[t.who] {
			n++
		}
	}
	return n
}

// mostAtATime returns the maximum number of the locks that each process held at the same time, after that time.
func (h *history) mostAtATime(locks []string, after int64) map[string]int {
	h.mu.Lock()
	defer h.mu.Unlock()
	most := map[string]int{}
	for _, t := range h.terms {
		n := 0
		for _, o := range h.terms { // that it had when t began
			if o.who == t.who && o.to > after && o.from <= t.from && t.from <= o.to && slices.Contains(locks, o.lock) {
				n++
			}
		}
		if t.to > after {
			most[t.who] = max(most[t.who], n)
		}
	}
	return most
}

// between returns the terms of the lock that overlap this interval, in order of time.
func (h *history) between(lock string, from, to int64) []*term {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.DeleteFunc(h.termsOf(lock), func(t *term) bool { return t.to < from || t.from > to })
}

// lostAfter returns the ends of terms after that time.
func (h *history) lostAfter(after int64) []record {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(h.lost), func(r record) bool { return r.At < after })
}

// rows returns the rows of that lock's register that might have been written.
func (h *history) rows(lock string) []int64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	var rows []int64
	for _, w := range h.writesOf(lock) {
		rows = append(rows, w.Row)
	}
	slices.Sort(rows)
	return slices.Compact(rows)
}

func (h *history) locks() []string {
	seen := map[string]bool{}
	for _, t := range h.terms {
		seen[t.lock] = true
	}
	for _, w := range h.writes {
		seen[w.Lock] = true
	}
	var locks []string
	for lock := range seen {
		locks = append(locks, lock)
	}
	slices.Sort(locks)
	return locks
}

// verdict is the result of the checkers for a history.
type verdict struct {
	overlaps    []string
	disorder    []string // of tokens
	notLinear   []string // registers, by lock and row
	undecided   []string // registers too hard for the checker
	miscounted  []string // registers
	longestGap  time.Duration
	gapOf       string
	gapAt       int64
	unknownSeen int // writes of unknown outcome that turned out to have happened
}

// check runs all checkers. No more terms may be added afterwards.
func (h *history) check() verdict {
	h.mu.Lock()
	defer h.mu.Unlock()
	var v verdict
	for _, lock := range h.locks() {
		terms := h.termsOf(lock)
		writes := h.writesOf(lock)
		v.overlaps = append(v.overlaps, overlaps(terms)...)
		v.disorder = append(v.disorder, disorder(terms, writes)...)
		if gap, at := longestGap(terms); gap > v.longestGap && !h.seldom[lock] {
			v.longestGap, v.gapOf, v.gapAt = gap, lock, at
		}
		happened := seen(writes, h.finalsOf(lock))
		for _, w := range writes {
			if w.outcome == kindUnknown && happened[w.Value] {
				v.unknownSeen++
			}
		}
		v.miscounted = append(v.miscounted, miscounted(writes, h.finalsOf(lock), happened)...)
		for row, ops := range operations(writes, h.finalsOf(lock)) {
			name := fmt.Sprintf("%s-%d", lock, row)
			switch linearizable(ops, filepath.Join(h.dir, "register-"+name+".html")) {
			case yes:
			case no:
				v.notLinear = append(v.notLinear, name)
			default:
				v.undecided = append(v.undecided, name)
			}
		}
	}
	return v
}

// require fails the test for each violation.
func (v verdict) require(tb testing.TB) {
	tb.Helper()
	assert.Empty(tb, v.overlaps, "two holders at a time")
	assert.Empty(tb, v.disorder, "writes out of the order of their tokens")
	assert.Empty(tb, v.notLinear, "registers that are not linearizable: see the HTML beside the history")
	assert.Empty(tb, v.miscounted, "writes that are lost or doubled")
	assert.Empty(tb, v.undecided, "registers whose check took too long")
}

// termsOf returns the terms of a lock in order of time.
func (h *history) termsOf(lock string) []*term {
	var ts []*term
	for _, t := range h.terms {
		if t.lock == lock {
			ts = append(ts, t)
		}
	}
	slices.SortFunc(ts, func(a, b *term) int { return cmp.Compare(a.from, b.from) })
	return ts
}

func (h *history) writesOf(lock string) []*write {
	var ws []*write
	for _, w := range h.writes {
		if w.Lock == lock {
			ws = append(ws, w)
		}
	}
	return ws
}

func (h *history) finalsOf(lock string) []record {
	var rs []record
	for _, r := range h.finals {
		if r.Lock == lock {
			rs = append(rs, r)
		}
	}
	return rs
}

// overlaps finds terms of one lock, sorted by their start, that overlap in time. The intervals lie within the time
// during which the processes believed that they held the lock, so every overlap is real.
func overlaps(terms []*term) (found []string) {
	var longest *term // of the earlier ones, the one that lasted longest
	for _, t := range terms {
		if longest != nil && t.from < longest.to {
			found = append(found, fmt.Sprintf("lock %s: %s under token %v from %d to %d, %s under token %v from %d to %d",
				t.lock, longest.who, longest.token, longest.from, longest.to, t.who, t.token, t.from, t.to))
		}
		if longest == nil || t.to > longest.to {
			longest = t
		}
	}
	return found
}

// miscounted finds registers that were not incremented exactly once by each write that read them. For writes with an
// unknown outcome, it only knows that some of them have been applied.
func miscounted(writes []*write, finals []record, happened map[int64]bool) (found []string) {
	least, most := map[int64]int64{}, map[int64]int64{}
	for _, w := range writes {
		if w.Blind || w.outcome == kindFenced {
			continue
		}
		most[w.Row]++
		if w.outcome == kindAccepted || happened[w.Value] {
			least[w.Row]++
		}
	}
	for _, r := range finals {
		if r.Count < least[r.Row] || r.Count > most[r.Row] {
			found = append(found, fmt.Sprintf("lock %s: row %d counts %d, and was written %d times, or %d with all of unknown outcome", r.Lock, r.Row, r.Count, least[r.Row], most[r.Row]))
		}
	}
	return found
}

// longestGap returns the longest time without a holder, and its beginning. Terms are sorted by their start.
func longestGap(terms []*term) (gap time.Duration, at int64) {
	var until int64 // the end of the earlier ones
	for i, t := range terms {
		if d := time.Duration(t.from - until); i > 0 && d > gap {
			gap, at = d, until
		}
		until = max(until, t.to)
	}
	return gap, at
}

// disorder finds violations of the order of tokens: a term whose token is not larger than the token of an earlier term,
// a write that was accepted after a newer token had been committed, and a write that overwrote a value written under a
// newer token.
func disorder(terms []*term, writes []*write) (found []string) {
	var tokens []spindle.Token
	for i, t := range terms {
		tokens = append(tokens, t.token)
		if i > 0 && t.token <= terms[i-1].token {
			found = append(found, fmt.Sprintf("lock %s: token %v of %s came after token %v of %s", t.lock, t.token, t.who, terms[i-1].token, terms[i-1].who))
		}
	}
	for _, w := range writes {
		tokens = append(tokens, w.Token)
	}
	slices.Sort(tokens)
	tokens = slices.Compact(tokens)
	for _, w := range writes {
		if w.outcome != kindAccepted {
			continue
		}
		i, _ := slices.BinarySearch(tokens, w.Token+1)
		if i < len(tokens) && w.Commit >= int64(tokens[i]) {
			found = append(found, fmt.Sprintf("lock %s: %s wrote %d under token %v at %d, after token %v", w.Lock, w.Who, w.Value, w.Token, w.Commit, tokens[i]))
		}
		if w.PrevToken > w.Token {
			found = append(found, fmt.Sprintf("lock %s: %s wrote %d under token %v over one of token %v", w.Lock, w.Who, w.Value, w.Token, w.PrevToken))
		}
	}
	return found
}
