package cli

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"github.com/spindle-lock/spindle/internal/table"
)

// An entry is one thing in a list: a lock, say.
type entry struct {
	name    string // by which the list is sorted
	row            // for people
	state   table.State
	order   sortKeys
	mark    string // what must not change if nothing happened to it
	json    any    // the same for scripts
	trouble error
}

// rows are the entries for people.
func rows(all []entry) []row {
	rows := make([]row, len(all))
	for i, e := range all {
		rows[i] = e.row
	}
	return rows
}

// A sortKeys has what else entries are sorted by.
type sortKeys struct {
	holder  string
	since   time.Time // zero: it has none
	beat    time.Time
	lease   time.Duration
	waiting int
	longest time.Duration
}

var (
	lockColumns = []string{"LOCK", "STATE", "TOKEN", "SINCE", "BEAT", "LEASE", "HOLDER AND VALUE"}
	wideColumns = []string{"LOCK", "STATE", "TOKEN", "SINCE", "BEAT", "LEASE", "WAITING", "LAST DONE", "HOLDER", "VALUE"}
)

func lockEntry(l table.Listing) entry {
	e := entryOf(l)
	e.mark = markOf(l)
	e.row = row{cells: cells(l), more: []string{orNone(waiting(l)), orNone(lastDone(l)), orNone(show(l.Holder()))}, style: styles[l.State()],
		tail: joined("  ", whose(l), waiting(l)), last: orNone(valueOf(l)), below: doneLine(l)}
	return e
}

// entryOf is the entry of a lock, without what people see.
func entryOf(l table.Listing) entry {
	return entry{name: l.Name, state: l.State(), order: sortKeysOf(l), json: jsonOf(l), trouble: l.Unreadable}
}

func sortKeysOf(l table.Listing) sortKeys {
	r := sortKeys{holder: l.Holder(), beat: l.Heartbeat, waiting: len(l.Waiters), longest: l.LongestWait()}
	if l.Token != 0 {
		r.since = l.Since()
	}
	if l.LeaseRecord != nil {
		r.lease = l.LeaseRecord.Lease
	}
	return r
}

// markOf has no heartbeat and no waiters: these change all the time.
func markOf(l table.Listing) string {
	return fmt.Sprint(l.State(), l.Token, l.Holder(), valueOf(l), l.Done.Key, l.Done.At.UnixMicro(), l.Unreadable, l.Undone)
}

func orNone(s string) string { return cmp.Or(s, "-") }

func lastDone(l table.Listing) string { return strings.TrimPrefix(doneLine(l), "last done: ") }

// valueOf is what the holder of a lock published.
func valueOf(l table.Listing) string {
	if l.LeaseRecord == nil {
		return ""
	}
	return show(l.LeaseRecord.Value)
}

// whose is the holder of a lock and what it published.
func whose(l table.Listing) string { return joined("  ", show(l.Holder()), valueOf(l)) }

// cells are the columns of a lock for people, without its holder and value.
func cells(l table.Listing) []string {
	since, beat, lease, token := "-", "-", "-", "-"
	if l.Token != 0 {
		token, since = l.Token.String(), short(l.At.Sub(l.Since()))
	}
	if l.State() == table.Released {
		token = "-" // it is no term's
	}
	if !l.Heartbeat.IsZero() {
		beat = short(l.At.Sub(l.Heartbeat))
	}
	if l.LeaseRecord != nil {
		lease = l.LeaseRecord.Lease.String()
	}
	return []string{show(l.Name), string(l.State()), token, since, beat, lease}
}
