package memstore

import (
	"cmp"
	"context"
	"slices"
	"sync"

	"github.com/spindle-lock/spindle/internal/table"
)

// span is a locked key or range of keys, including the keys in the range that have no row.
type span struct {
	table.Range
	exclusive bool
}

func spans(keys table.Keys, exclusive bool) []span {
	var all []span
	for _, name := range keys.Names {
		all = append(all, span{table.Range{From: name, To: name}, exclusive})
	}
	for _, r := range keys.Ranges {
		all = append(all, span{r, exclusive})
	}
	if keys.All {
		all = append(all, span{table.Range{To: "\U0010FFFF"}, exclusive})
	}
	return inOrder(all)
}

func inOrder(all []span) []span {
	slices.SortFunc(all, func(a, b span) int { return cmp.Compare(a.From, b.From) })
	return all
}

func written(writes []table.Write) []span {
	var keys table.Keys
	for _, w := range writes {
		keys.Names = append(keys.Names, w.Name)
	}
	return spans(keys, true)
}

// conflict reports whether a span of as is in the way of one of bs. Both are in order, because commits can have hundreds.
func conflict(as, bs []span) bool {
	for i, j := 0, 0; i < len(as) && j < len(bs); {
		switch a, b := as[i], bs[j]; {
		case a.To < b.From:
			i++
		case b.To < a.From:
			j++
		default:
			return anyConflict(as[i:], bs[j:])
		}
	}
	return false
}

func anyConflict(as, bs []span) bool {
	for _, a := range as {
		for _, b := range bs {
			if (a.exclusive || b.exclusive) && a.From <= b.To && b.From <= a.To {
				return true
			}
		}
	}
	return false
}

// locks grants locks in the order of the requests.
type locks struct {
	mu    sync.Mutex
	queue []*locker
}

// locker is a transaction that holds locks or waits for them.
type locker struct {
	held, wanted []span
	given        chan struct{} // closed when the locker holds what it wants
}

// acquire waits until l has locked the given spans in addition to those that it has already locked. It aborts l if that
// would cause a deadlock between l and another locker. If acquire returns an error, l has no locks left.
func (ls *locks) acquire(ctx context.Context, l *locker, spans []span) error {
	given, err := ls.ask(l, spans)
	if err != nil {
		return err
	}
	select {
	case <-given:
		return nil
	case <-ctx.Done():
		ls.release(l)
		return ended(ctx)
	}
}

func (ls *locks) ask(l *locker, spans []span) (given chan struct{}, err error) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	l.wanted, l.given = spans, make(chan struct{})
	if l.held == nil {
		ls.queue = append(ls.queue, l)
	} else if ls.circle(l) {
		ls.remove(l)
		return nil, aborted("deadlock between this transaction and another one")
	}
	ls.give(slices.Index(ls.queue, l))
	return l.given, nil
}

func (ls *locks) circle(l *locker) bool {
	return slices.ContainsFunc(ls.queue, func(o *locker) bool {
		return o != l && conflict(l.wanted, o.held) && conflict(l.held, o.wanted)
	})
}

// release frees all spans that l holds, and withdraws its request.
func (ls *locks) release(l *locker) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	ls.remove(l)
}

func (ls *locks) remove(l *locker) {
	if i := slices.Index(ls.queue, l); i >= 0 {
		ls.queue = slices.Delete(ls.queue, i, i+1)
	}
	for i := range ls.queue {
		ls.give(i)
	}
}

func (ls *locks) give(i int) {
	l := ls.queue[i]
	if l.wanted == nil || ls.blocked(i) {
		return
	}
	l.held, l.wanted = inOrder(append(l.held, l.wanted...)), nil
	close(l.given)
}

// blocked reports whether the i-th locker has to wait. It has to wait if another locker holds a span that it wants. It
// also waits for earlier lockers that want the same span, unless it already holds spans itself. In that case, waiting
// could cause a deadlock, because an earlier locker may be waiting for these spans.
func (ls *locks) blocked(i int) bool {
	l := ls.queue[i]
	for j, o := range ls.queue {
		if j != i && (conflict(l.wanted, o.held) || j < i && l.held == nil && conflict(l.wanted, o.wanted)) {
			return true
		}
	}
	return false
}
