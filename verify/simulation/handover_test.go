package simulation

import (
	"context"
	"errors"
	"time"

	"github.com/spindle-lock/spindle"
	"github.com/spindle-lock/spindle/internal/table"
)

// Driver actions for handovers, which occur only in some seeds (see plan).
var handoverFaults = []string{"step down", "request"}

// handovers records the terms that are to be given up, by token.
type handovers struct {
	stepDowns map[table.Token]time.Time // when StepDown was first called
	requests  map[table.Token]time.Time // when the first request landed
	announced map[table.Token]time.Time // when the announcement first landed
	given     map[table.Token]bool      // their holders say that they gave them up
	gone      *goneTerm                 // the one that has just ended with nothing wrong and a follower there
}

type goneTerm struct {
	token table.Token
	at    time.Time
}

func newHandovers() handovers {
	return handovers{map[table.Token]time.Time{}, map[table.Token]time.Time{}, map[table.Token]time.Time{}, map[table.Token]bool{}, nil}
}

// first records the first time that something happened.
func first(of map[table.Token]time.Time, t table.Token) {
	if of[t].IsZero() {
		of[t] = time.Now()
	}
}

// asked returns the time since which the holder of a term has a reason to hand over, or zero.
func (w *world) asked(p *process, t table.Token) time.Time {
	reasons := []time.Time{w.handovers.stepDowns[t]}
	if p.config.Handover {
		reasons = append(reasons, w.handovers.requests[t], p.stoppedAt)
	}
	var since time.Time
	for _, r := range reasons {
		if !r.IsZero() && (since.IsZero() || r.Before(since)) {
			since = r
		}
	}
	return since
}

func (w *world) gaveUp(t spindle.Token) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.handovers.given[table.Token(t)]
}

// stepDownSomehow calls StepDown with enough time, with too little, twice, or while Run ends.
func (w *world) stepDownSomehow(p *process, d *dice) {
	patience := 10 * w.plan.longest
	how := pick(d, "patiently", "patiently", "briefly", "twice", "and stops")
	if how == "briefly" {
		patience = d.spread(time.Millisecond, p.lease())
	}
	w.faults["step down"]++
	w.tracef(p, "is to step down %s", how)
	w.stepDown(p, d.spread(time.Microsecond, time.Millisecond), patience)
	after := d.spread(time.Millisecond, p.lease())
	switch how {
	case "twice":
		w.stepDown(p, after, 10*w.plan.longest)
	case "and stops":
		w.later(after, func() {
			if !p.paused && !p.dead && !p.ended && !w.still {
				w.end(p, "graceful stop")
				d := w.dice(p, "stops")
				w.restart(p.slot, &d)
			}
		})
	}
}

// later is a delayed driver action. w.mu is held.
func (w *world) later(after time.Duration, f func()) {
	w.quiet(after)
	time.AfterFunc(after, func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		f()
	})
}

func (w *world) stepDown(p *process, after, patience time.Duration) {
	if !w.still {
		w.quiet(after)
	}
	w.running.Add(1)
	time.AfterFunc(after, func() {
		defer w.running.Done()
		p.gate("step down")
		token := w.noteStepDown(p)
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		err := p.lock.StepDown(ctx)
		w.mu.Lock()
		defer w.mu.Unlock()
		if p.dead {
			return
		}
		w.tracef(p, "step down of %d has returned: %t", token, err == nil)
		if err == nil && w.stands(token) {
			w.violate("step down", "%s said that %d is released, and it is not", p.name, token)
		}
	})
}

// stands reports whether a term continues, judging by the rows.
func (w *world) stands(t table.Token) bool {
	s := stateOf(w.store.Rows())
	return s.kind() == "held" && s.token == t && s.leased(t)
}

func (w *world) noteStepDown(p *process) table.Token {
	w.mu.Lock()
	defer w.mu.Unlock()
	_, token := p.ask()
	if token != 0 {
		first(w.handovers.stepDowns, table.Token(token))
	}
	return table.Token(token)
}

// request asks the current holder, or the holder of a term that ended long ago, to hand over.
func (w *world) request(d *dice) {
	p := w.victim(d)
	if p == nil || len(w.tokens) == 0 {
		return
	}
	w.faults["request"]++
	token := w.tokens[len(w.tokens)-1]
	if d.chance(0.3) {
		token = pick(d, w.tokens...)
	}
	kind := pick(d, table.ByOperator, table.ByPreference)
	w.running.Add(1)
	time.AfterFunc(d.spread(time.Microsecond, time.Millisecond), func() {
		defer w.running.Done()
		ctx, cancel := context.WithTimeout(context.Background(), p.lease())
		defer cancel()
		_ = table.Table{Store: requester{link{p}}}.Ask(ctx, kind, lockName, token) // what fails is asked for again, or not
	})
}

