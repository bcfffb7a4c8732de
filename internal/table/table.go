// Package table implements the steps of the protocol on the lock table. Other packages contain the loops that run these
// steps.
//
//   - key.go: the names of locks, and the keys of their rows
//   - store.go: the protocol's interface to Spanner
//   - spanner.go: the implementation of this interface
//   - record.go: the lease record
//   - format.go: rows written by newer versions
//   - observe.go, claim.go, hold.go, release.go: the steps, in the order of docs/locks.md
//   - ticket.go: the queues of waiters, which package lock uses
//   - fault.go: what an error says, and whether waiting helps; heard.go: the last answer to a request that timed out
//   - rows.go: the rows of one snapshot, decoded
//   - busy.go: a faster read of the whole table, without released locks
//   - prune.go: deletes rows that package operator has found
//
// Every step that writes can handle several locks in one commit.
package table

import "time"

// Table runs the steps of the protocol on a store.
type Table struct {
	Store Store

	beside *Beside
	also   []Write
}

// Beside is what a poll reads besides the rows of its locks.
type Beside struct {
	Names  []string // of other rows
	Queues []Range  // of tickets; of each queue, the first MostTickets tickets are read, or a few more

	Rows []Row     // those that were read
	At   time.Time // zero until a poll has been answered
}

// Beside returns a Table whose polls also read b and store the answer there, even if they can't decode the locks' rows.
func (t Table) Beside(b *Beside) Table {
	t.beside = b
	return t
}

// And returns a Table whose claims and releases also make these writes, in the same commit.
func (t Table) And(also ...Write) Table {
	t.also = also
	return t
}
