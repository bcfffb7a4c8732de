package table

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"time"
)

const pruneBatch = 200 // locks in one transaction

// Ages say which locks are pruned, by Spanner's clock.
type Ages struct {
	Released time.Duration // those that were released at least that long ago

	// Expired, unless it is zero, also prunes the rows of dead holders: of locks whose lease ended at least that long
	// ago, and of unconfirmed claims of that age.
	Expired time.Duration
}

// Check returns why nothing can be pruned by these ages, or nil. A lease has at most MaxLease, and so has a lock delay:
// no running candidate waits for anything that ended that long ago.
func (a Ages) Check() error {
	switch {
	case a.Released < 0:
		return fmt.Errorf("was released %v ago: the age must not be negative, and 24h is a good one", a.Released)
	case a.Expired != 0 && a.Expired < MaxLease:
		return fmt.Errorf("expired %v ago: the age must be at least %v, the longest lease, and 168h is a good one", a.Expired, MaxLease)
	}
	return nil
}

// are reports whether a row's lock may be old enough, for a first choice.
func (a Ages) are(row Row, at time.Time) bool {
	_, record := beside(row.Name)
	if record || isPlan(row.Name) || row.Token.IsZero() || leaseLike.MatchString(row.Name) || groupRow.MatchString(row.Name) {
		return false
	}
	if row.Heartbeat.IsZero() {
		return at.Sub(row.Token) >= a.Released
	}
	return a.Expired != 0 && at.Sub(row.Heartbeat) >= a.Expired
}

// end reports whether a lock, seen with all its lease rows, is old enough. If it has any other lease row than its
// token's, somebody changed it by hand: it is left to its next claim. So is a lock whose lease row can't be read.
func (a Ages) end(row Row, at time.Time, byName map[string]Row, leases []Row) (Observation, bool) {
	if !a.are(row, at) {
		return Observation{}, false
	}
	o, err := observation(row.Name, at, byName, leases)
	switch own := LeaseKey(o.Name, o.Token); {
	case err != nil:
		return o, false
	case len(leases) == 0:
		return o, true
	case !o.Freed.IsZero():
		return o, len(leases) == 1 && at.Sub(o.Freed) >= a.Released
	case len(leases) > 1 || leases[0].Name != own || o.LeaseRecord == nil:
		return o, false
	}
	return o, at.Sub(o.Heartbeat) >= o.LeaseRecord.Lease+a.Expired
}

// Prunable yields the locks that are old enough, up to 200 at a time, in the order of their names. It yields no members
// and partitions of groups: a member's row tells that it is over.
func (t Table) Prunable(ctx context.Context, ages Ages) iter.Seq2[[]Observation, error] {
	return func(yield func([]Observation, error) bool) {
		for last, full := "", true; full; {
			rows, at, err := t.Store.Read(ctx, "prune", Present, Keys{All: true, After: last, Limit: page})
			if err != nil {
				yield(nil, err)
				return
			}
			var names []string
			for _, row := range rows {
				if last = row.Name; ages.are(row, at) {
					names = append(names, row.Name)
				}
			}
			for names := range slices.Chunk(names, pruneBatch) {
				seen, err := t.prunable(ctx, at, ages, names)
				if !yield(seen, err) || err != nil {
					return
				}
			}
			full = len(rows) == page
		}
	}
}

// prunable looks at the locks again, together with their lease rows. It leaves a lock that was broken within the
// longest lease: its holder may still ask who released it.
func (t Table) prunable(ctx context.Context, about time.Time, ages Ages, names []string) ([]Observation, error) {
	keys := withLeases(names, about)
	for _, name := range names {
		keys.Names = append(keys.Names, name+brokenSuffix)
	}
	rows, at, err := t.Store.Read(ctx, "prune", Present, keys)
	if err != nil {
		return nil, err
	}
	byName, leases := index(rows), leasesOf(rows)
	var seen []Observation
	for _, name := range names {
		if broken, is := byName[name+brokenSuffix]; is && at.Sub(broken.Heartbeat) < MaxLease {
			continue
		}
		if o, old := ages.end(byName[name], at, byName, leases[name]); old {
			seen = append(seen, o)
		}
	}
	return seen, nil
}

// Prune deletes the rows of locks that still are as seen, and returns how many locks it deleted. It leaves a lock alone
// that is claimed meanwhile, or whose holder is heard from, which is no error: a claim changes the token, and a
// heartbeat the heartbeat.
func (t Table) Prune(ctx context.Context, seen ...Observation) (int, error) {
	var keys Keys
	for _, o := range seen {
		keys.Names = append(keys.Names, o.Name)
	}
	pruned := 0
	_, err := t.change(ctx, "prune", keys, func(rows map[string]Row) ([]Write, error) {
		var writes []Write
		pruned = 0
		for _, o := range seen {
			if !o.Exists || !unchanged(o, rows) {
				continue
			}
			writes = append(writes, Write{Kind: Delete, Name: o.Name}, Write{Kind: Delete, Name: o.Name + brokenSuffix})
			writes = append(writes, drop(o)...) // the free row, too
			pruned++
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
	return pruned, nil
}