// requester is the link of processes that send requests but are not candidates.
type requester struct{ link }

func (r requester) Commit(ctx context.Context, _ string, writes []table.Write) error {
	return r.link.Commit(ctx, "request", writes)
}

// checkAnnouncement is called within the announcement's commit.
func (w *world) checkAnnouncement(t table.Token) {
	p := w.actor
	if w.asked(p, t).IsZero() {
		w.violate("asked for", "%s announced the end of %d, and nobody wanted that", p.name, t)
	}
	if !w.handovers.announced[t].IsZero() {
		return
	}
	first(w.handovers.announced, t)
	d := w.dice(p, "announced")
	if w.still || !w.plan.hunts || !d.chance(0.5) {
		return
	}
	w.later(d.spread(time.Millisecond, p.lease()), func() { w.hunt(p) })
}

// hunt does something to a process that is leaving.
func (w *world) hunt(p *process) {
	d := w.dice(p, "hunted")
	if w.still || p.dead || p.ended {
		return
	}
	w.faults["leaving holder hunted"]++
	switch d.below(5) {
	case 0:
		w.crash(p, &d)
	case 1:
		w.pause(p, &d, "leaving")
	case 2:
		w.cutOff(p, &d, d.spread(p.lease()/20, 2*p.lease()))
	case 3:
		w.cutOff(p, &d, d.spread(p.lease()/20, 2*p.lease()))
		w.pause(p, &d, "leaving")
	case 4:
		w.stepDown(p, 1, d.spread(time.Millisecond, p.lease()))
	}
}

// checkRequest is called within the request's commit.
func (w *world) checkRequest(step string, b, a rowState) {
	t, _ := b.asked(a)
	if t == 0 {
		return // it was asked before
	}
	first(w.handovers.requests, t)
	holder := b.record(t)
	if step == "ask" && (!holder.AcceptsHandover || holder.Rank <= w.actor.config.Rank) {
		w.violate("equals do not ask", "%s, %d below the highest priority, asked %+v", w.actor.name, w.actor.config.Rank, holder)
	}
}

// checkTold is called when the context of a term's work is canceled.
func (w *world) checkTold(p *process, t *term) {
	w.mu.Lock()
	defer w.mu.Unlock()
	token, now := table.Token(t.token), time.Now()
	stepsDown := errors.Is(context.Cause(t.ctx), spindle.ErrSteppedDown)
	if p.dead || p.paused || t.returned || t.lost() || !stepsDown && !p.config.Handover {
		return
	}
	asked := w.asked(p, token)
	if asked.IsZero() {
		w.violate("asked for", "the work of %s under %d was told to stop, and nobody wanted that", p.name, token)
		return
	}
	disturbed := now.Add(-2 * p.lease())
	switch {
	case p.resumed.After(disturbed), p.jumped.After(disturbed): // it had less time than it seems
	case p.beat.Before(t.began), now.Sub(p.beat) > p.lease()*3/4: // its lease is about to end
	case !w.stands(token): // it is over
	case now.Sub(asked) < p.lease()/3*99/100-time.Millisecond:
		w.violate("works on", "the work of %s under %d was told to stop %v after it was asked for", p.name, token, now.Sub(asked))
	}
}

// checkLeaving checks that an announced term ends. The announcement is tried for a third of the lease, and takes effect
// after another third plus a round trip of at most a third.
func (w *world) checkLeaving(p *process, token table.Token) {
	announced := w.handovers.announced[token]
	if announced.IsZero() {
		return
	}
	beat := p.lease()*52/100 + 5*time.Millisecond // one that is under way is waited for
	limit := p.lease()*103/100 + beat
	for _, since := range []time.Time{announced, p.resumed, p.jumped} {
		if time.Since(since) <= limit {
			return
		}
	}
	if t := p.term; p.leads && (t == nil || table.Token(t.token) != token || !t.returned || time.Since(t.left) <= beat) {
		return
	}
	w.violate("leaving ends", "%s holds %d still, %v after its announcement", p.name, token, time.Since(announced))
}

