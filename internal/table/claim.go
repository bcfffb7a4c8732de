package table

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"
)

// ErrChanged says that a lock has changed since it was observed: nothing was claimed.
var ErrChanged = errors.New("the lock changed since it was observed")

// ErrSuperseded says that a token is not valid any more, and never will be again.
var ErrSuperseded = errors.New("the token was superseded or released")

// Claim makes id the claimant of every observed lock, or of none. It fails with ErrChanged if a row is not what was
// observed, since the proof that its lease ran out is then void. The token of the claim is its commit timestamp, so it
// is known only from the reply: the claimant holds nothing before it has confirmed.
//
// A claim that Spanner aborts is ErrChanged too: another candidate is at the same lock, and the next observation will
// show it. A hundred candidates that all insisted would keep the first from confirming.
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
		return 0, fmt.Errorf("%w: it was claimed %v after that", ErrChanged, at.Sub(seen[0].At))
	}
	return TokenAt(at), changed(err)
}

// changed returns ErrChanged for an aborted transaction.
func changed(err error) error {
	if errors.Is(err, ErrAborted) {
		return fmt.Errorf("%w: %w", ErrChanged, err)
	}
	return err
}

// claimed returns the keys that decide a claim: the lock rows and, where there is none, the lease rows of all terms
// that may have begun since the observation.
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

// claim writes the lock row. It deletes the lease row of the token that it supersedes, and the orphan leases that were
// waited for.
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

// unchanged reports whether a lock is as observed. If it had no row, there must be none, and no lease row whose holder
// has not been waited for.
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

// drop deletes the lease row of the observed token, and the orphan leases.
func drop(o Observation) (writes []Write) {
	if o.Exists {
		writes = append(writes, Write{Kind: Delete, Name: LeaseKey(o.Name, o.Token)})
	}
	for _, token := range slices.Concat(slices.Sorted(maps.Keys(o.OrphanLeases)), o.OrphanFreeRows) {
		writes = append(writes, Write{Kind: Delete, Name: LeaseKey(o.Name, token)})
	}
	return writes
}

// Confirm makes the claimant under token the holder of the names, with the lease record in each lease row. It fails
// with ErrSuperseded if a lock row is not the bare claim any more, and with ErrAborted if it was not applied. After any
// other error a heartbeat tells whether it was.
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

// Withdraw frees the names that are under token, for a claimant that can't confirm, or does not know whether it did.
// The claimant's id stays in the row: unlike a release, this does not say that the last term before it was given back.
// It fails with ErrSuperseded if no name is under the token any more.
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

// Disown frees those of the locks that are as they were seen, if that is a bare claim by id: a claim whose reply was
// lost. As with Withdraw, the claimant's id stays in the row. It fails with ErrChanged if there is no such lock.
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

// bare reports whether a row is a claim that was not confirmed.
func bare(row Row, token Token) bool {
	return TokenAt(row.Token) == token && row.Heartbeat.Equal(row.Token)
}

// change reads the keys and commits the writes for their rows, in one transaction.
func (t Table) change(ctx context.Context, step string, keys Keys, writes func(rows map[string]Row) ([]Write, error)) (time.Time, error) {
	return t.Store.Transact(ctx, step, func(ctx context.Context, r Reader) ([]Write, error) {
		rows, err := r.Read(ctx, keys)
		if err != nil {
			return nil, err
		}
		return writes(index(rows))
	})
}
