package batch

import (
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spindle-lock/spindle/internal/table"
)

// read is one lock's request for rows.
type read struct {
	ctx   context.Context
	store table.Store
	step  string
	bound table.Bound
	keys  table.Keys

	// These fields contain the answer once answered is closed.
	rows     []table.Row
	at       time.Time
	err      error
	answered chan struct{}
}

// maxKeys limits the number of keys in a combined read, so that no candidate waits for thousands of other candidates'
// rows.
const maxKeys = 1000

// readAll answers the requests with as few reads as maxKeys and the requests' bounds allow.
func readAll(all []*read) {
	bound := func(r *read) int { return int(r.bound) }
	size := func(r *read) int { return len(r.keys.Names) + len(r.keys.Ranges) }
	var sent sync.WaitGroup
	for _, part := range parts(all, bound, size, func(int) int { return maxKeys }) {
		sent.Go(func() { readTogether(part) })
	}
	sent.Wait()
}

// readTogether answers all requests from one snapshot. If the combined limit may have cut off some rows, it sends each
// request separately instead.
func readTogether(all []*read) {
	merged := merge(all)
	contexts := make([]context.Context, len(all))
	for i, r := range all {
		contexts[i] = r.ctx
	}
	ctx, cancel := together(contexts)
	defer cancel()
	rows, at, err := all[0].store.Read(ctx, all[0].step, all[0].bound, merged)
	if len(all) > 1 && merged.Limit > 0 && len(rows) >= merged.Limit {
		readEach(all)
		return
	}
	slices.SortFunc(rows, func(a, b table.Row) int { return strings.Compare(a.Name, b.Name) })
	for _, r := range all {
		r.reply(rows, at, err)
	}
}

func readEach(all []*read) {
	var sent sync.WaitGroup
	for _, r := range all {
		sent.Go(func() {
			rows, at, err := r.store.Read(r.ctx, r.step, r.bound, r.keys)
			r.reply(rows, at, err)
		})
	}
	sent.Wait()
}

// merge returns the keys of all requests. Their limit is the sum of the requests' limits. If any request has no limit,
// the merged keys have none.
func merge(all []*read) table.Keys {
	var keys table.Keys
	names, ranges, limited := map[string]bool{}, map[table.Range]bool{}, true
	for _, r := range all {
		for _, name := range r.keys.Names {
			if !names[name] {
				names[name] = true
				keys.Names = append(keys.Names, name)
			}
		}
		for _, within := range r.keys.Ranges {
			if !ranges[within] {
				ranges[within] = true
				keys.Ranges = append(keys.Ranges, within)
			}
		}
		limited = limited && r.keys.Limit > 0
		keys.Limit += r.keys.Limit
	}
	if !limited {
		keys.Limit = 0
	}
	return keys
}

// reply answers a request with the rows that it asked for. The rows must be sorted by key.
func (r *read) reply(rows []table.Row, at time.Time, err error) {
	defer close(r.answered)
	if r.at, r.err = at, err; err != nil {
		return
	}
	names := map[string]bool{}
	for _, name := range r.keys.Names {
		names[name] = true
	}
	for _, row := range rows {
		within := func(k table.Range) bool { return k.From <= row.Name && row.Name <= k.To }
		if names[row.Name] || slices.ContainsFunc(r.keys.Ranges, within) {
			r.rows = append(r.rows, row)
		}
	}
	if r.keys.Limit > 0 {
		r.rows = r.rows[:min(r.keys.Limit, len(r.rows))]
	}
}