// checkOthersFirst is called within a claim. A claim that was sent before the term was given up can still commit.
func (w *world) checkOthersFirst() {
	p := w.actor
	if p.gave == 0 || w.tokens[len(w.tokens)-1] > p.gave || p.jumped.After(p.gaveAt) || w.sent.Before(p.gaveAt) {
		return
	}
	since, rest := p.gaveAt, p.lease()
	if !p.releasedAt.IsZero() {
		since, rest = p.releasedAt, p.lease()/3
	}
	if time.Since(since) < rest*99/100-time.Millisecond {
		w.violate("others first", "%s claimed %v after it had given %d up", p.name, time.Since(since), p.gave)
	}
}

// observe receives the Lock's events about its terms.
func (p *process) observe(e spindle.Event) {
	w := p.w
	w.mu.Lock()
	defer w.mu.Unlock()
	if p.dead {
		return
	}
	switch token := table.Token(e.Token); {
	case e.Kind == spindle.Lost:
		if errors.Is(e.Err, spindle.ErrSteppedDown) {
			w.handovers.given[token] = true
			p.gave, p.gaveAt, p.releasedAt = token, time.Now(), time.Time{}
		}
		w.handovers.gone = nil
		if w.undisturbed(p, token) {
			w.handovers.gone = &goneTerm{token, time.Now()}
		}
	case e.Kind == spindle.Elected && w.handovers.gone != nil:
		w.checkGap(p, *w.handovers.gone)
		w.handovers.gone = nil
	}
}

// undisturbed reports whether a term that p gave up ended after a while without faults, with a follower present.
func (w *world) undisturbed(p *process, token table.Token) bool {
	announced := w.handovers.announced[token]
	if p.term != nil && table.Token(p.term.token) == token && p.term.early {
		return false // the lock was given back before the followers could see that it would be
	}
	rare := w.plan.poll > 0.5 || w.plan.heartbeat > 0.5 // who looks or beats so seldom can't be told in time, or wait for it
	if rare || !w.still || w.closed || announced.IsZero() || announced.Before(w.quietAt.Add(2*w.plan.longest+longestAttempt)) || w.plan.sick {
		return false
	}
	for _, f := range w.slots {
		coolsDown := f != nil && f.gave != 0 && time.Since(f.gaveAt) < 2*f.lease()
		if f != nil && f != p && !f.dead && f.stoppedAt.IsZero() && !coolsDown && f.born.Before(announced.Add(-2*w.plan.longest)) {
			return true
		}
	}
	return false
}

// checkGap is called when a candidate is elected after a handover.
func (w *world) checkGap(p *process, gone goneTerm) {
	gap := time.Since(gone.at)
	w.gaps++
	bound := w.plan.longest/25 + 20*w.plan.latency + 4*w.plan.uncertainty
	if w.widest = max(w.widest, float64(gap)/float64(bound)); gap > bound {
		w.violate("handover gap", "%s was elected %v after the end of %d, with nothing wrong: more than %v", p.name, gap, gone.token, bound)
	}
}

// longestAttempt is how long, with these leases, a process waits for a reply that was lost before the faults ended.
const longestAttempt = 2 * time.Second

// practise performs repeated handovers without faults.
func (w *world) practise(held spindle.Token, bound time.Duration) {
	held = w.stays(held, longestAttempt, bound)
	for n := uint64(0); n < 4 && held != 0; n++ {
		w.handOver(n)
		held = w.stays(held, 3*w.plan.longest, bound)
	}
	if w.plan.sick {
		w.checkPreference()
	}
}

// handOver makes the holder step down, or stop if that leads to a handover and other candidates remain.
func (w *world) handOver(n uint64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	var holder *process
	live := 0
	for _, p := range w.slots {
		if p != nil && !p.dead && p.stoppedAt.IsZero() {
			live++
			if p.held != 0 {
				holder = p
			}
		}
	}
	if holder == nil {
		return
	}
	d := w.dice(holder, "handover", n)
	if holder.config.Handover && live > 2 && d.chance(0.5) {
		w.handovers.given[table.Token(holder.held)] = true
		w.end(holder, "graceful stop")
		return
	}
	w.tracef(holder, "is to step down")
	w.stepDown(holder, d.spread(time.Microsecond, time.Millisecond), 10*w.plan.longest)
}

// checkPreference checks a fleet in which a candidate can claim but not hold. A holder that hands over to it and gets
// the lock back ignores requests for ten leases, then for twenty, and so on.
func (w *world) checkPreference() {
	w.mu.Lock()
	before := w.terms
	w.mu.Unlock()
	time.Sleep(70 * w.plan.longest)
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.check(); w.terms-before > 20 {
		w.violate("preference ends", "the lock has changed hands %d times in 70 leases", w.terms-before)
	}
}
