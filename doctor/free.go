package doctor

import (
	"errors"
	"time"

	"cloud.google.com/go/spanner"
	"google.golang.org/grpc/codes"

	"github.com/spindle-lock/spindle/internal/table"
)

// freeRows checks the way in which package lock hands a released lock to the next holder. It acquires a lock, releases
// it so that a free row remains, and claims it again in a commit that consumes the free row. It sends that commit
// twice, to imitate a duplicated request.
func (e *exam) freeRows() string {
	name := e.base + "/free"
	must(e.table.ReleaseFree(e.ctx, get(e.elect("first", name)), time.Minute, name))
	var claim table.FreeClaim
	if !e.await(func() (free bool) {
		seen := get(e.table.LookAtLeases(e.ctx, time.Now(), name))
		claim, free = table.NewFreeClaim("second", table.LeaseRecord{Lease: time.Minute, Nonce: e.base}, seen...)
		return free
	}) {
		must(&finding{NotChecked, "a release was still not visible to reads after five seconds", slowFree, reportIt})
	}
	switch err := e.table.ClaimFree(e.ctx, claim); {
	case spanner.ErrCode(err) == codes.FailedPrecondition:
		must(&finding{Warning, "a timestamp in the past is refused: " + oneLine(err), slowFree, reportIt})
	case !isGone(err): // the row may be missing because the claim was applied
		does("claim", err)
	}
	if err := e.table.ClaimFree(e.ctx, claim); !isGone(err) {
		refute("claiming with a missing free row should have failed with NOT_FOUND, but got: %v", err)
	}
	if get(e.table.Outcome(e.ctx, claim)) != table.Won {
		refute("a claim was applied, but a read of the lock did not find the claim's nonce")
	}
	if row := e.row(name); table.TokenAt(row.Token) != claim.Token || !row.Token.Before(row.Heartbeat) {
		refute("after a claim, the lock row has heartbeat %v and token %v; want token %v and a later heartbeat", row.Heartbeat, row.Token, claim.Token.Time())
	}
	must(e.table.ReleaseFree(e.ctx, claim.Token, time.Minute, name))
	return "a released lock was claimed in one commit, and a duplicate of that commit was refused"
}

// isGone reports whether err may mean that a row does not exist.
func isGone(err error) bool {
	return errors.Is(err, table.ErrMissing) || errors.Is(err, table.ErrNotFound)
}

// queue inserts tickets, as waiting processes do, and reads them back with a row limit that is smaller than the number
// of tickets. The read must return the first tickets, in key order.
func (e *exam) queue() string {
	name := e.base + "/queue"
	var put, remove []table.Write
	for i := range table.MostTickets + 8 {
		t := table.Ticket{Queue: name, Time: table.Token(i + 1), Nonce: "doctor", ID: e.base, Grace: time.Second, Lasts: table.LastsFor(0, false)}
		put, remove = append(put, t.Put()), append(remove, t.Delete())
	}
	must(e.table.Queue(e.ctx, put...))
	var found []table.Ticket
	e.await(func() bool {
		rows, _ := e.read(table.Present, table.Keys{Ranges: []table.Range{table.Waiting(name, "")}, Limit: table.MostTickets})
		found = table.Tickets(name, rows)
		return len(found) > 0
	})
	must(e.table.Queue(e.ctx, remove...))
	for i, t := range found[:min(len(found), table.MostTickets)] {
		if t.Time != table.Token(i+1) || t.ID != e.base {
			warn("position %d of the queue has the wrong ticket, with ID %q and time %d", i+1, t.ID, t.Time)
		}
	}
	if len(found) < table.MostTickets {
		warn("a read with a row limit returned only %[2]d tickets, although the queue has %[1]d", len(put), len(found))
	}
	return "reads return waiting processes in the order in which they arrived"
}
