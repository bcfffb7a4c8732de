package simulation

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spindle-lock/spindle"
	"github.com/spindle-lock/spindle/internal/table"
	"github.com/spindle-lock/spindle/internal/testkit/memstore"
)

const (
	lockName    = "mylock"
	driverSteps = 120 // of the driver
)

// Rows of other locks, which no step may change.
var otherRows = []string{"mylock_b", "mylock_12", "mylock_0", "mylock_0946684", "mylock_b_1234567890123456", "mylock_12345678901234567"}

// fleet determines the processes of a world and the checks on them. A world itself is a fleet of candidates for a lock.
type fleet interface {
	draw(d *dice) plan
	launch(p *process, id string, d *dice) (run func(context.Context, ...chan<- error) error)
	check()
	checkCommit(step string, at time.Time, before, after map[string]table.Row)
	breakOne(kind string, d *dice)
	settle()
	checkRest(rows map[string]table.Row)
}

// world is one run.
type world struct {
	fleet   fleet
	seed    uint64
	plan    plan
	tracing bool
	begun   time.Time
	store   memstore.Store
	running sync.WaitGroup // processes and their leader functions

	mu       sync.Mutex // for everything below, for the processes, and held while a request lands
	slots    []*process
	starting []bool // by slot: a process is to start
	started  int
	poison   string    // the partition that nobody can claim while there are faults
	sore     []string  // steps that are slow for now
	outage   time.Time // until when nobody reaches the table
	noStart  time.Time // until when no process may start
	quietAt  time.Time // when the last fault ends
	still    bool      // no new faults
	closed   bool      // no new processes

	actor      *process               // whose request is landing; nil: the operator's
	sent       time.Time              // when that was
	committed  time.Time              // its commit timestamp
	newest     table.Token            // of all claims
	claimants  map[table.Token]string // their ids
	tokens     []table.Token          // of all confirmed claims
	handovers  handovers
	gaps       int           // that were measured
	widest     float64       // of them, as a part of what is allowed
	largest    spindle.Token // of all terms
	violations []violation
	trace      []line
	terms      int
	moves      int // of partitions
	commits    int
	lasted     time.Duration
	faults     map[string]int
}

type violation struct{ invariant, text string }

type line struct {
	at   time.Duration
	text string
}

func (w *world) run() {
	w.begin()
	for range driverSteps {
		w.drive()
	}
	w.fleet.settle()
	w.finish()
	w.lasted = time.Since(w.begun)
}

func (w *world) begin() {
	w.begun = time.Now()
	d := seeded(w.seed)
	w.plan = w.fleet.draw(&d)
	w.faults = map[string]int{}
	w.handovers, w.claimants = newHandovers(), map[table.Token]string{}
	w.slots, w.starting = make([]*process, len(w.plan.leases)), make([]bool, len(w.plan.leases))
	w.store.OnCommit = w.fleet.checkCommit
	w.store.Idle = w.plan.idle
	w.store.Ahead = func() time.Duration {
		d := w.dice(w.actor, "ahead")
		return d.between(0, w.plan.uncertainty+1)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, name := range append(otherRows, registerOf(lockName)) {
		w.operate(table.Write{Kind: table.Insert, Name: name, Set: []table.Cell{{Column: table.ColWriter, Value: "somebody"}}})
	}
	w.tracef(nil, "plan %+v", w.plan)
	for slot := range w.slots {
		w.startIn(slot, d.spread(10*time.Microsecond, w.plan.longest))
	}
}

// dice returns the random numbers of a process at this instant, for one purpose.
func (w *world) dice(p *process, purpose string, more ...uint64) dice {
	var id uint64
	if p != nil {
		id = p.id
	}
	d := seeded(w.seed, id, uint64(time.Since(w.begun)), hashOf(purpose))
	for _, m := range more {
		d = seeded(uint64(d), m)
	}
	return d
}

func hashOf(s string) uint64 {
	h := uint64(14695981039346656037) // FNV-1a
	for i := range len(s) {
		h = (h ^ uint64(s[i])) * 1099511628211
	}
	return h
}

// faulty reports whether faults can begin. calm is the opposite, for callers that do not hold w.mu.
func (w *world) faulty() bool { return !w.still }

func (w *world) calm() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.still
}

