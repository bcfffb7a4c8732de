package table

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"
)

// ErrChanged means that a lock has changed since it was observed, so nothing was claimed.
var ErrChanged = errors.New("the lock changed since it was observed")

// ErrSuperseded means that a token is no longer valid and will never be valid again.
var ErrSuperseded = errors.New("the token was superseded or released")

// Claim makes id the claimant of every observed lock, or of none of them. It fails with ErrChanged if one of the locks
// has changed since it was observed, because its lease may not have expired after all.
//
// The token is the claim's commit timestamp, so the claimant learns the token only from the reply. The claimant does
// not hold the locks until it has confirmed the claim.
//
// If Spanner aborts the transaction, another candidate is claiming the same lock. Claim then fails with ErrChanged
// instead of retrying. If a hundred candidates all retried, they would keep the first of them from confirming its
// claim. Their next polls will show which of them has claimed the lock.
func (t Table) Claim(ctx context.Context, id string, seen ...Observation) (Token, error) {
	at, err := t.change(ctx, "claim", claimed(seen), func(rows Rows) ([]Write, error) {
		var writes []Write
		for _, o := range seen {
			w, err := claim(id, o, rows)
			if err != nil {
				return nil, err
			}
			writes = append(writes, w...)
		}
		return append(writes, t.also...), nil
	})
	return claimedAt(at, err, seen)
}

// claimedAt returns the token of a claim that was committed at a time.
func claimedAt(at time.Time, err error, seen []Observation) (Token, error) {
	if err == nil && at.After(seen[0].At.Add(recent)) {
		return 0, fmt.Errorf("%w: the claim was committed %v after the observation", ErrChanged, at.Sub(seen[0].At))
	}
	return TokenAt(at), changed(err)
}

// changed wraps the error of an aborted transaction in ErrChanged. It returns other errors unchanged.
func changed(err error) error {
	if errors.Is(err, ErrAborted) {
		return fmt.Errorf("%w: %w", ErrChanged, err)
	}
	return err
}

// claimed returns the keys that a claim has to read before its commit: the lock rows and, for each lock without a lock
// row, the lease rows of all terms that may have begun since the observation.
func claimed(seen []Observation) Keys {
	var keys Keys
	for _, o := range seen {
		keys.Names = append(keys.Names, o.Name)
		if !o.Exists {
			keys.Ranges = append(keys.Ranges, newLeaseKeys(o.Name, o.At))
		}
	}
	return keys
}

// claim returns the writes that claim one lock. They insert or update the lock row, and delete the lease row of the
// superseded token. They also delete the lock's orphan leases, whose expiry the candidate has waited for.
func claim(id string, o Observation, rows Rows) ([]Write, error) {
	if !unchanged(o, rows) {
		return nil, ErrChanged
	}
	kind := Insert
	if o.Exists {
		kind = Update
	}
	writes := []Write{{Kind: kind, Name: o.Name, Set: []Cell{{ColHeartbeat, Now}, {ColToken, Now}, {ColWriter, id}}}}
	return append(writes, drop(o)...), nil
}

// unchanged reports whether a lock is still in the state that was observed. A lock that had no lock row must still have
// none, and must not have any lease row that the observation does not include.
func unchanged(o Observation, rows Rows) bool {
	row, exists := rows.byName[o.Name]
	if exists != o.Exists || TokenAt(row.Token) != o.Token || !row.Heartbeat.Equal(o.Heartbeat) {
		return false
	}
	if exists {
		return true
	}
	for _, lease := range rows.leases[o.Name] {
		token := tokenOf(lease.Name)
		if _, known := o.OrphanLeases[token]; !known && !slices.Contains(o.OrphanFreeRows, token) {
			return false
		}
	}
	return true
}

// drop returns the writes that delete the lease row of the observed token and the orphan leases.
func drop(o Observation) (writes []Write) {
	if o.Exists {
		writes = append(writes, Write{Kind: Delete, Name: LeaseKey(o.Name, o.Token)})
	}
	for _, token := range slices.Concat(slices.Sorted(maps.Keys(o.OrphanLeases)), o.OrphanFreeRows) {
		writes = append(writes, Write{Kind: Delete, Name: LeaseKey(o.Name, token)})
	}
	return writes
}

