// Package model describes the contents of a lock table: locks, groups, members and waiters, with their states, as text
// for people and as JSON for programs.
//
//   - lock.go: a lock as JSON
//   - sentence.go: the text for a single lock, and for the processes that wait for it
//   - entry.go: the states, worst first, and the entry of a lock in a list
//   - group.go: a group with its members and partitions
//   - ending.go: why a term has ended
//   - pace.go: how often a table is read
//   - named.go: reading a lock by its name, and the locks that should have a holder (--expect)
package model

import (
	"cmp"
	"slices"
	"strings"

	"github.com/spindle-lock/spindle/cmd/spindle/internal/terminal"
	"github.com/spindle-lock/spindle/internal/operator"
)

// An Entry is one item in a list, such as a lock.
type Entry struct {
	operator.Listing // of a lock; for a group, a summary of its members
	terminal.Row     // for people
	State            operator.State
	Object           any // for programs
}

// Rows returns the entries' rows, for people.
func Rows(all []Entry) []terminal.Row {
	rows := make([]terminal.Row, len(all))
	for i, e := range all {
		rows[i] = e.Row
	}
	return rows
}

// The headings of lists of locks.
var (
	LockColumns = []string{"LOCK", "STATE", "TOKEN", "SINCE", "BEAT", "LEASE", "HOLDER AND VALUE"}
	WideColumns = []string{"LOCK", "STATE", "TOKEN", "SINCE", "BEAT", "LEASE", "WAITING", "LAST DONE", "HOLDER", "VALUE"}
)

// LockEntry returns a lock's entry in a list.
func LockEntry(l operator.Listing) Entry {
	done := strings.TrimPrefix(DoneLine(l), lastDone)
	return entryOf(l, terminal.Row{Cells: cells(l), More: []string{orNone(Waiting(l)), orNone(done), orNone(terminal.Show(l.Holder()))},
		Tail: terminal.Join("  ", whose(l), Waiting(l)), Last: orNone(valueOf(l)), Below: DoneLine(l)})
}

func entryOf(l operator.Listing, row terminal.Row) Entry {
	row.Style = Styles[l.State()]
	return Entry{Listing: l, Row: row, State: l.State(), Object: JSONOf(l)}
}

func orNone(s string) string { return cmp.Or(s, "-") }

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
	since, beat, lease := "-", "-", "-"
	if l.Token != 0 {
		since = terminal.Short(l.At.Sub(l.Since()))
	}
	if !l.Heartbeat.IsZero() {
		beat = terminal.Short(l.At.Sub(l.Heartbeat))
	}
	if l.LeaseRecord != nil {
		lease = l.LeaseRecord.Lease.String()
	}
	return []string{terminal.Show(l.Name), string(l.State()), orNone(tokenOf(l)), since, beat, lease}
}

// Styles maps each state to the style that it is shown in.
var Styles = map[operator.State]terminal.Style{
	operator.Held: terminal.Green, operator.Leaving: terminal.Amber, operator.Expired: terminal.Red, operator.Released: terminal.Faint, operator.Unconfirmed: terminal.Amber,
	operator.Orphaned: terminal.Red, operator.Unreadable: terminal.Red, operator.Free: terminal.Faint, operator.Paused: terminal.Amber, Partial: terminal.Amber,
}

// All are the values of --state, with the worst state first.
var All = []operator.State{operator.Unreadable, operator.Orphaned, operator.Expired, Partial, operator.Unconfirmed, operator.Leaving, operator.Paused, operator.Held, operator.Released, operator.Free}

// Concern returns a state's position in All, which is 0 for the worst state.
func Concern(s operator.State) int { return slices.Index(All, s) }

// Partial is the state of a group that has live members, but also partitions that have no holder and are not paused.
const Partial operator.State = "partial"

// Help explains the states of locks.
const Help = `The states of locks, by Spanner's clock:
  held         the holder's lease has not expired
  leaving      held, but the holder has announced that it will give up the lock
  expired      the holder's lease has expired; a candidate can claim the lock
               after its own lock delay, if it has one
  released     the last holder or an operator released the lock
  paused       a partition that nobody holds, because its member's program has
               paused it
  unconfirmed  a candidate has claimed the lock but does not hold it yet
  orphaned     the lock row was deleted, but a lease row remains; for a
               partition, the deleted row can be its member's lock row
  unreadable   the lease row does not contain a valid lease, or a newer version
               of spindle wrote it in a format that this version can't read
  free         nobody holds the lock, and it has no lock row; the table has only
               its last completed key, or the tickets of its waiters`