// fault counts a fault that will have ended after d.
func (w *world) fault(kind string, d time.Duration) {
	w.faults[kind]++
	w.quiet(d)
}

func (w *world) quiet(d time.Duration) {
	if at := time.Now().Add(d); at.After(w.quietAt) {
		w.quietAt = at
	}
}

func (w *world) note(kind string, d time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.fault(kind, d)
}

// soon checks the invariants once all events of this instant have happened.
func (w *world) soon() {
	time.AfterFunc(1, func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.fleet.check()
	})
}

func (w *world) tracef(p *process, format string, args ...any) {
	if !w.tracing {
		return
	}
	who := "-"
	if p != nil {
		who = p.name
	}
	w.trace = append(w.trace, line{time.Since(w.begun), fmt.Sprintf("%-4s ", who) + fmt.Sprintf(format, args...)})
}

func (w *world) violate(invariant, format string, args ...any) {
	text := fmt.Sprintf("at %.9fs: ", time.Since(w.begun).Seconds()) + fmt.Sprintf(format, args...)
	w.tracef(nil, "VIOLATION of %q: %s", invariant, text)
	if !slices.ContainsFunc(w.violations, func(v violation) bool { return v.invariant == invariant }) {
		w.violations = append(w.violations, violation{invariant, text})
	}
}

// history is the trace. Lines of the same instant come from goroutines that ran concurrently.
func (w *world) history() string {
	slices.SortStableFunc(w.trace, func(a, b line) int {
		if a.at != b.at {
			return int(a.at - b.at)
		}
		return strings.Compare(a.text, b.text)
	})
	var b strings.Builder
	for _, l := range w.trace {
		fmt.Fprintf(&b, "%16.9fs %s\n", l.at.Seconds(), l.text)
	}
	return b.String()
}

// The driver's faults.
var drivenFaults = []string{"process stopped", "process crashed", "graceful stop", "network cut", "outage", "wall clock set", "rows deleted", "holder hunted", "row pruned"}

// drive lets some time pass, and then injects one fault.
func (w *world) drive() {
	d := w.dice(nil, "drive")
	time.Sleep(d.spread(w.plan.longest/20, 2*w.plan.longest))
	w.mu.Lock()
	defer w.mu.Unlock()
	d = w.dice(nil, "driver")
	if w.plan.moody {
		w.sore = []string{pick(&d, w.plan.steps...), pick(&d, w.plan.steps...)}
	}
	if kind := weighed(&d, w.plan.driver); kind != "" {
		w.fleet.breakOne(kind, &d)
	}
	w.soon()
}

func weighed(d *dice, weights map[string]int) string {
	kinds := slices.Concat(drivenFaults, handoverFaults, groupFaults, notifyFaults)
	sum := 0
	for _, kind := range kinds {
		sum += weights[kind]
	}
	if sum == 0 {
		return ""
	}
	n := d.below(sum)
	for _, kind := range kinds {
		if n -= weights[kind]; n < 0 {
			return kind
		}
	}
	return ""
}

func (w *world) breakOne(kind string, d *dice) {
	p := w.victim(d)
	length := d.spread(w.plan.longest/20, 3*w.plan.longest)
	switch kind {
	case "outage":
		w.outage = time.Now().Add(length)
		w.fault(kind, length)
		w.tracef(nil, "outage for %v", length)
		return
	case "rows deleted":
		w.operator(d)
		return
	case "row pruned":
		w.prune()
		return
	case "request":
		w.request(d)
		return
	}
	if p == nil {
		return
	}
	switch kind {
	case "process stopped":
		w.pause(p, d, "anywhere")
	case "process crashed":
		w.crash(p, d)
	case "graceful stop":
		if !p.paused {
			w.end(p, "graceful stop")
			w.restart(p.slot, d)
		}
	case "network cut":
		w.cutOff(p, d, length)
	case "wall clock set":
		w.setClock(p, d)
	case "holder hunted": // a holder that is cut off and does not notice
		w.cutOff(p, d, length)
		w.pause(p, d, "anywhere")
	case "step down":
		w.stepDownSomehow(p, d)
	}
}

