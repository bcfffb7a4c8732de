// Package table implements the steps of the protocol on the lock table. Other packages contain the loops that run these
// steps.
//
//   - key.go: the names of locks, and the keys of their rows
//   - store.go: the protocol's interface to Spanner
//   - spanner.go: the implementation of this interface
//   - record.go: the lease record
//   - kind.go: what a lock is used for
//   - format.go: rows written by newer versions
//   - observe.go, claim.go, hold.go: the steps, in the order of docs/locks.md
//   - ticket.go: the queues of waiters, which package lock uses
//   - missing.go: errors about missing rows
//   - fault.go: what is wrong with Spanner, and whether waiting helps; heard.go: the last answer to a request that timed out
//   - list.go: the list of locks for operators
//   - busy.go: a faster list, without released locks
//   - prune.go: deletes rows that are no longer needed
//
// Every step that writes can handle several locks in one commit.
package table

// Table runs the steps of the protocol on a store.
type Table struct {
	Store Store
}
