// Package table has the operations of the protocol on the lock table, apart from the loops that use them.
//
//   - key.go: which names a lock may have, and the keys of its rows
//   - store.go: the protocol's interface to Spanner; spanner.go implements it
//   - record.go: what a holder writes into its lease row; kind.go: what a lock is for; format.go: rows of newer versions
//   - observe.go, claim.go, hold.go: the steps, in the order of docs/locks.md
//   - ticket.go: who waits for a lock, for locks that take turns
//   - missing.go: what an error says about rows; list.go: what an operator sees of the table;
//     busy.go: without released locks
//   - prune.go: how rows that nobody needs are removed
//
// Every step takes any number of names and is one commit for all of them.
package table

// Table runs the steps of the protocol on a store.
type Table struct {
	Store Store
}
