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
	return all
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

// conflict reports whether a span of as overlaps one of bs. Both are sorted, because commits can have hundreds of spans.
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

// locker is a commit that holds locks or waits for them.
type locker struct {
	spans []span
	holds bool
	given chan struct{} // closed when it holds them
}

// acquire waits until it has locked the spans, for the caller to release.
func (ls *locks) acquire(ctx context.Context, spans []span) (*locker, error) {
	l := &locker{spans: inOrder(spans), given: make(chan struct{})}
	ls.mu.Lock()
	ls.queue = append(ls.queue, l)
	ls.give()
	ls.mu.Unlock()
	select {
	case <-l.given:
		return l, nil
	case <-ctx.Done():
		ls.release(l)
		return nil, ended(ctx)
	}
}

// release frees the locks of l, or withdraws its request.
func (ls *locks) release(l *locker) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	ls.queue = slices.DeleteFunc(ls.queue, func(o *locker) bool { return o == l })
	ls.give()
}

// give grants the locks of requests that do not conflict with an earlier request.
func (ls *locks) give() {
	for i, l := range ls.queue {
		if !l.holds && !slices.ContainsFunc(ls.queue[:i], func(o *locker) bool { return conflict(l.spans, o.spans) }) {
			l.holds = true
			close(l.given)
		}
	}
}