// prune deletes the lock row if it is released, whatever its age.
func (w *world) prune() {
	if s := stateOf(w.store.Rows()); s.kind() == "released" && len(s.leases) == 0 {
		w.fault("row pruned", w.plan.longest) // whoever saw the holder and not the release waits a lease
		w.operate(table.Write{Kind: table.Delete, Name: lockName})
	}
}

// victim returns a process, preferably the holder.
func (w *world) victim(d *dice) *process {
	var live []*process
	for _, p := range w.slots {
		if p != nil && !p.dead && !p.ended {
			live = append(live, p)
		}
	}
	if len(live) == 0 {
		return nil
	}
	if d.chance(0.5) {
		for _, p := range live {
			if p.held != 0 {
				return p
			}
		}
	}
	return live[d.below(len(live))]
}

// pause stops a process, as SIGSTOP or a garbage collection would, or suspends its machine, whose monotonic clock then
// stops.
func (w *world) pause(p *process, d *dice, where string) {
	if p.paused || p.dead || p.ended {
		return
	}
	length := d.spread(p.lease()/20, 3*w.plan.longest)
	p.armsLate = where == clockRead
	p.paused, p.suspended = true, w.plan.suspends && d.chance(0.6)
	p.pausedAt, p.resumes = time.Now(), time.Now().Add(length)
	kind := "process stopped"
	if p.suspended {
		kind = "machine suspended"
	}
	w.fault(kind, length+time.Millisecond)
	w.tracef(p, "%s for %v at %s", kind, length, where)
	time.AfterFunc(length, func() { w.resume(p, length) })
}

// resume calls HasLock before any other code of the process runs.
func (w *world) resume(p *process, length time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	p.paused = false
	p.resumed = time.Now()
	if p.suspended {
		p.stood.Add(int64(length))
		p.jumped = time.Now()
		w.quiet(length + w.plan.longest) // its timers that were under way
	}
	if p.armsLate {
		p.jumped = time.Now()
	}
	w.tracef(p, "goes on")
	w.fleet.check()
}

// crash ends a process, which then sends no further requests. Requests that it has already sent can still be applied.
func (w *world) crash(p *process, d *dice) {
	w.fault("process crashed", 0)
	w.tracef(p, "crashes")
	p.dead = true
	p.held = 0
	close(p.died)
	p.stop()
	w.restart(p.slot, d)
}

// end tells a process to stop.
func (w *world) end(p *process, kind string) {
	if !p.stoppedAt.IsZero() {
		return
	}
	w.faults[kind]++
	w.tracef(p, "is told to stop")
	p.stoppedAt = time.Now()
	p.stop()
}

func (w *world) restart(slot int, d *dice) {
	after := d.spread(w.plan.longest/50, 2*w.plan.longest)
	w.quiet(after)
	w.startIn(slot, after)
}

// startIn starts a process in a slot, at most one at a time.
func (w *world) startIn(slot int, d time.Duration) {
	if !w.starting[slot] {
		w.starting[slot] = true
		w.tryStart(slot, d)
	}
}

// tryStart starts a process in a slot as soon as its predecessor and its work have ended, which is the contract of
// WithReclaim.
func (w *world) tryStart(slot int, d time.Duration) {
	time.AfterFunc(d, func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		if w.closed {
			return
		}
		p := w.slots[slot]
		busy := p != nil && !p.dead && (!p.ended || p.working > 0)
		if wait := time.Until(w.noStart); wait > 0 || busy {
			d := w.dice(nil, "start", uint64(slot))
			w.tryStart(slot, max(wait, 0)+d.between(1, w.plan.longest/20))
			w.quiet(max(wait, 0) + w.plan.longest/20)
			return
		}
		w.starting[slot] = false
		w.start(slot)
	})
}

func (w *world) cutOff(p *process, d *dice, length time.Duration) {
	until := time.Now().Add(length)
	if out := d.chance(0.6); out {
		p.cutOut = until
	} else {
		p.cutBack = until
	}
	w.fault("network cut", length)
	w.tracef(p, "network is cut for %v", length)
}

