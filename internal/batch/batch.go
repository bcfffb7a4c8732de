// Package batch lets the locks of one process share requests. Heartbeats that are sent at about the same time go into one
// commit, and looks into one read. To the protocol nothing changes: a request may always have been slow.
//
//   - batch.go: which requests are shared, and with which others
//   - commits.go: heartbeats; reads.go: looks
//   - gathering.go: how requests are collected
package batch

import (
	"context"
	"runtime"
	"slices"
	"sync"
	"time"
	"weak"

	"cloud.google.com/go/spanner"

	"github.com/spindle-lock/spindle/internal/table"
)

// Requests collects the requests of one process to one lock table. The zero value is ready to use.
type Requests struct {
	commits gathering[*commit]
	reads   gathering[*read]
}

// longestWindow limits how long a request waits for others.
const longestWindow = 5 * time.Millisecond

// Store returns a store that shares its heartbeats and looks with the other stores of r, which must be stores of the same
// table. A heartbeat waits for others for up to 5 ms, or lease/50 if that is shorter. A look that has no company is sent
// immediately.
func (r *Requests) Store(s table.Store, lease time.Duration) table.Store {
	return &store{Store: s, requests: r, window: min(longestWindow, lease/50)}
}

type store struct {
	table.Store
	requests *Requests
	window   time.Duration
}

// sharedReads are the steps whose reads are shared. Each reads a few rows of a few locks.
var sharedReads = []string{"observe", "lease-record", "asked"}

// Read implements table.Store.
func (s *store) Read(ctx context.Context, step string, bound table.Bound, keys table.Keys) ([]table.Row, time.Time, error) {
	if keys.All || !slices.Contains(sharedReads, step) {
		return s.Store.Read(ctx, step, bound, keys)
	}
	r := &read{ctx: ctx, store: s.Store, step: step, bound: bound, keys: keys, answered: make(chan struct{})}
	s.requests.reads.addPromptly(r, s.window, readAll)
	select {
	case <-r.answered:
		return r.rows, r.at, r.err
	case <-ctx.Done():
		return nil, time.Time{}, ctx.Err()
	}
}

// Commit implements table.Store.
func (s *store) Commit(ctx context.Context, step string, writes []table.Write) error {
	if step != "heartbeat" {
		return s.Store.Commit(ctx, step, writes)
	}
	c := &commit{ctx: ctx, store: s.Store, writes: writes, answer: make(chan error, 1)}
	s.requests.commits.add(c, s.window, commitAll)
	select {
	case err := <-c.answer:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Of returns the Requests of the locks in a table that use this client. They live as long as the client.
func Of(db *spanner.Client, tableName string) *Requests {
	key := tableOf{weak.Make(db), table.Canonical(tableName)}
	processWide.Lock()
	defer processWide.Unlock()
	r := processWide.byTable[key]
	if r == nil {
		r = &Requests{}
		processWide.byTable[key] = r
		runtime.AddCleanup(db, forget, key)
	}
	return r
}

type tableOf struct {
	db    weak.Pointer[spanner.Client]
	table string
}

var processWide = struct {
	sync.Mutex
	byTable map[tableOf]*Requests
}{byTable: map[tableOf]*Requests{}}

func forget(key tableOf) {
	processWide.Lock()
	defer processWide.Unlock()
	delete(processWide.byTable, key)
}
