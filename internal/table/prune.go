package table

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"time"
)

const pruneBatch = 200 // the number of locks in one transaction

// Ages determine which locks are pruned. They are measured by Spanner's clock.
type Ages struct {
	Released time.Duration // the minimum time since the release

	// Expired is how long ago a failed holder's lease must have ended before its rows are pruned. For a claim that was
	// never confirmed, it is the minimum age of the claim. If Expired is zero, the rows of failed holders are not
	// pruned.
	Expired time.Duration
}

// Check returns an error if an age is too short. Before a candidate claims the lock of a failed holder, it waits for the
// lease to expire, and then for the lock delay, which is at most MaxLease. If the lease expired MaxLease ago, no candidate
// is still waiting, so the rows are no longer needed.
func (a Ages) Check() error {
	switch {
	case a.Released < 0:
		return fmt.Errorf("the age of released locks is %v, but must not be negative; 24h is a good choice", a.Released)
	case a.Expired != 0 && a.Expired < MaxLease:
		return fmt.Errorf("the age of expired locks is %v, but must be at least %v, the longest lease; 168h is a good choice", a.Expired, MaxLease)
	}
	return nil
}

// are reports whether the lock in a row may be old enough. It is a first filter, before the lease rows are read.
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

// end returns the observation of a lock, including all its lease rows, and reports whether the lock is old enough to be
// pruned. It reports false if the lock has a lease row for a token other than the lock row's. This happens only if the
// table was changed by hand, and the next claim of the lock will clean up. It also reports false if the lease row can't
// be read.
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

// Prunable yields the locks that are old enough to be pruned, in the order of their names, in batches of up to 200. It
// skips the locks of groups, because a member's row shows whether the member's term has ended.
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

// prunable observes the locks again, including their lease rows, and returns those that are still old enough. It skips
// a lock that was broken less than MaxLease ago. Its former holder may still need the "!broken" row to find out whether
// its own release was applied.
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

// Prune deletes the rows of the observed locks and returns the number of locks that it deleted. It skips a lock,
// without an error, if the lock was claimed or received a heartbeat after it was observed. In both cases, the lock row
// has changed.
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
			writes = append(writes, drop(o)...) // this includes the free row
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
	case errors.Is(err, ErrAborted): // one of the locks is being claimed, which must not delay the others
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
