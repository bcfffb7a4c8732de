package doctor

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"cloud.google.com/go/spanner"
	"google.golang.org/grpc/codes"

	"github.com/spindle-lock/spindle/internal/table"
)

// cycle takes a lock through a whole life cycle, using the same operations as a candidate.
func cycle(e *exam) string {
	name := e.base + "/cycle"
	first := get(e.elect("first", name))
	does("heartbeat", e.table.Heartbeat(e.ctx, first, name))
	second := get(e.elect("second", name))
	larger(first, second)
	for step, err := range map[string]error{"heartbeat": e.table.Heartbeat(e.ctx, first, name), "release": e.table.Release(e.ctx, first, name)} {
		if !errors.Is(err, table.ErrSuperseded) {
			refuteUnlessPassing(err, "a superseded holder's %s should have failed with ErrSuperseded", step)
		}
	}
	if !get(e.table.Valid(e.ctx, second, name)) {
		refute("a holder's token is not valid")
	}
	does("release", e.table.Release(e.ctx, second, name))
	free := e.await(func() bool { return get(e.table.LookAtLeases(e.ctx, time.Now(), name))[0].Heartbeat.IsZero() })
	if !free || get(e.table.Valid(e.ctx, second, name)) {
		refute("a released lock is still taken")
	}
	return "a lock was claimed, confirmed, extended, superseded and released"
}

// larger checks that the second of two consecutive terms has the larger token.
func larger(first, second table.Token) {
	if second <= first {
		refute("the token of the second term, %d, is not larger than the token of the first, %d", second, first)
	}
}

const (
	rounds = 5
	lead   = 30 * time.Millisecond // time for the fenced commits to start before the claim
)

// race runs fenced commits while a claim supersedes their token, and repeats this several times. Each fenced commit
// must either have an earlier timestamp than the claim or be refused. The last ones begin after the claim was answered.
func race(e *exam) string {
	var landed, refused int
	for i := range rounds {
		name := fmt.Sprintf("%s/fence/%d", e.base, i)
		token := prepared(e.elect("first", name))
		var writers sync.WaitGroup
		fenced := []*fencedWriter{{blind: true}, {blind: false}}
		over := make(chan struct{})
		for n, w := range fenced {
			writers.Go(func() { w.write(e, name, fmt.Sprintf("%s/by/%d", name, n), token, over) })
		}
		e.pause(lead)
		next, err := e.claim("second", name)
		close(over)
		writers.Wait()
		prepared(next, err)
		for _, w := range fenced {
			landedBefore(next, w.last, token)
			prepared(0, w.err)
			landed, refused = landed+w.landed, refused+w.refused
		}
	}
	return raced(landed, refused)
}

// landedBefore checks that the last commit fenced by a token has an earlier timestamp than the claim that superseded
// the token.
func landedBefore(next, last, token table.Token) {
	if last >= next {
		refute("a commit fenced by token %d has the timestamp %d, but a claim superseded that token at %d", token, last, next)
	}
}

// raced ends the probe if no fenced commit succeeded, because the race then proves nothing.
func raced(landed, refused int) string {
	if landed == 0 {
		must(fmt.Errorf("%w: no fenced commit succeeded before its token was superseded", errNotTheQuestion))
	}
	return fmt.Sprintf("%d claims ran concurrently with fenced commits; %d fenced commits succeeded before their tokens were superseded, and %d were refused", rounds, landed, refused)
}

// fencedWriter is a holder that keeps writing under its token.
type fencedWriter struct {
	blind           bool
	landed, refused int
	last            table.Token // the timestamp of the last successful commit
	err             error       // why it is not known whether the last commit of all is refused
}

// write keeps committing until the fence refuses a commit. When over is closed, it commits one last time, because a
// database that refuses the commits that run during a claim might accept one that begins after the claim. The last
// commit is repeated until it has either succeeded or been refused.
func (w *fencedWriter) write(e *exam, lock, row string, token table.Token, over <-chan struct{}) {
	commit := func() error {
		at, err := e.apply("doctor-fence", w.blind, row, e.spanner.Fence(lock, token))
		switch {
		case err == nil:
			w.landed++
			w.last = table.TokenAt(at)
		case isMissing(err):
			w.refused++
		}
		return err
	}
	for e.ctx.Err() == nil {
		if w.refused > 0 {
			<-over
		}
		select {
		case <-over:
			if w.err = retry(commit); isMissing(w.err) {
				w.err = nil
			}
			return
		default:
			_ = commit()
		}
	}
}

