package table

import (
	"context"
	"errors"
	"iter"
	"slices"
	"time"
)

const pruneBatch = 200 // locks in one transaction

// Released yields the locks that were released at least older ago, by Spanner's clock, and have no lease
// row, up to 200 at a time, in the order of their names. Members and partitions of groups are none of them: who is
// over is told by a member's row.
func (t Table) Released(ctx context.Context, older time.Duration) iter.Seq2[[]Observation, error] {
	return func(yield func([]Observation, error) bool) {
		for last, full := "", true; full; {
			rows, at, err := t.Store.Read(ctx, "prune", Present, Keys{All: true, After: last, Limit: page})
			if err != nil {
				yield(nil, err)
				return
			}
			var names []string
			for _, row := range rows {
				if last = row.Name; releasedFor(row, at, older) {
					names = append(names, row.Name)
				}
			}
			for names := range slices.Chunk(names, pruneBatch) {
				seen, err := t.prunable(ctx, at, older, names)
				if !yield(seen, err) || err != nil {
					return
				}
			}
			full = len(rows) == page
		}
	}
}

// prunable looks at the locks again, together with their lease rows. One that was released and has a lease
// row was changed by hand: it is left to its next claim, which need not wait while the lock row is there.
func (t Table) prunable(ctx context.Context, about time.Time, older time.Duration, names []string) ([]Observation, error) {
	rows, at, err := t.Store.Read(ctx, "prune", Present, withLeases(names, about))
	if err != nil {
		return nil, err
	}
	leased := map[string]bool{}
	for _, row := range rows {
		if lock, ok := lockOf(row.Name); ok {
			leased[lock] = true
		}
	}
	byName := index(rows)
	var seen []Observation
	for _, name := range names {
		if row, ok := byName[name]; ok && releasedFor(row, at, older) && !leased[name] {
			seen = append(seen, Observation{Name: name, At: at, Exists: true, Token: TokenAt(row.Token)})
		}
	}
	return seen, nil
}

func releasedFor(row Row, at time.Time, older time.Duration) bool {
	_, record := doneUnder(row.Name)
	return !record && row.Heartbeat.IsZero() && !row.Token.IsZero() && at.Sub(row.Token) >= older && !leaseLike.MatchString(row.Name) && !groupRow.MatchString(row.Name)
}

// Prune deletes the rows of locks that are still released as they were seen, and returns how many it
// deleted. A lock that is claimed meanwhile is left alone, which is no error: the claim changed its
// token.
func (t Table) Prune(ctx context.Context, seen ...Observation) (int, error) {
	var keys Keys
	for _, o := range seen {
		keys.Names = append(keys.Names, o.Name)
	}
	var writes []Write
	_, err := t.change(ctx, "prune", keys, func(rows map[string]Row) ([]Write, error) {
		for _, o := range seen {
			if row, ok := rows[o.Name]; ok && row.Heartbeat.IsZero() && TokenAt(row.Token) == o.Token {
				writes = append(writes, Write{Kind: Delete, Name: o.Name})
			}
		}
		if writes == nil {
			return nil, ErrChanged
		}
		return writes, nil
	})
	switch {
	case errors.Is(err, ErrChanged), errors.Is(err, ErrAborted) && len(seen) == 1:
		return 0, nil
	case errors.Is(err, ErrAborted): // one of them is being claimed: the others need not wait for it
		a, err := t.Prune(ctx, seen[:len(seen)/2]...)
		if err != nil {
			return a, err
		}
		b, err := t.Prune(ctx, seen[len(seen)/2:]...)
		return a + b, err
	case err != nil:
		return 0, err
	}
	return len(writes), nil
}