// Confirm makes the claimant the holder of the named locks, which it has claimed under token. It inserts a lease row
// with the lease record for each lock. Confirm fails with ErrSuperseded if the claim of one of the locks is no longer
// there, or is already confirmed. It fails with ErrAborted if the transaction was aborted and nothing was written.
// After any other error, the claimant can send a heartbeat to find out whether the confirmation was applied.
func (t Table) Confirm(ctx context.Context, token Token, p LeaseRecord, names ...string) error {
	_, err := t.change(ctx, "confirm", Keys{Names: names}, func(rows Rows) ([]Write, error) {
		var writes []Write
		for _, name := range names {
			row := rows.byName[name]
			if !bare(row, token) {
				return nil, ErrSuperseded
			}
			writes = append(writes, confirm(row, token, p)...)
		}
		return writes, nil
	})
	return err
}

func confirm(row Row, token Token, p LeaseRecord) []Write {
	return []Write{
		{Kind: Insert, Name: LeaseKey(row.Name, token), Set: []Cell{{ColHeartbeat, Now}, {ColToken, row.Token}, {ColWriter, p.encode()}}},
		{Kind: Update, Name: row.Name, Set: []Cell{{ColHeartbeat, Now}}},
	}
}

// Withdraw frees the named locks that are still claimed or held under token. It fails with ErrSuperseded if there are
// none. A claimant calls it if it can't confirm its claim, or does not know whether it has confirmed it.
//
// Unlike Release, Withdraw leaves the claimant's id in the row, because a withdrawal does not mean that the previous
// holder gave the lock back.
func (t Table) Withdraw(ctx context.Context, token Token, names ...string) error {
	_, _, err := each(ctx, t, "withdraw", Keys{Names: names}, names, ErrSuperseded, func(name string, rows Rows) []Write {
		if row := rows.byName[name]; TokenAt(row.Token) == token && !row.Heartbeat.IsZero() {
			return []Write{{Kind: Delete, Name: LeaseKey(name, token)},
				{Kind: Update, Name: name, Set: []Cell{{ColHeartbeat, nil}, {ColToken, Now}}}}
		}
		return nil
	})
	return err
}

// Disown frees the observed locks that id has claimed but not confirmed, if they are still under the observed token. A
// candidate calls it if its claim was applied but the reply was lost. Like Withdraw, Disown leaves the id in the
// row. It fails with ErrChanged if there is no such lock.
func (t Table) Disown(ctx context.Context, id string, seen ...Observation) error {
	_, _, err := each(ctx, t, "withdraw", claimed(seen), seen, ErrChanged, func(o Observation, rows Rows) []Write {
		if row := rows.byName[o.Name]; row.Writer == id && bare(row, o.Token) {
			return []Write{{Kind: Update, Name: o.Name, Set: []Cell{{ColHeartbeat, nil}, {ColToken, Now}}}}
		}
		return nil
	})
	return err
}

// bare reports whether a row is an unconfirmed claim under token.
func bare(row Row, token Token) bool {
	return TokenAt(row.Token) == token && row.Heartbeat.Equal(row.Token)
}

// each runs one transaction for all items, and returns those for which writes returns something. If there are none, each
// fails with the error none. The commit also makes the other writes.
func each[T any](ctx context.Context, t Table, step string, keys Keys, items []T, none error, writes func(T, Rows) []Write, also ...Write) (done []T, at time.Time, err error) {
	at, err = t.change(ctx, step, keys, func(rows Rows) ([]Write, error) {
		all := slices.Clone(also)
		done = nil
		for _, item := range items {
			if w := writes(item, rows); w != nil {
				all, done = append(all, w...), append(done, item)
			}
		}
		if done == nil {
			return nil, none
		}
		return all, nil
	})
	return done, at, err
}

// change runs one transaction. It reads the keys, passes the rows to the function writes, and commits the writes that
// the function returns.
func (t Table) change(ctx context.Context, step string, keys Keys, writes func(rows Rows) ([]Write, error)) (time.Time, error) {
	return t.Store.Transact(ctx, step, func(ctx context.Context, r Reader) ([]Write, error) {
		rows, err := r.Read(ctx, keys)
		if err != nil {
			return nil, err
		}
		return writes(RowsAt(time.Time{}, rows))
	})
}
