// Package table implements the steps of the protocol on the lock table. Other packages contain the loops that run these
// steps.
//
//   - key.go: the names that locks can have, and the keys of their rows
//   - store.go: the protocol's interface to Spanner; spanner.go implements it
//   - record.go: the lease record; kind.go: the purpose of a lock; format.go: rows of newer versions
//   - observe.go, claim.go, hold.go: the steps, in the order of docs/locks.md
//   - ticket.go: the queue of waiters, for locks that processes hold in turn
//   - missing.go: what an error shows about rows; list.go: an operator's view of the table; busy.go: the same without
//     released locks
//   - prune.go: the removal of rows that are no longer needed
//
// Every step that writes takes any number of names and handles them in one commit.
package table

// Table runs the steps of the protocol on a store.
type Table struct {
	Store Store
}
