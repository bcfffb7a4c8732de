// Package batch combines requests that the locks of one process make to the same lock table. Heartbeats that are sent
// at about the same time share one commit, and polls share one read. Requests.Store says how long this can delay a
// request. The protocol tolerates the delay, because any request can be slow.
//
//   - batch.go: decides which requests are combined
//   - commits.go: combines heartbeats
//   - reads.go: combines reads
//   - gathering.go: collects requests until they are sent
package batch

import (
	"cmp"
	"context"
	"runtime"
	"slices"
	"sync"
	"time"
	"weak"

	"cloud.google.com/go/spanner"

	"github.com/spindle-lock/spindle/internal/elect"
	"github.com/spindle-lock/spindle/internal/table"
)

// Requests collects the requests of one process to one lock table. The zero value is ready to use.
type Requests struct {
	Heartbeats table.Store // sends the heartbeats, so that they wait for no other request; nil: the store of each lock

	Claims elect.Gate // limits the claims, even if requests are not combined

	commits gathering[*commit]
	reads   gathering[*read]
}

// longestWindow limits the window of each store (see Requests.Store).
const longestWindow = 5 * time.Millisecond

// Store returns a store for locks with the given lease. It combines their heartbeats and polls with the requests of all
// other stores that this method has returned. All of these stores must use the same table.
//
// The window is 5 ms, or lease/50 if that is shorter. A heartbeat waits for one window so that others can join it.
// While earlier heartbeats are unanswered, it waits for the answers instead, for up to lease/50, or for up to lease/10
// if r.Claims has a limit. A poll is sent immediately, unless the previous read is unanswered or combined several
// polls. In that case, the poll waits until one window after the previous read was sent.
func (r *Requests) Store(s table.Store, lease time.Duration) table.Store {
	return &store{Store: s, requests: r, window: min(longestWindow, lease/50), lease: lease}
}

type store struct {
	table.Store
	requests *Requests
	window   time.Duration
	lease    time.Duration
}

// busy returns how long a heartbeat waits, at most, for earlier heartbeats to be answered. It waits longer if the gate
// has a limit: transactions then abort each other, and another commit would only cause more aborts.
func (s *store) busy() time.Duration {
	if s.requests.Claims.Bounded() {
		return s.lease / 10
	}
	return s.lease / 50
}

// sharedReads are the steps whose reads are shared. Each of these steps reads a few rows of a few locks.
var sharedReads = []string{"observe", "lease-record", "asked"}

// Read implements table.Store.
func (s *store) Read(ctx context.Context, step string, bound table.Bound, keys table.Keys) ([]table.Row, time.Time, error) {
	if keys.All || table.ApartOf(ctx) > 0 || !slices.Contains(sharedReads, step) {
		return s.Store.Read(ctx, step, bound, keys)
	}
	ctx, explain := table.Listen(ctx)
	r := &read{ctx: ctx, store: s.Store, step: step, bound: bound, keys: keys, answered: make(chan struct{})}
	s.requests.reads.addPromptly(r, s.window, readAll)
	select {
	case <-r.answered:
		return r.rows, r.at, r.err
	case <-ctx.Done():
		return nil, time.Time{}, explain(ctx.Err())
	}
}

// Commit implements table.Store.
func (s *store) Commit(ctx context.Context, step string, writes []table.Write) error {
	if step != "heartbeat" {
		return s.Store.Commit(ctx, step, writes)
	}
	ctx, explain := table.Listen(ctx)
	c := &commit{ctx: ctx, store: cmp.Or(s.requests.Heartbeats, s.Store), gate: &s.requests.Claims, writes: writes, attempt: table.ApartOf(ctx), answer: make(chan error, 1)}
	s.requests.commits.add(c, s.window, s.busy(), commitAll)
	select {
	case err := <-c.answer:
		return err
	case <-ctx.Done():
		return explain(ctx.Err())
	}
}

// Of returns the Requests for all locks that use this client and this table. The Requests live as long as the client.
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
