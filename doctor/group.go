package doctor

import (
	"fmt"
	"time"

	"cloud.google.com/go/spanner"
	"google.golang.org/grpc/codes"

	"github.com/spindle-lock/spindle/internal/table"
)

// group claims and confirms two partitions for a member, the way a group does. It confirms the first partition while
// the member is in the group, and the second one after the member has left. The second confirmation must fail because
// the member's lease row is missing, even though its transaction does not read that row.
func (e *exam) group() string {
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

// isRefused confirms a partition. It reports whether Spanner refuses because the member's lease row is missing.
func (e *exam) isRefused(member table.LeaseRef, name string, token table.Token) bool {
	err := again(func() error {
		_, err := e.table.ConfirmPartitions(e.ctx, member, table.LeaseRecord{Lease: limit}, token, name)
		return err
	})
	if table.Missing(err) || spanner.ErrCode(err) == codes.NotFound && !overrun(err) {
		return true
	}
	must(err)
	return false
}

const (
	manyNames  = 500
	manyRanges = 500
	everyNth   = 50 // every nth of the names and ranges exists
)

// manyKeys reads many keys and key ranges in one snapshot, as the members of a group do. Most of these keys and ranges
// match no row.
func (e *exam) manyKeys() string {
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
	began := time.Now()
	rows, _ := e.read(table.Present, keys)
	took := time.Since(began)
	found := map[string]bool{}
	for _, row := range rows {
		found[row.Name] = there[row.Name]
	}
	if len(found) != len(there) || len(rows) != len(there) {
		refute("a read of %d keys and %d ranges returned %d of %d rows", manyNames, manyRanges, len(found), len(there))
	}
	return fmt.Sprintf("%d keys and %d ranges in one read (%v)", manyNames, manyRanges, round(took))
}