func (w *world) setClock(p *process, d *dice) {
	by := d.spread(time.Millisecond, 5*time.Hour)
	if !w.plan.suspends && d.chance(0.6) {
		by = -by
	}
	p.step.Add(int64(by))
	p.jumped = time.Now()
	w.fault("wall clock set", w.plan.longest) // by then the holder has noticed
	w.tracef(p, "wall clock is set by %v", by)
}

// operator deletes rows by hand, within the limits of the lock's guarantees (see candidate.go).
//
//   - The lock row of a term whose lease row exists, or of a lock without a holder: always safe. The remaining lease row
//     shows every candidate how long to wait.
//   - Deletions that leave a lock row without the lease row of its term: only if all leases are the same, because
//     candidates then use their own.
//   - Deletions that leave neither row: only if all leases are the same, every running process has seen that term, and no
//     process starts until the term has ended. Otherwise it would be an operator's override, and the operator must know
//     that the holder has exited.
func (w *world) operator(d *dice) {
	s := stateOf(w.store.Rows())
	var doomed []string
	lock, orphan := s.exists, len(s.leases) > 0
	what := pick(d, "lock row", "lock row", "lock row", "lease row", "both")
	if what != "lease row" && lock {
		doomed = append(doomed, lockName)
		lock = false
	}
	if what != "lock row" && orphan {
		for t := range s.leases {
			doomed = append(doomed, table.LeaseKey(lockName, t))
		}
		orphan = false
	}
	live := s.kind() == "held" || s.kind() == "absent" // a holder there may be
	switch {
	case len(doomed) == 0, w.still:
		return
	case live && !orphan && slices.Min(w.plan.leases) != w.plan.longest:
		return
	case live && !orphan && !lock && !w.allSaw(s.token):
		return
	case live && !orphan && !lock:
		w.noStart = time.Now().Add(w.plan.longest + w.plan.longest/10)
	}
	w.fault("operator deleted "+what, w.plan.longest) // by then the holder has noticed
	var writes []table.Write
	for _, name := range doomed {
		writes = append(writes, table.Write{Kind: table.Delete, Name: name})
	}
	w.tracef(nil, "operator deletes %v", doomed)
	w.operate(writes...)
	w.strike(d)
	if d.chance(0.6) { // and again, perhaps in the middle of an election
		w.operatorIn(d.spread(time.Millisecond, 2*w.plan.longest))
	}
}

// haunt makes the operator attack a term that has just begun, preferably while some process still believes that there
// is no row.
func (w *world) haunt() {
	d := w.dice(w.actor, "confirmed")
	if w.still || w.plan.driver["rows deleted"] == 0 {
		return
	}
	for _, p := range w.slots {
		if p != nil && p.looking && !p.dead && d.chance(0.5) {
			w.cutOff(w.actor, &d, 2*w.plan.longest)
			w.operatorIn(d.spread(time.Millisecond, w.plan.longest/3))
			return
		}
	}
	if d.chance(0.2) {
		w.operatorIn(d.spread(time.Millisecond, w.plan.longest))
	}
}

func (w *world) operatorIn(after time.Duration) {
	w.quiet(after)
	time.AfterFunc(after, func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		d := w.dice(nil, "operator again")
		w.operator(&d)
	})
}

// strike makes a deletion more harmful: the holder does not learn of it, and candidates learn of it late.
func (w *world) strike(d *dice) {
	for _, p := range w.slots {
		if p != nil && p.held != 0 && d.chance(0.6) {
			w.cutOff(p, d, d.spread(w.plan.longest/5, 2*w.plan.longest))
		}
	}
	if d.chance(0.5) {
		w.sore = []string{"observe", "claim's read"}
	}
}

// allSaw reports whether that term is the last one that every process other than the holder saw.
func (w *world) allSaw(token table.Token) bool {
	for _, p := range w.slots {
		if p == nil || p.dead || p.ended || p.held == spindle.Token(token) && token != 0 {
			continue
		}
		if token == 0 || p.seen != token {
			return false
		}
	}
	return true
}

// disturb sends heartbeats of other locks in the middle of a transaction. w.mu is held.
func (w *world) disturb() {
	if !w.plan.busy {
		return
	}
	actor := w.actor
	for _, name := range otherRows {
		w.operate(table.Write{Kind: table.Update, Name: name, Set: []table.Cell{{Column: table.ColHeartbeat, Value: table.Now}}})
	}
	w.actor = actor
}