// freeRows checks how package lock hands a released lock to the next holder. It acquires a lock, releases it so that a
// free row remains, and claims it again in a commit that deletes the free row. It sends that commit twice, to imitate a
// duplicate request.
func freeRows(e *exam) string {
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
		refuteUnlessPassing(err, "a claim whose free row is missing should have failed with NOT_FOUND")
	}
	if get(e.table.Outcome(e.ctx, claim)) != table.Won {
		refute("a claim was applied, but a read of the lease row did not find the claim's nonce")
	}
	if row := e.row(name); table.TokenAt(row.Token) != claim.Token || !row.Token.Before(row.Heartbeat) {
		refute("after a claim, the lock row has heartbeat %v and token %v; expected token %v and a later heartbeat", row.Heartbeat, row.Token, claim.Token.Time())
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
func queue(e *exam) string {
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
		warn("a read with a row limit returned %[2]d of %[1]d tickets, which is fewer than the limit", len(put), len(found))
	}
	return "reads return waiting processes in the order in which they arrived"
}

// group claims two partitions for a member, as the members of a group do. It tries to confirm the first one while the
// member is in the group, and the second one after the member has left. The second confirmation must fail because the
// member's lease row is missing, even though the transaction does not read that row.
func group(e *exam) string {
	name, first, second := e.base+"/group/member", e.base+"/group/first", e.base+"/group/second"
	token := prepared(e.elect("member", name))
	member := table.LeaseRef{Name: name, Token: token}
	taken := e.claimPartition(member, first)
	if e.isRefused(member, first, taken) {
		refute("a confirmation was refused although the member's lease row exists")
	}
	prepared(token, e.table.Release(e.ctx, token, name))
	if !e.isRefused(member, second, e.claimPartition(member, second)) {
		refute("a partition was confirmed for a member that had left the group")
	}
	if row := e.row(second); !row.Heartbeat.Equal(row.Token) {
		refute("a refused confirmation changed the partition")
	}
	does("release", e.table.ReleasePartitions(e.ctx, table.LeaseRef{Name: first, Token: taken}))
	return "a partition was confirmed while its member was in the group, but not after the member had left"
}

func (e *exam) claimPartition(member table.LeaseRef, name string) table.Token {
	return get(e.take(name, func(seen []table.Observation) (table.Token, error) {
		token, _, err := e.table.ClaimPartitions(e.ctx, member, seen...)
		return token, err
	}))
}

// isRefused tries to confirm a partition, and reports whether Spanner refused because the member's lease row is
// missing.
func (e *exam) isRefused(member table.LeaseRef, name string, token table.Token) bool {
	err := retry(func() error {
		_, err := e.table.ConfirmPartitions(e.ctx, member, table.LeaseRecord{Lease: limit}, token, name)
		return err
	})
	if isMissing(err) {
		return true
	}
	must(err)
	return false
}

// isMissing reports whether err means that a row does not exist, even if err does not say what was not found.
func isMissing(err error) bool {
	return table.Missing(err) || spanner.ErrCode(err) == codes.NotFound && !overrun(err)
}

const (
	manyNames  = 500
	manyRanges = 500
	everyNth   = 50 // one in this many names and ranges has a row
)

// manyKeys reads many keys and key ranges in one snapshot, as the members of a group do. Most of these keys and ranges
// match no row.
func manyKeys(e *exam) string {
	var keys table.Keys
	var writes []table.Write
	there := map[string]bool{}
	for i := range manyNames + manyRanges {
		name := fmt.Sprintf("%s/keys/%04d", e.base, i)
		if i < manyNames {
			keys.Names = append(keys.Names, name)
		} else {
			keys.Ranges = append(keys.Ranges, table.Range{From: name, To: name + "~"})
		}
		if i%everyNth == 0 {
			there[name] = true
			writes = append(writes, table.Write{Kind: table.Insert, Name: name, Set: now(table.ColToken)})
		}
	}
	must(e.Commit(e.ctx, "doctor", writes))
	var rows []table.Row
	var took time.Duration
	found := map[string]bool{}
	if !e.await(func() bool {
		began := time.Now()
		rows, _ = e.read(table.Present, keys)
		took = time.Since(began)
		clear(found)
		for _, row := range rows {
			if there[row.Name] {
				found[row.Name] = true
			}
		}
		return len(found) == len(there) && len(rows) == len(there)
	}) {
		refute("a read of %d keys and %d ranges returned %d rows, %d of the %d rows that exist; it should have returned each of these once", manyNames, manyRanges, len(rows), len(found), len(there))
	}
	return fmt.Sprintf("%d keys and %d ranges in one read (%v)", manyNames, manyRanges, round(took))
}
