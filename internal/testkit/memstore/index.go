package memstore

import (
	"iter"
	"slices"
	"strings"
	"time"

	"github.com/spindle-lock/spindle/internal/table"
)

// remembered is how long the index remembers a deleted row. As in Spanner, a transaction that has been open longer may
// be aborted.
const remembered = time.Hour

// index finds keys by range, and records when their rows last changed. The zero value is ready to use.
type index struct {
	sorted    []string             // the keys of all rows, and of recently deleted rows
	changed   map[string]time.Time // by key, the time of the last commit that changed the row
	deleted   []deletion           // in the order of their times
	forgotten time.Time            // the time of the latest deletion that is no longer remembered
}

type deletion struct {
	name string
	at   time.Time
}

// change records that a commit has changed, inserted or deleted a row.
func (x *index) change(name string, at time.Time, rows map[string]table.Row) {
	if x.changed == nil {
		x.changed = map[string]time.Time{}
	}
	if i, known := slices.BinarySearch(x.sorted, name); !known {
		x.sorted = slices.Insert(x.sorted, i, name)
	}
	x.changed[name] = at
	if _, exists := rows[name]; !exists {
		x.deleted = append(x.deleted, deletion{name, at})
	}
	for len(x.deleted) > 0 && at.Sub(x.deleted[0].at) > remembered {
		x.forget(x.deleted[0])
		x.deleted = x.deleted[1:]
	}
}

// forget removes a key, unless its row has changed since the deletion.
func (x *index) forget(d deletion) {
	x.forgotten = d.at
	if !x.changed[d.name].Equal(d.at) {
		return
	}
	delete(x.changed, d.name)
	if i, known := slices.BinarySearch(x.sorted, d.name); known {
		x.sorted = slices.Delete(x.sorted, i, i+1)
	}
}

// names returns the selected keys, ignoring Limit and Busy. A key may occur twice, and may have no row.
func (x *index) names(keys table.Keys) iter.Seq[string] {
	return func(yield func(string) bool) {
		if keys.All {
			i, _ := slices.BinarySearch(x.sorted, max(keys.Prefix, keys.After))
			for ; i < len(x.sorted) && strings.HasPrefix(x.sorted[i], keys.Prefix); i++ {
				if x.sorted[i] != keys.After && !yield(x.sorted[i]) {
					return
				}
			}
			return
		}
		for _, name := range keys.Names {
			if !yield(name) {
				return
			}
		}
		for _, r := range keys.Ranges {
			i, _ := slices.BinarySearch(x.sorted, r.From)
			for ; i < len(x.sorted) && x.sorted[i] <= r.To; i++ {
				if !yield(x.sorted[i]) {
					return
				}
			}
		}
	}
}