func (w *world) operate(writes ...table.Write) {
	w.actor = nil
	if err := w.store.Commit(context.Background(), "operator", writes); err != nil {
		panic(err)
	}
	w.soon()
}

// settle ends the faults. From then on, there must be a holder within two leases, and it must stay.
func (w *world) settle() {
	w.mu.Lock()
	w.still = true
	w.tracef(nil, "no new faults")
	w.mu.Unlock()
	w.awaitQuiet()
	w.mu.Lock()
	w.tracef(nil, "quiet")
	bound := 2*w.plan.longest + w.plan.lockDelay + 3*time.Second // an attempt takes a second at least
	if slices.Contains(w.plan.keepOnReturn, false) {
		bound += 3 * w.plan.longest // every process may rest, because its leader function has returned
	}
	if w.plan.sick {
		bound *= 6 // the sick have their turns too
	}
	w.mu.Unlock()
	start := time.Now()
	time.Sleep(w.plan.longest) // a claim that a fault delayed may begin a term with hardly any lease left
	var held spindle.Token
	for held == 0 && time.Since(start) < bound {
		time.Sleep(w.plan.longest / 20)
		held = w.holder()
	}
	if held == 0 {
		w.complain("a holder again", "nobody holds the lock %v after the faults ended", time.Since(start))
		return
	}
	if held = w.stays(held, 3*w.plan.longest, bound); w.plan.handovers && held != 0 {
		w.practise(held, bound)
	}
}

// stays lets time pass, and returns the token that is then held: the same token or, if its term was given up, another
// one that was held within the bound for that. 0 means neither.
func (w *world) stays(held spindle.Token, length, bound time.Duration) spindle.Token {
	last := time.Now()
	for start := last; time.Since(start) < length || last.Before(time.Now()); {
		time.Sleep(w.plan.longest / 10)
		now := w.holder()
		switch {
		case now != held && !w.gaveUp(held):
			w.complain("a holder again", "%v was lost to %v with nothing wrong", held, now)
			return 0
		case now != 0:
			held, last = now, time.Now()
		case time.Since(last) > bound:
			w.complain("a holder again", "nobody holds the lock %v after it was given up", time.Since(last))
			return 0
		}
	}
	return held
}

func (w *world) awaitQuiet() {
	for {
		w.mu.Lock()
		left := time.Until(w.quietAt)
		w.mu.Unlock()
		if left < 0 {
			return
		}
		time.Sleep(left + 1)
	}
}

func (w *world) complain(invariant, format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.violate(invariant, format, args...)
}

// holder checks the invariants, and returns the token that a process holds, or 0.
func (w *world) holder() spindle.Token {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.check()
	for _, p := range w.slots {
		if p != nil && p.held != 0 {
			return p.held
		}
	}
	return 0
}

// finish stops all processes, and checks the remaining rows.
func (w *world) finish() {
	w.mu.Lock()
	w.closed = true
	for _, p := range w.slots {
		if p != nil && !p.dead && !p.ended {
			w.end(p, "graceful stop")
		}
	}
	w.mu.Unlock()
	ended := make(chan struct{})
	go func() { w.running.Wait(); close(ended) }()
	patience := time.NewTimer(3*w.plan.longest + 10*time.Second)
	defer patience.Stop()
	select {
	case <-ended:
	case <-patience.C:
		w.complain("stop ends", "a process or its work did not end")
		w.abandon()
		<-ended
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.broken() {
		w.fleet.checkRest(w.store.Rows())
	}
}

func (w *world) checkRest(rows map[string]table.Row) {
	if s := stateOf(rows); s.kind() != "released" || len(s.leases) > 0 {
		w.violate("nothing left over", "the rows at the end are %v", s)
	}
}

// abandon crashes processes that do not end.
func (w *world) abandon() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, p := range w.slots {
		if p != nil && !p.dead && !p.ended {
			p.dead = true
			close(p.died)
			p.stop()
		}
	}
}

func (w *world) broken() bool { return len(w.violations) > 0 }
