package simulation

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"strconv"
	"strings"
	"time"

	"github.com/spindle-lock/spindle"
	"github.com/spindle-lock/spindle/internal/table"
)

// The invariants, by the names that the mutants use:
//
//	one holder             HasLock is never true in two running processes at the same time
//	ctx ends               a leader's ctx ends when HasLock becomes false
//	no revival             a term whose ctx has ended for a reason other than a stop does not return
//	fence                  no fenced write under a token commits after a newer claim, and no fenced write under
//	                       a valid token is refused
//	tokens grow            each claim has a larger token than all earlier ones, and so does each term
//	rows                   the table is in a state that the protocol allows, and got there by an allowed step
//	claim after expiry     no claim commits before the lease that it supersedes has expired by Spanner's time
//	work first             a term is released only after its work has returned
//	one leader function    runs at a time in each process
//	a holder again         exists within two leases after the last fault, and then stays or hands over
//	asked for              a term is announced to end only if there was a request or a StepDown for that term
//	works on               a holder that was asked to hand over keeps working for a third of its lease, if it can
//	leaving ends           an announced term ends soon, or once its work has returned
//	step down              StepDown reports that the lock is released only after it is
//	others first           a candidate that gave up a term lets other candidates go first before it claims again
//	equals do not ask      a candidate asks a holder only if the holder accepts requests and has a lower priority
//	preference ends        a preferred candidate that can't hold the lock does not keep it free
//	handover gap           without faults, the lock has no holder for at most a few hundredths of a lease
//	stop ends              every process that is told to stop ends
//	nothing left over      except the released lock row

// check checks all processes. w.mu is held.
func (w *world) check() {
	var holder *process
	for _, p := range w.slots {
		if p == nil || p.dead || p.paused || p.ended {
			if p != nil && !p.paused {
				p.held = 0
			}
			continue
		}
		has, token := p.ask()
		if has && holder != nil {
			w.violate("one holder", "%s holds the lock under %v and %s under %v", holder.name, holder.held, p.name, token)
		}
		w.holds(p, token)
		if has {
			holder = p
			w.checkLeaving(p, table.Token(token))
		}
		w.checkTerm(p, token)
	}
}

func (w *world) holds(p *process, token spindle.Token) {
	if token == p.held {
		return
	}
	p.held = token
	if token == 0 {
		w.tracef(p, "does not hold the lock any more")
		return
	}
	w.tracef(p, "HOLDS the lock under %v", token)
	switch {
	case token > w.largest:
		w.largest = token
		w.terms++
	case p.term != nil && p.term.token == token, token == w.largest: // after a wall clock was set to and fro
	default:
		w.violate("tokens grow", "%s holds under %v, after a term under %v", p.name, token, w.largest)
	}
}

// checkTerm compares the ctx of the guarded work with HasLock.
func (w *world) checkTerm(p *process, token spindle.Token) {
	t := p.term
	if t == nil || t.watched || !w.differs(p, t, token) {
		return
	}
	t.watched = true
	w.watch(p, t)
}

// differs reports whether a term's ctx has not ended although HasLock is false, or has ended although HasLock is true.
// While a process stops, its ctx has ended and the lock is still held, as intended.
func (w *world) differs(p *process, t *term, token spindle.Token) bool {
	if t.token == token {
		return t.lost()
	}
	return t.ctx.Err() == nil
}

// watch checks again when the difference must have ended.
func (w *world) watch(p *process, t *term) {
	since := time.Now()
	time.AfterFunc(w.slack(p, t.began), func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		if p.dead || p.paused || p.ended || p.resumed.After(since) || p.jumped.After(since) {
			t.watched = false
			return
		}
		_, token := p.ask()
		switch {
		case !w.differs(p, t, token):
			t.watched = false
		case token == t.token:
			w.violate("no revival", "%s holds under %v whose ctx has ended: %v", p.name, token, t.ctx.Err())
		default:
			w.violate("ctx ends", "the work of %s under %v was not told that the term is over", p.name, t.token)
		}
	})
}

// slack is how long the two may differ. It allows for late timers, and for Resets of timers, which are not scaled to
// the clock's rate. As documented, a process notices at its next heartbeat that its clock jumped, and that heartbeat
// can have been in transit for half a lease. The same applies to a process that was stopped between reading its clock
// and setting the timer for its deadline.
func (w *world) slack(p *process, began time.Time) time.Duration {
	slack := time.Millisecond + p.lease()/50
	if !p.jumped.Before(began) {
		slack += p.lease() + p.lease()/2
	}
	return slack
}

