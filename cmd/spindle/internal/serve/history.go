package serve

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/spindle-lock/spindle/cmd/spindle/internal/model"
	"github.com/spindle-lock/spindle/internal/operator"
	"github.com/spindle-lock/spindle/internal/table"
)

const (
	kept     = time.Hour // how long a term is remembered after its end
	maxTerms = 128       // per lock; if there are more, the older ones are merged
)

// A lock has everything that the server knows about one lock.
type lock struct {
	id int // identifies the lock in frames
	operator.Listing
	known      time.Time // since when its terms are known
	terms      []term
	changes    int // terms that began since the first read
	jeopardies int // how often no heartbeat was seen for two thirds of the lease
	late       bool
	kind       table.LockKind // its purpose, from the last read that showed it
	expected   bool           // it should always be held
	shown      bool           // on pages
}

// last returns the last term, or nil if there is none or it is over for good.
func (k *lock) last() *term {
	if n := len(k.terms); n > 0 && !k.terms[n-1].over {
		return &k.terms[n-1]
	}
	return nil
}

// holder returns the lock's holder. During a term, it returns the holder from the history, because the last read may
// not have been able to decode the holder.
func (k *lock) holder() string {
	if t := k.last(); t != nil {
		return t.holder
	}
	return k.Holder()
}

// A history accumulates what the reads of a table have shown. Its times are by Spanner's clock.
type history struct {
	at       time.Time // of the last read
	locks    map[string]*lock
	ids      int
	expected map[string]bool // locks that should always be held
	skips    bool            // reads skip released locks
	named    map[string]bool // locks that are read even if they are released
}

// A touch describes how a lock has changed since the previous read.
type touch struct {
	*lock
	whole bool // more than its heartbeat has changed
	tail  int  // the number of its latest terms that have changed
}

// see adds the result of a read to the history. It returns the locks that have changed, and the ids of the locks that
// pages must remove.
func (h *history) see(found []operator.Listing, at time.Time) (touched []touch, forgotten []int) {
	first := h.locks == nil
	if first {
		h.locks = make(map[string]*lock, len(found))
	}
	h.at = at
	touches := map[*lock]touch{}
	present := make(map[string]bool, len(found))
	for _, l := range found {
		present[l.Name] = true
		if k := h.locks[l.Name]; k != nil && l.State() == operator.Free && !h.named[l.Name] {
			l.Observation = h.absent(k).Observation // the read omitted the lock row, and found only a record of completed work
		}
		h.take(l, first, touches)
	}
	for name, k := range h.locks {
		k.forget(at.Add(-kept))
		gone := false
		switch {
		case present[name]:
		case k.State() != h.absent(k).State(), k.Done.Key != "", k.Undone != nil, len(k.Waiters) > 0:
			h.take(h.absent(k), first, touches)
		case len(k.terms) == 0:
			gone = true
			delete(h.locks, name)
		}
		was := k.shown
		k.shown = !gone && !h.hides(k)
		t, is := touches[k]
		t.tail = min(t.tail, len(k.terms)) // a term that ended long before this read is already forgotten
		switch {
		case k.shown && !was:
			touched = append(touched, touch{k, true, len(k.terms)})
		case k.shown && is:
			touched = append(touched, t)
		case was && !k.shown:
			forgotten = append(forgotten, k.id)
		}
	}
	slices.SortFunc(touched, func(a, b touch) int { return cmp.Compare(a.id, b.id) })
	return touched, forgotten
}

// take adds a new listing of a lock. If open pages must show the change, take adds it to touches.
func (h *history) take(l operator.Listing, first bool, touches map[*lock]touch) {
	k := h.locks[l.Name]
	if k == nil {
		k = h.meet(l, first)
	}
	t := k.follow(l, first)
	if t.whole || !k.Heartbeat.Equal(l.Heartbeat) {
		touches[k] = t
	}
	if k.Listing = l; l.Kind() != "" {
		k.kind = l.Kind()
	}
}

// absent returns a listing for a lock that is missing from the last read. Usually, the lock has no row, and is
// therefore free. However, if reads skip released locks and the lock was released when it was last seen, absent returns
// the previous listing, because the lock is still released or its row was pruned.
func (h *history) absent(k *lock) operator.Listing {
	l := operator.Listing{Observation: table.Observation{Name: k.Name}}
	if h.skips && k.State() == operator.Released {
		l.Observation = k.Observation
	}
	l.At = h.at
	return l
}

// meet adds a lock to the history. A lock that the first read finds may be old, so what happened before its current
// term or its last release is unknown. Any other lock is known from the read that first shows it.
func (h *history) meet(l operator.Listing, first bool) *lock {
	k := &lock{id: h.ids, known: l.At, expected: h.expected[l.Name]}
	k.Name = l.Name
	if first && l.Exists && l.Token != 0 {
		k.known = l.Since()
	}
	h.ids++
	h.locks[l.Name] = k
	return k
}

// follow updates the terms of a lock from a new listing. The lock's own Listing must still be the previous one.
func (k *lock) follow(l operator.Listing, first bool) touch {
	whole := first || k.differs(l)
	unchanged := len(k.terms) // how many of the oldest terms have not changed
	add := func(t term) {
		if !first {
			k.changes++
		}
		if k.terms = append(k.terms, t); len(k.terms) > maxTerms {
			k.merge()
			unchanged = 0
		}
	}
	now, shown := termIn(l)
	last := k.last()
	same := last != nil && shown && last.token == now.token
	switch {
	case same && last.goesOn(l):
		unchanged--
	case last != nil && !same:
		last.over = true
		last.to, last.end = model.Ending(k.Listing, l)
		unchanged--
	case last == nil && !k.At.IsZero() && (k.State() == operator.Released || k.State() == operator.Free) && l.State() == operator.Released && l.Since().After(k.At): // not a claim that was retracted
		add(term{from: k.At, to: l.Since(), end: model.EndMissed, over: true, seen: k.At, count: 1})
	}
	if shown && !same {
		add(now)
	}
	late := k.judge(l)
	tail := len(k.terms) - unchanged
	return touch{k, whole || late || tail > 0, tail}
}

