package table

import (
	"context"
	"errors"
)

// ErrChanged says that a lock is not any more what was observed: nothing was claimed.
var ErrChanged = errors.New("the lock changed since it was observed")

// ErrSuperseded says that a token is not good any more, and never will be again.
var ErrSuperseded = errors.New("the token was superseded or released")

// Claim makes id the claimant of every lock that was observed, or of none: it fails with ErrChanged
// where a row is not what was observed, since the proof that its lease ran out is then void. The
// token of the claim is its commit timestamp, so it is known only from the reply: the claimant holds
// nothing before it has confirmed.
//
// A transaction that Spanner aborted is not run again: somebody else is at the same lock, and the next
// observation will show who. A hundred candidates that all insisted would keep the first from confirming.
func (t Table) Claim(ctx context.Context, id string, seen ...Observation) (Token, error) {
	aborted := false
	at, err := t.Store.Transact(ctx, "claim", func(ctx context.Context, r Reader) ([]Write, error) {
		if aborted {
			return nil, ErrChanged
		}
		aborted = true
		var names []string
		for _, o := range seen {
			names = append(names, o.Name)
		}
		rows, err := readAll(ctx, r, withLeases(names, seen[0].At))
		if err != nil {
			return nil, err
		}
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
	return TokenAt(at), err
}

// claim writes the lock row and deletes every lease row of the lock: none may outlive its term.
func claim(id string, o Observation, rows map[string]Row) ([]Write, error) {
	row, exists := rows[o.Name]
	if exists != o.Exists || TokenAt(row.Token) != o.Token || !row.Heartbeat.Equal(o.Heartbeat) {
		return nil, ErrChanged
	}
	kind := Insert
	if exists {
		kind = Update
	}
	writes := []Write{{Kind: kind, Name: o.Name, Set: []Cell{{ColHeartbeat, Now}, {ColToken, Now}, {ColWriter, id}}}}
	for key := range rows {
		if !isLeaseKey(o.Name, key) {
			continue
		}
		if _, known := o.Strays[tokenOf(key)]; !exists && !known {
			return nil, ErrChanged // its holder has not been waited for
		}
		writes = append(writes, Write{Kind: Delete, Name: key})
	}
	return writes, nil
}

// Confirm makes the claimant under token the holder of the names, with the promise in each lease row.
// It fails with ErrSuperseded where a lock row is not the bare claim any more. After any other error
// a heartbeat tells whether it was applied.
func (t Table) Confirm(ctx context.Context, token Token, p Promise, names ...string) error {
	_, err := t.Store.Transact(ctx, "confirm", func(ctx context.Context, r Reader) ([]Write, error) {
		rows, err := readAll(ctx, r, Keys{Names: names})
		if err != nil {
			return nil, err
		}
		var writes []Write
		for _, name := range names {
			row := rows[name]
			if TokenAt(row.Token) != token || !row.Heartbeat.Equal(row.Token) {
				return nil, ErrSuperseded
			}
			writes = append(writes,
				Write{Kind: Insert, Name: LeaseKey(name, token), Set: []Cell{{ColHeartbeat, Now}, {ColToken, row.Token}, {ColWriter, p.encode()}}},
				Write{Kind: Update, Name: name, Set: []Cell{{ColHeartbeat, Now}}})
		}
		return writes, nil
	})
	return err
}

func readAll(ctx context.Context, r Reader, keys Keys) (map[string]Row, error) {
	rows, err := r.Read(ctx, keys)
	return index(rows), err
}