// rowState is the state of the lock's rows.
type rowState struct {
	exists    bool
	heartbeat time.Time
	token     table.Token
	writer    string
	leases    map[table.Token]table.Row
	others    int
}

func stateOf(rows map[string]table.Row) rowState {
	s := rowState{leases: map[table.Token]table.Row{}}
	for name, row := range rows {
		digits, ok := strings.CutPrefix(name, lockName+"_")
		token, err := strconv.ParseInt(digits, 10, 64)
		switch {
		case name == lockName:
			s.exists, s.heartbeat, s.token, s.writer = true, row.Heartbeat, table.TokenAt(row.Token), row.Writer
		case ok && err == nil && len(digits) == 16:
			s.leases[table.Token(token)] = row
		default:
			s.others++
		}
	}
	return s
}

// kind is the state's name: absent, claimed (bare: not confirmed), held or released.
func (s rowState) kind() string {
	switch {
	case !s.exists:
		return "absent"
	case s.heartbeat.IsZero():
		return "released"
	case table.TokenAt(s.heartbeat) == s.token:
		return "claimed"
	}
	return "held"
}

func (s rowState) String() string {
	var leases []string
	for t, row := range s.leases {
		leases = append(leases, fmt.Sprintf("%d: heartbeat %d, token %d, %s", t, table.TokenAt(row.Heartbeat), table.TokenAt(row.Token), row.Writer))
	}
	return fmt.Sprintf("%s, token %d, heartbeat %d, writer %q, lease rows %v", s.kind(), s.token, table.TokenAt(s.heartbeat), s.writer, leases)
}

func (s rowState) leased(t table.Token) bool { return s.leases[t].Writer != "" }

// leaving reports whether the holder has announced that its term ends.
func (s rowState) leaving() bool {
	return s.kind() == "held" && (s.writer == "" || strings.HasPrefix(s.writer, "\n"))
}

type record struct {
	Format          int    `json:"v"`
	Lease           string `json:"lease"`
	ID              string `json:"id"`
	Value           string `json:"value"`
	Kind            string `json:"kind"`
	AcceptsHandover bool   `json:"obeys,omitempty"`
	Rank            int    `json:"deference,omitempty"`
	Notify          string `json:"notify,omitempty"`
}

// record returns the lease record in the lease row of t, or nothing.
func (s rowState) record(t table.Token) (p record) {
	_ = json.Unmarshal([]byte(s.leases[t].Writer), &p) // that it is what it should be is checked when it is written
	return p
}

// marked reports whether b differs from s only in the writer.
func (s rowState) marked(b rowState) bool {
	return s.kind() == "held" && b.kind() == "held" && s.token == b.token && s.heartbeat.Equal(b.heartbeat) &&
		b.only(b.token) && maps.Equal(s.leases, b.leases)
}

// asked returns the token whose lease row is the only difference between s and a, if that difference is one emptied
// column. If the request already existed, there is no difference.
func (s rowState) asked(a rowState) (of table.Token, ok bool) {
	if s.exists != a.exists || s.token != a.token || !s.heartbeat.Equal(a.heartbeat) || s.writer != a.writer || len(s.leases) != len(a.leases) {
		return 0, false
	}
	for t, before := range s.leases {
		operator, preference := before, before
		operator.Token, preference.Heartbeat = time.Time{}, time.Time{}
		switch now := a.leases[t]; {
		case now == before:
		case of == 0 && (now == operator || now == preference):
			of = t
		default:
			return 0, false
		}
	}
	return of, true
}

// only reports whether t's lease row is the only one or, if t is 0, that there is none.
func (s rowState) only(t table.Token) bool {
	if t == 0 {
		return len(s.leases) == 0
	}
	return len(s.leases) == 1 && s.leased(t)
}

// checkCommit is called within each commit.
func (w *world) checkCommit(step string, at time.Time, before, after map[string]table.Row) {
	w.committed = at
	if w.actor == nil {
		return // the operator is free
	}
	w.commits++
	if step == "fenced write" {
		w.checkFenced(after[registerOf(lockName)].Writer)
		return
	}
	b, a := stateOf(before), stateOf(after)
	if !allowed(step, at, b, a, w.actor) || a.others != b.others {
		w.violate("rows", "%s of %s made of (%v) this: (%v)", step, w.actor.name, b, a)
	}
	if len(a.leases) > 1 {
		w.violate("rows", "%s of %s left more than two rows: %v", step, w.actor.name, a)
	}
	switch t := w.actor.term; {
	case step == "claim":
		w.checkClaim(at, b)
		w.checkOthersFirst()
		if d := w.dice(w.actor, "claimed"); w.plan.moody && d.chance(0.4) {
			w.sore = []string{"confirm", "claim's read"} // who is first?
		}
	case step == "confirm":
		w.tokens = append(w.tokens, a.token)
		w.haunt()
	case step == "announce":
		w.checkAnnouncement(b.token)
	case step == "ask", step == "request":
		w.checkRequest(step, b, a)
	case step == "release" && t != nil && table.Token(t.token) == b.token && !t.returned && !w.actor.dead:
		w.violate("work first", "%s released %d while its work went on", w.actor.name, b.token)
	}
}

