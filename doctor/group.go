package doctor

import (
	"context"
	"fmt"
	"time"

	"cloud.google.com/go/spanner"
	"google.golang.org/grpc/codes"

	"github.com/spindle-lock/spindle/internal/table"
)

// group claims and confirms partitions the way members do, one while the member's term lasts and one after the term has
// ended. The second confirmation must fail, because it requires the member's lease row, although its transaction does
// not read that row.
func (e *exam) group(ctx context.Context) (string, error) {
	name, first, second := e.base+"/group/member", e.base+"/group/first", e.base+"/group/second"
	token, err := e.elect(ctx, "member", name)
	if err != nil {
		return "", fmt.Errorf("%w: %w", errNotTheQuestion, err)
	}
	member := table.LeaseRef{Name: name, Token: token}
	taken, err := e.claimPartition(ctx, member, first)
	if err != nil {
		return "", err
	}
	switch refused, err := e.confirmPartition(ctx, member, first, taken); {
	case err != nil:
		return "", err
	case refused:
		return "", broken("a confirmation was refused although the member's lease row exists")
	}
	if err := e.table.Release(ctx, token, name); err != nil {
		return "", fmt.Errorf("%w: release: %w", errNotTheQuestion, err)
	}
	late, err := e.claimPartition(ctx, member, second)
	if err != nil {
		return "", err
	}
	switch refused, err := e.confirmPartition(ctx, member, second, late); {
	case err != nil:
		return "", err
	case !refused:
		return "", broken("a partition was confirmed for a member that had left the group")
	}
	row, err := e.row(ctx, second)
	switch {
	case err != nil:
		return "", err
	case !row.Heartbeat.Equal(row.Token):
		return "", broken("a refused confirmation changed the partition")
	}
	if err := e.table.ReleasePartitions(ctx, table.LeaseRef{Name: first, Token: taken}); err != nil {
		return "", fmt.Errorf("release: %w", err)
	}
	return "a partition is confirmed only while its member is in the group", nil
}

// claimPartition claims a partition.
func (e *exam) claimPartition(ctx context.Context, member table.LeaseRef, name string) (token table.Token, err error) {
	err = again(func() error {
		seen, err := e.table.Observe(ctx, name)
		if err != nil {
			return fmt.Errorf("observe: %w", err)
		}
		if token, _, err = e.table.ClaimPartitions(ctx, member, seen...); err != nil {
			return fmt.Errorf("claim: %w", err)
		}
		return nil
	})
	return token, err
}

// confirmPartition confirms a partition. It reports whether Spanner refused because the member's lease row is missing.
func (e *exam) confirmPartition(ctx context.Context, member table.LeaseRef, name string, token table.Token) (refused bool, err error) {
	err = again(func() error {
		_, err := e.table.ConfirmPartitions(ctx, member, table.LeaseRecord{Lease: limit}, token, name)
		if refused = table.Missing(err) || spanner.ErrCode(err) == codes.NotFound && !overrun(err); refused {
			return nil
		}
		return err
	})
	return refused, err
}

const (
	manyNames  = 500
	manyRanges = 500
	everyNth   = 50 // every nth of the names and ranges exists
)

// manyKeys reads rows the way members do, by keys and by ranges in one snapshot. Most of the keys and ranges have no
// row.
func (e *exam) manyKeys(ctx context.Context) (string, error) {
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
			writes = append(writes, table.Write{Kind: table.Insert, Name: name, Set: []table.Cell{{Column: table.ColToken, Value: table.Now}}})
		}
	}
	if err := e.Commit(ctx, "doctor", writes); err != nil {
		return "", err
	}
	began := time.Now()
	rows, _, err := e.Read(ctx, "doctor-read", table.Present, keys)
	if err != nil {
		return "", err
	}
	took := time.Since(began)
	found := map[string]bool{}
	for _, row := range rows {
		found[row.Name] = there[row.Name]
	}
	if len(found) != len(there) || len(rows) != len(there) {
		return "", broken("a read of %d keys and %d ranges shows %d of %d rows", manyNames, manyRanges, len(found), len(there))
	}
	return fmt.Sprintf("%d keys and %d ranges in one read (%v)", manyNames, manyRanges, round(took)), nil
}