// differs reports whether a new listing shows any change other than a new heartbeat.
func (k *lock) differs(l operator.Listing) bool {
	return k.At.IsZero() || k.State() != l.State() || k.Token != l.Token || k.Holder() != l.Holder() || k.Writer != l.Writer || k.Member != l.Member ||
		k.Done != l.Done || model.Problem(k.Listing) != model.Problem(l) || len(k.Waiters) != len(l.Waiters) || waitingSince(k.Listing) != waitingSince(l)
}

// merge merges the older half of the terms, in pairs.
func (k *lock) merge() {
	older := k.terms[:maxTerms/2]
	var shorter []term
	for i := 0; i+1 < len(older); i += 2 {
		shorter = append(shorter, merged(older[i], older[i+1]))
	}
	k.terms = append(shorter, k.terms[len(older):]...)
}

// judge counts how many times the holder has sent no heartbeat for two thirds of its lease, and reports whether this has
// just happened again. It skips partitions, because they have no heartbeats of their own.
func (k *lock) judge(l operator.Listing) (again bool) {
	late := l.LeaseRecord != nil && l.Member == (table.LeaseRef{}) && !l.Heartbeat.IsZero() && l.At.Sub(l.Heartbeat) >= l.LeaseRecord.Lease*2/3
	if again = late && !k.late; again {
		k.jeopardies++
	}
	k.late = late
	return again
}

// forget drops terms that ended before the given time.
func (k *lock) forget(then time.Time) {
	n := 0
	for n < len(k.terms) && k.terms[n].over && k.terms[n].to.Before(then) {
		n++
	}
	if n > 0 {
		k.terms = append([]term(nil), k.terms[n:]...)
	}
	if k.known.Before(then) {
		k.known = then
	}
}

// lately is how long pages keep showing a lock after its release, because a lock that should be held may have lost its
// holder. Mutexes and semaphores are hidden immediately, because it is normal that many of them are released.
const lately = 5 * time.Minute

// inUse reports whether a lock is taken, has waiters, has a record of completed work, or has a row and belongs to a
// group.
func (k *lock) inUse() bool {
	return k.isTaken() || len(k.Waiters) > 0 || k.Done.Key != "" || k.Undone != nil || k.IsPart() && k.State() != operator.Free
}

// isTaken reports whether a lock is neither released nor free.
func (k *lock) isTaken() bool { return k.State() != operator.Released && k.State() != operator.Free }

// hides reports whether pages leave out a lock because it was released. Expected locks are never left out. With
// --released, pages show all locks.
func (h *history) hides(k *lock) bool {
	if !h.skips || k.inUse() || k.expected {
		return false
	}
	n := len(k.terms)
	return n == 0 || k.kind.IsShort() || h.at.Sub(k.terms[n-1].to) >= lately
}

// names returns the locks that the next read must include by name: the expected locks and, if reads skip released
// locks, all locks that are taken now. If one of these locks is released, the next read must still show how its term
// ended.
func (h *history) names() []string {
	h.named = map[string]bool{}
	for name := range h.expected {
		h.named[name] = true
	}
	for name, k := range h.locks {
		if h.skips && k.isTaken() {
			h.named[name] = true
		}
	}
	return slices.Collect(maps.Keys(h.named))
}

// A term is a period during which one holder held a lock, or several such periods merged into one.
type term struct {
	token  table.Token
	holder string // "" if unknown, or if the merged terms had different holders
	from   time.Time
	to     time.Time // zero while the term lasts
	end    model.End // "" while the term lasts
	over   bool      // for good; an expired term can revive if its holder was only slow
	seen   time.Time // the time of the last read that showed it
	count  int       // the number of terms that were merged into it
	held   time.Duration
}

// termIn returns the current term of a listing, if there is one. A lease row that can't be read shows no term if there is
// no lock row.
func termIn(l operator.Listing) (t term, ok bool) {
	if !l.Exists {
		return t, false
	}
	switch l.State() {
	case operator.Held, operator.Leaving, operator.Expired, operator.Unreadable:
		t = term{token: l.Token, holder: l.Holder(), from: l.Since(), count: 1}
		t.goesOn(l)
		return t, true
	}
	return t, false
}

// goesOn updates the term from a listing that still shows it, and reports whether the term has changed.
func (t *term) goesOn(l operator.Listing) bool {
	was := *t
	t.seen, t.to, t.end = l.At, time.Time{}, ""
	if holder := l.Holder(); holder != "" {
		t.holder = holder
	}
	if l.State() == operator.Expired {
		t.to, t.end = l.Heartbeat.Add(l.LeaseRecord.Lease), model.EndExpired
	}
	return t.to != was.to || t.end != was.end || t.holder != was.holder
}

// merged returns two consecutive terms as one.
func merged(a, b term) term {
	held := func(t term) time.Duration {
		if t.count > 1 {
			return t.held
		}
		return t.to.Sub(t.from)
	}
	m := b
	m.from, m.count, m.held = a.from, a.count+b.count, held(a)+held(b)
	if a.holder != b.holder {
		m.holder = ""
	}
	return m
}
