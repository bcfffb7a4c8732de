// Package watch implements the screen of spindle watch, which shows the locks of a table on a terminal. Locks in
// trouble are at the top.
//
// The screen's model has no side effects. It changes only when it receives a message, such as a key press, a new
// terminal size, the current time, or a snapshot of the table. Other goroutines read the table and send the snapshots,
// and never modify a snapshot that they have sent.
package watch

import (
	"context"
	"time"

	"github.com/spindle-lock/spindle/internal/operator"
	"github.com/spindle-lock/spindle/internal/table"
)

// A Row is a lock or a group as one read found it. Its times are as of that read.
type Row struct {
	Name   string // in the table
	Label  string // the name, made harmless on a terminal
	State  operator.State
	Holder string // made harmless on a terminal, like all texts below
	Value  string
	Note   string // the waiters, or the members and partitions of the group
	Token  table.Token
	Since  string        // how long ago the term began, or the lock was released
	Age    time.Duration // the same time, for sorting
	Lease  time.Duration // 0 if it has none
	Left   time.Duration // of the lease
	Ends   string        // how much of the lease is left, or how long ago it ran out
	Group  bool          // the row is a group, not a lock

	Detail func(width int) string // returns the details
}

// A Change describes how a lock has changed between two reads.
type Change struct {
	At    time.Time // by Spanner's clock
	Label string
	State operator.State
	Text  string
}

// A Snapshot is the result of one read of the table.
type Snapshot struct {
	Rows    []Row
	At      time.Time // by Spanner's clock
	Read    time.Time // by the local clock
	Changes []Change  // since the previous read
}

// Released is the result of a read of the released locks.
type Released struct {
	Rows []Row
	At   time.Time // by Spanner's clock
}

// An Action is an operation that the user can perform on a lock.
type Action struct {
	Key  string
	Name string
	// Ask reads the lock again, and returns the question that the user has to answer before the action. If the action
	// is not possible, it returns an error that says why. The token is the one that the row shows, or 0 if it shows
	// none.
	Ask func(ctx context.Context, name string, token table.Token) (Question, error)
}

// A Question is asked before an action.
type Question struct {
	Text string                                // names the lock, its holder and the token
	Yes  func(context.Context) (string, error) // acts on that term, and describes the result
}

// A Table gives the screen its data, and the actions on its locks.
type Table struct {
	Title string
	None  string // the text for a table without rows
	// Read reads all locks except the released ones.
	Read func(context.Context) (Snapshot, error)
	// Released reads the released locks. If it is nil, Read returns them as well.
	Released func(context.Context) (Released, error)
	// Fatal reports whether the error of the first read shows that later reads would fail as well.
	Fatal   func(error) bool
	Actions []Action
	Every   time.Duration // the shortest pause between two reads
	Limit   time.Duration // for each read
}