// allowed are the steps that the protocol allows from one row state to another:
//
//	claim      any -> claimed, with its own timestamp as a new token, and no lease row
//	confirm    claimed -> held under the same token, with only its own lease row, which has the lease record
//	heartbeat  held -> held, with a later heartbeat and nothing else changed
//	release    held -> released, with no lease row, and its own timestamp as the token
//	withdraw   claimed or held, by the claimant -> released, with its id kept
//	announce   held, by its holder -> the same without a writer
//	succeed    leaving -> the same with the candidate as the successor
//	ask        one column of one lease row becomes empty, and nothing else changes; also by a different process
//
// If the operator deleted the lease row of a held lock, only a claim leaves that state. If the operator deleted the lock
// row, the next claim deletes the remaining lease row.
func allowed(step string, at time.Time, b, a rowState, by *process) bool {
	now := table.TokenAt(at)
	switch step {
	case "claim":
		return a.kind() == "claimed" && a.token == now && a.writer == by.config.ID && a.only(0)
	case "confirm":
		record, _ := json.Marshal(record{1, by.lease().String(), by.config.ID, by.config.Value, "elector", by.config.Handover, by.config.Rank, by.contact(a.token)})
		return b.kind() == "claimed" && b.only(0) && a.kind() == "held" && a.token == b.token && a.writer == b.writer &&
			a.writer == by.config.ID && a.only(a.token) && a.leases[a.token].Writer == string(record)
	case "heartbeat":
		return b.kind() == "held" && a.kind() == "held" && a.token == b.token && a.writer == b.writer &&
			b.only(b.token) && a.only(a.token) && a.heartbeat.After(b.heartbeat)
	case "release":
		return b.kind() == "held" && b.only(b.token) && a.kind() == "released" && a.token == now && a.writer == "" && a.only(0)
	case "withdraw":
		return (b.kind() == "claimed" || b.kind() == "held") && b.writer == by.config.ID && a.kind() == "released" && a.token == now &&
			a.writer == b.writer && !a.leased(b.token)
	case "announce":
		return a.marked(b) && a.writer == "" && b.record(b.token).ID == by.config.ID
	case "succeed":
		return a.marked(b) && b.leaving() && a.writer == "\n"+by.config.ID
	case "ask", "request":
		_, ok := b.asked(a)
		return ok
	}
	return false
}

func (w *world) checkClaim(at time.Time, b rowState) {
	p, token := w.actor, table.TokenAt(at)
	if token <= w.newest {
		w.violate("tokens grow", "%s claimed under %d after %d", p.name, token, w.newest)
	}
	claimant := w.claimants[b.token] // the row of who is leaving does not say it
	w.newest, w.claimants[token] = token, p.config.ID
	if b.kind() == "absent" || b.kind() == "released" {
		return
	}
	c := p.config
	if claimant == c.ID && (c.Reclaim || c.LockDelay == 0) {
		return // ids are unique: its own term, which is over
	}
	lease := c.Lease
	if lasts, err := time.ParseDuration(b.record(b.token).Lease); err == nil {
		lease = lasts
	}
	if b.kind() == "held" {
		lease += c.LockDelay
	}
	if at.Before(b.heartbeat.Add(lease)) {
		w.violate("claim after expiry", "%s claimed %v before the end of the lease: %v", p.name, b.heartbeat.Add(lease).Sub(at), b)
	}
}

func (w *world) checkFenced(under string) {
	if token, _ := strconv.ParseInt(under, 10, 64); table.Token(token) != w.newest {
		w.violate("fence", "a fenced write under %s landed after the claim of %d", under, w.newest)
	}
}

// checkRefused is called once it is known whether a fenced write has committed.
func (w *world) checkRefused(p *process, lock string, token spindle.Token, err error) {
	if _, valid := w.store.Rows()[table.LeaseKey(lock, table.Token(token))]; valid && errors.Is(err, table.ErrMissing) {
		w.violate("fence", "a fenced write of %s under %v, which is valid, was refused", p.name, token)
	}
}
