// Package watch is the screen of spindle watch: the locks of a table on a terminal, those in trouble first.
//
// Its model is pure. It changes only by messages: keys, the size of the terminal, the time, and snapshots of the table.
// One goroutine reads the table and sends snapshots, which nobody changes afterwards.
package watch

import (
	"context"
	"time"

	"github.com/spindle-lock/spindle/internal/table"
)

// A Row is a lock or a group as one read found it. Its times are as of that read.
type Row struct {
	Name   string // in the table
	Label  string // the name, harmless on a terminal
	State  table.State
	Holder string // harmless on a terminal, as all that follows
	Value  string
	Note   string // who waits for it, or what is in the group
	Token  table.Token
	Since  string        // how long ago the term began, or the lock was released
	Age    time.Duration // the same, to sort by
	Lease  time.Duration // 0: it has none
	Left   time.Duration // of the lease
	Ends   string        // how much is left of it, or how long ago it ran out
	Group  bool          // it is no lock

	Detail func(width int) string // all that is known of it
}

// A Change is what happened to a lock between two reads.
type Change struct {
	At    time.Time // by Spanner's clock
	Label string
	State table.State
	Text  string
}

// A Snapshot is what one read of the table found.
type Snapshot struct {
	Rows    []Row
	At      time.Time // by Spanner's clock
	Read    time.Time // by the local clock
	Changes []Change  // since the read before
}

// Released is what a read of the released locks found.
type Released struct {
	Rows []Row
	At   time.Time // by Spanner's clock
}

// An Action is what an operator may do to a lock.
type Action struct {
	Key  string
	Name string
	// Ask looks at the lock again. Its error says why the action is not possible. A token of 0 is no term's.
	Ask func(ctx context.Context, name string, token table.Token) (Question, error)
}

// A Question is asked before an action.
type Question struct {
	Text string                                // it names the lock, its holder and the token
	Yes  func(context.Context) (string, error) // acts on that term, and says what came of it
}

// A Table is what the screen shows, and what may be done to its locks.
type Table struct {
	Title string
	None  string // what to say if it has no rows
	// Read reads all locks but the released ones.
	Read func(context.Context) (Snapshot, error)
	// Released reads the released ones; nil: Read has them.
	Released func(context.Context) (Released, error)
	// Fatal reports whether the first read failed in such a way that others will too.
	Fatal   func(error) bool
	Actions []Action
	Every   time.Duration // from a read to the next one
	Limit   time.Duration // for each read
}
