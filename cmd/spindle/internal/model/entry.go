// Package model says what is in a lock table: locks, groups, members and waiters, with their states, as text for people
// and as JSON for programs.
//
//   - states.go: the states, with the worst first
//   - sentence.go, waiters.go: the text for a single lock, and for the processes that wait for it
//   - lockjson.go: a lock as JSON
//   - entry.go: a lock as an entry in a list
//   - group.go: a group with its members and partitions
//   - read.go: reading locks by name
//   - expect.go: the locks that should have a holder (--expect)
package model

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"github.com/spindle-lock/spindle/cmd/spindle/internal/terminal"
	"github.com/spindle-lock/spindle/internal/operator"
)

// An Entry is one item in a list, such as a lock.
type Entry struct {
	Name         string // the list is sorted by it
	terminal.Row        // for people
	State        operator.State
	Order        SortKeys
	Mark         string // changes only if the lock or group has changed
	Object       any    // the JSON form
	Trouble      error
}

// Rows returns the entries' rows, for people.
func Rows(all []Entry) []terminal.Row {
	rows := make([]terminal.Row, len(all))
	for i, e := range all {
		rows[i] = e.Row
	}
	return rows
}

// SortKeys has the keys, other than name and state, that entries can be sorted by.
type SortKeys struct {
	Holder  string
	Since   time.Time // zero if it has none
	Beat    time.Time
	Lease   time.Duration
	Waiting int
	Longest time.Duration
}

// The headings of lists of locks.
var (
	LockColumns = []string{"LOCK", "STATE", "TOKEN", "SINCE", "BEAT", "LEASE", "HOLDER AND VALUE"}
	WideColumns = []string{"LOCK", "STATE", "TOKEN", "SINCE", "BEAT", "LEASE", "WAITING", "LAST DONE", "HOLDER", "VALUE"}
)

// LockEntry returns a lock's entry in a list.
func LockEntry(l operator.Listing) Entry {
	e := entryOf(l)
	e.Mark = markOf(l)
	e.Row = terminal.Row{Cells: cells(l), More: []string{orNone(Waiting(l)), orNone(lastDone(l)), orNone(terminal.Show(l.Holder()))}, Style: Styles[l.State()],
		Tail: terminal.Join("  ", whose(l), Waiting(l)), Last: orNone(valueOf(l)), Below: DoneLine(l)}
	return e
}

// entryOf returns a lock's entry, without its row.
func entryOf(l operator.Listing) Entry {
	return Entry{Name: l.Name, State: l.State(), Order: sortKeysOf(l), Object: JSONOf(l), Trouble: l.Unreadable}
}

func sortKeysOf(l operator.Listing) SortKeys {
	r := SortKeys{Holder: l.Holder(), Beat: l.Heartbeat, Waiting: len(l.Waiters), Longest: l.LongestWait()}
	if l.Token != 0 {
		r.Since = l.Since()
	}
	if l.LeaseRecord != nil {
		r.Lease = l.LeaseRecord.Lease
	}
	return r
}

// markOf returns a lock's Mark. Heartbeats and waiters are not part of it, because they change all the time.
func markOf(l operator.Listing) string {
	return fmt.Sprint(l.State(), l.Token, l.Holder(), valueOf(l), l.Done.Key, l.Done.At.UnixMicro(), l.Unreadable, l.Undone)
}

func orNone(s string) string { return cmp.Or(s, "-") }

func lastDone(l operator.Listing) string { return strings.TrimPrefix(DoneLine(l), "last done: ") }

// valueOf returns the value that the holder of a lock published.
func valueOf(l operator.Listing) string {
	if l.LeaseRecord == nil {
		return ""
	}
	return terminal.Show(l.LeaseRecord.Value)
}

// whose returns the holder of a lock and the value that the holder published.
func whose(l operator.Listing) string {
	return terminal.Join("  ", terminal.Show(l.Holder()), valueOf(l))
}

// cells returns the columns of a lock for people, without its holder and value.
func cells(l operator.Listing) []string {
	since, beat, lease, token := "-", "-", "-", "-"
	if l.Token != 0 {
		token, since = l.Token.String(), terminal.Short(l.At.Sub(l.Since()))
	}
	if l.Exists && l.Heartbeat.IsZero() {
		token = "-" // it belongs to no term
	}
	if !l.Heartbeat.IsZero() {
		beat = terminal.Short(l.At.Sub(l.Heartbeat))
	}
	if l.LeaseRecord != nil {
		lease = l.LeaseRecord.Lease.String()
	}
	return []string{terminal.Show(l.Name), string(l.State()), token, since, beat, lease}
}
