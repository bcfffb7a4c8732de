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

// Claim makes id the claimant of every observed lock, or of none. It fails with ErrChanged if a row differs from its
// observation, because the observation then no longer proves that the lease expired. The token is the claim's commit
// timestamp, so the claimant learns it only from the reply. The claimant holds nothing until it has confirmed the
// claim.
//
// If Spanner aborts the claim, Claim fails with ErrChanged too. Another candidate is claiming the same lock, and the
// next look will show the result. If a hundred candidates all retried their aborted claims, they would keep the first
// of them from confirming.
func (t Table) Claim(ctx context.Context, id string, seen ...Observation) (Token, error) {
	at, err := t.change(ctx, "claim", claimed(seen), func(rows map[string]Row) ([]Write, error) {
		var writes []Write
		for _, o := range seen {
			w, err := claim(id, o, rows)
			if err != nil {
				return nil, err
			}
			writes = append(writes, w...)
		}
		return writes, nil
	})
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

// claimed returns the keys of the rows that decide a claim: the lock rows and, for each lock without a lock row, the
// lease rows of all terms that may have begun since the observation.
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
// superseded token and the orphan leases that the candidate has waited for.
func claim(id string, o Observation, rows map[string]Row) ([]Write, error) {
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

// unchanged reports whether a lock is still as observed. If it had no lock row, there must still be none, and the
// observation must include every lease row of the lock.
func unchanged(o Observation, rows map[string]Row) bool {
	row, exists := rows[o.Name]
	if exists != o.Exists || TokenAt(row.Token) != o.Token || !row.Heartbeat.Equal(o.Heartbeat) {
		return false
	}
	if exists {
		return true
	}
	for key := range rows {
		if !isLeaseKey(o.Name, key) {
			continue
		}
		if _, known := o.OrphanLeases[tokenOf(key)]; !known && !slices.Contains(o.OrphanFreeRows, tokenOf(key)) {
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

// Confirm makes the claimant under token the holder of the names, and writes the lease record into each lease row. It
// fails with ErrSuperseded if a lock row is no longer the bare claim, and with ErrAborted if the transaction was
// aborted and nothing was applied. After any other error, a heartbeat shows whether the confirmation was applied.
func (t Table) Confirm(ctx context.Context, token Token, p LeaseRecord, names ...string) error {
	_, err := t.change(ctx, "confirm", Keys{Names: names}, func(rows map[string]Row) ([]Write, error) {
		var writes []Write
		for _, name := range names {
			row := rows[name]
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

// Withdraw frees the names that are under token. It is for a claimant that can't confirm its claim, or does not know
// whether it has confirmed it. Withdraw leaves the claimant's id in the row because, unlike a release, a withdrawal
// does not mean that the previous holder gave the lock back. It fails with ErrSuperseded if none of the names is under
// the token any longer.
func (t Table) Withdraw(ctx context.Context, token Token, names ...string) error {
	_, err := t.change(ctx, "withdraw", Keys{Names: names}, func(rows map[string]Row) ([]Write, error) {
		var writes []Write
		for _, name := range names {
			if row := rows[name]; TokenAt(row.Token) == token && !row.Heartbeat.IsZero() {
				writes = append(writes, Write{Kind: Delete, Name: LeaseKey(name, token)},
					Write{Kind: Update, Name: name, Set: []Cell{{ColHeartbeat, nil}, {ColToken, Now}}})
			}
		}
		if writes == nil {
			return nil, ErrSuperseded
		}
		return writes, nil
	})
	return err
}

// Disown frees those of the observed locks that are still bare claims by id under the observed token. It is for a
// candidate whose claim was applied, but that never received the reply. Like Withdraw, it leaves the id in the row. It
// fails with ErrChanged if there is no such lock.
func (t Table) Disown(ctx context.Context, id string, seen ...Observation) error {
	_, err := t.change(ctx, "withdraw", claimed(seen), func(rows map[string]Row) ([]Write, error) {
		var writes []Write
		for _, o := range seen {
			if row := rows[o.Name]; row.Writer == id && bare(row, o.Token) {
				writes = append(writes, Write{Kind: Update, Name: o.Name, Set: []Cell{{ColHeartbeat, nil}, {ColToken, Now}}})
			}
		}
		if writes == nil {
			return nil, ErrChanged
		}
		return writes, nil
	})
	return err
}

// bare reports whether a row is an unconfirmed claim under token.
func bare(row Row, token Token) bool {
	return TokenAt(row.Token) == token && row.Heartbeat.Equal(row.Token)
}

// change runs one transaction. It reads the keys, passes the rows to the function writes, and commits the writes that
// the function returns.
func (t Table) change(ctx context.Context, step string, keys Keys, writes func(rows map[string]Row) ([]Write, error)) (time.Time, error) {
	return t.Store.Transact(ctx, step, func(ctx context.Context, r Reader) ([]Write, error) {
		rows, err := r.Read(ctx, keys)
		if err != nil {
			return nil, err
		}
		return writes(index(rows))
	})
}
