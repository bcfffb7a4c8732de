package serve

import (
	"time"

	"github.com/spindle-lock/spindle/internal/table"
)

const (
	kept     = time.Hour // how long a term is remembered after its end
	maxTerms = 128       // of a lock: if there are more, the older ones are merged
)

// A lock is what is known of a lock.
type lock struct {
	id int // what frames call it
	table.Listing
	known      time.Time // since when its terms are known
	terms      []term
	changes    int // terms that began since the first look
	jeopardies int // how often two thirds of its lease passed without a heartbeat
	late       bool
	kind       table.LockKind // what it is for, by the last look that showed that
	expected   bool           // somebody should hold it
	shown      bool           // on pages
}

// holder returns the lock's holder. An earlier look may have shown it if this one does not.
func (k *lock) holder() string {
	if n := len(k.terms); n > 0 && !k.terms[n-1].over && k.terms[n-1].token == k.Token {
		return k.terms[n-1].holder
	}
	return k.Holder()
}

// A history is what the looks at a table have found. Its times are by Spanner's clock.
type history struct {
	at    time.Time // of the last look
	locks map[string]*lock
	ids   int

	expected map[string]bool // locks that somebody should hold

	skips bool             // looks leave out what was released
	named map[string]bool  // what the look does not leave out
	hides func(*lock) bool // what is on no page; nil: nothing
}

// A touch is a lock that a look found changed, and how.
type touch struct {
	*lock
	whole bool // more than its heartbeat
	tail  int  // how many of its last terms have changed
}

// see takes in a look, and returns which locks it found changed, and the ids of those that are forgotten.
func (h *history) see(found []table.Listing, at time.Time) (touched []touch, forgotten []int) {
	first := h.locks == nil
	if first {
		h.locks = make(map[string]*lock, len(found))
	}
	h.at = at
	present := make(map[string]bool, len(found))
	follow := func(l table.Listing) {
		k := h.locks[l.Name]
		if k == nil {
			k = h.meet(l, first)
		}
		if t := k.follow(l, first); t.whole || !k.Heartbeat.Equal(l.Heartbeat) {
			touched = append(touched, t)
		}
		if k.Listing = l; l.Kind() != "" {
			k.kind = l.Kind()
		}
	}
	for _, l := range found {
		present[l.Name] = true
		if k := h.locks[l.Name]; k != nil && l.State() == table.Free && !h.named[l.Name] {
			l.Observation = h.absent(k).Observation // only what was done under it is known
		}
		follow(l)
	}
	for name, k := range h.locks {
		k.forget(at.Add(-kept))
		switch {
		case present[name]:
		case k.State() != h.absent(k).State(), k.Done.Key != "", k.Undone != nil, len(k.Waiters) > 0:
			follow(h.absent(k))
		case len(k.terms) == 0:
			delete(h.locks, name)
			forgotten = append(forgotten, k.id)
		}
	}
	return h.show(touched, forgotten)
}

// absent returns what a look says of a lock that it did not find. If looks leave out released locks, a lock that was seen
// released still is, or was pruned.
func (h *history) absent(k *lock) table.Listing {
	l := table.Listing{Observation: table.Observation{Name: k.Name}}
	if h.skips && k.State() == table.Released {
		l.Observation = k.Observation
	}
	l.At = h.at
	return l
}

// meet begins the history of a lock. At the first look, nothing is known of the time before the present term, or before
// the last release. At a later look it is known: the lock had no row.
func (h *history) meet(l table.Listing, first bool) *lock {
	k := &lock{id: h.ids, known: l.At, expected: h.expected[l.Name]}
	k.Name = l.Name
	if first && l.Exists && l.Token != 0 {
		k.known = l.Since()
	}
	h.ids++
	h.locks[l.Name] = k
	return k
}

// follow takes in a look. The lock's own Listing is still the last one.
func (k *lock) follow(l table.Listing, first bool) touch {
	t := touch{lock: k, whole: first || k.differs(l)}
	now, shown := termIn(l)
	var last *term
	if n := len(k.terms); n > 0 && !k.terms[n-1].over {
		last = &k.terms[n-1]
	}
	switch same := last != nil && shown && last.token == now.token; {
	case same && last.goesOn(l):
		t.tail = 1
	case same:
	case last != nil:
		last.ends(k.Listing, l)
		t.tail = 1
		fallthrough
	case shown:
		if shown {
			t.tail += k.begin(now, first)
		}
	case k.State() == table.Released && l.State() == table.Released && k.Token != l.Token:
		t.tail = k.begin(term{from: k.At, to: l.Since(), end: missed, over: true, seen: k.At, count: 1}, first)
	}
	t.tail = min(t.tail, len(k.terms)) // the term that ended may be among the merged ones
	k.judge(l)
	t.whole = t.whole || t.tail > 0
	return t
}

// differs reports whether a look shows more than another heartbeat.
func (k *lock) differs(l table.Listing) bool {
	return k.At.IsZero() || k.State() != l.State() || k.Token != l.Token || k.Holder() != l.Holder() || k.Writer != l.Writer || k.Member != l.Member ||
		k.Done != l.Done || problem(k.Listing) != problem(l) || len(k.Waiters) != len(l.Waiters) || waitingSince(k.Listing) != waitingSince(l)
}

// begin adds a term, and returns how many of the last terms have changed.
func (k *lock) begin(t term, first bool) int {
	if !first {
		k.changes++
	}
	k.terms = append(k.terms, t)
	if len(k.terms) <= maxTerms {
		return 1
	}
	older := k.terms[:maxTerms/2]
	var shorter []term
	for i := 0; i+1 < len(older); i += 2 {
		shorter = append(shorter, merged(older[i], older[i+1]))
	}
	k.terms = append(shorter, k.terms[len(older):]...)
	return len(k.terms)
}

// judge counts the times at which two thirds of the lease had passed without a heartbeat. Partitions have no heartbeats of
// their own.
func (k *lock) judge(l table.Listing) {
	late := l.LeaseRecord != nil && l.Member == (table.LeaseRef{}) && !l.Heartbeat.IsZero() && l.At.Sub(l.Heartbeat) >= l.LeaseRecord.Lease*2/3
	if late && !k.late {
		k.jeopardies++
	}
	k.late = late
}

// forget drops terms that ended before then.
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
