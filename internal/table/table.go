// Package table implements the steps that the protocol (see docs/locks.md) takes on the lock table. Other packages
// contain the loops that run these steps. Most steps that write can handle several locks in one commit.
package table

import (
	"context"
	"slices"
	"time"
)

// Table runs the steps of the protocol on a store.
type Table struct {
	Store Store

	// Notify returns the text that tells other processes how to notify the writer of a row. The field is nil if this
	// process can't be notified.
	Notify func(row string) string

	beside *Beside
	also   []Write
}

// Beside is what a poll reads besides the rows of its locks.
type Beside struct {
	Names  []string // the keys of other rows
	Queues []Range  // of tickets; at least the first MostTickets tickets of each queue are read

	Rows []Row     // the rows that were read
	At   time.Time // zero until a poll has been answered
}

// Contact returns what a row should say about how to notify its writer, or "" if that is not possible.
func (t Table) Contact(row string) string {
	if t.Notify == nil {
		return ""
	}
	return t.Notify(row)
}

// Beside returns a Table whose polls also read b's keys. They store the rows in b even if a lock's rows can't be
// decoded.
func (t Table) Beside(b *Beside) Table {
	t.beside = b
	return t
}

// And returns a Table whose claims and releases also make these writes, in the same commit.
func (t Table) And(also ...Write) Table {
	t.also = also
	return t
}

// Read reads the selected rows in one snapshot, and also what Beside asks for.
func (t Table) Read(ctx context.Context, step string, bound Bound, keys Keys) (Rows, error) {
	b := t.beside
	if b == nil {
		rows, at, err := t.Store.Read(ctx, step, bound, keys)
		return RowsAt(at, rows), err
	}
	keys.Names = slices.Concat(keys.Names, b.Names)
	rows, at, err := readQueues(ctx, t.Store, step, bound, keys, b.Queues...)
	if err == nil {
		b.Rows, b.At = rows, at
	}
	return RowsAt(at, rows), err
}

// ReadAbout reads the current rows. The keys depend on an estimate of Spanner's time, because lease rows are read only
// if their tokens are at most one day after the estimate. If the estimate was more than 12 hours too early, ReadAbout
// repeats the read.
func (t Table) ReadAbout(ctx context.Context, step string, about time.Time, keys func(about time.Time) Keys) (Rows, error) {
	for {
		k := keys(about)
		rows, err := t.Read(ctx, step, Present, k)
		if err != nil || k.All || !rows.At.After(about.Add(12*time.Hour)) {
			return rows, err
		}
		about = rows.At
	}
}
