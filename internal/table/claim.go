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
func (t Table) Claim(ctx context.Context, id string, seen ...Observation) (Token, error) {
	at, err := t.Store.Transact(ctx, "claim", func(ctx context.Context, r Reader) ([]Write, error) {
		rows, err := readAll(ctx, r, namesOf(seen))
		if err != nil {
			return nil, err
		}
		var writes []Write
		for _, o := range seen {
			row, exists := rows[o.Name]
			if exists != o.Exists || TokenAt(row.Token) != o.Token || !row.Heartbeat.Equal(o.Heartbeat) {
				return nil, ErrChanged
			}
			w, err := claimOne(ctx, r, id, o)
			if err != nil {
				return nil, err
			}
			writes = append(writes, w...)
		}
		return writes, nil
	})
	return TokenAt(at), err
}

// claimOne writes the lock row and deletes the lease rows that must not outlive it.
func claimOne(ctx context.Context, r Reader, id string, o Observation) ([]Write, error) {
	claim := Write{Kind: Update, Name: o.Name, Set: []Cell{{ColHeartbeat, Now}, {ColToken, Now}, {ColWriter, id}}}
	if o.Exists {
		return []Write{claim, {Kind: Delete, Name: LeaseKey(o.Name, o.Token)}}, nil
	}
	claim.Kind = Insert
	writes := []Write{claim}
	rows, err := r.Read(ctx, leaseKeys(o.Name))
	if err != nil {
		return nil, err
	}
	for _, row := range rows {
		if !isLeaseKey(o.Name, row.Name) {
			continue
		}
		if _, known := o.Strays[tokenOf(row.Name)]; !known {
			return nil, ErrChanged // its holder has not been waited for
		}
		writes = append(writes, Write{Kind: Delete, Name: row.Name})
	}
	return writes, nil
}

// Confirm makes the claimant under token the holder of the names, with the promise in each lease row.
// It fails with ErrSuperseded where a lock row is not the bare claim any more. After any other error
// a heartbeat tells whether it was applied.
func (t Table) Confirm(ctx context.Context, token Token, p Promise, names ...string) error {
	_, err := t.Store.Transact(ctx, "confirm", func(ctx context.Context, r Reader) ([]Write, error) {
		rows, err := readAll(ctx, r, names)
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

func readAll(ctx context.Context, r Reader, names []string) (map[string]Row, error) {
	rows, err := r.Read(ctx, Keys{Names: names})
	if err != nil {
		return nil, err
	}
	byName := make(map[string]Row, len(rows))
	for _, row := range rows {
		byName[row.Name] = row
	}
	return byName, nil
}

func namesOf(seen []Observation) []string {
	names := make([]string, len(seen))
	for i, o := range seen {
		names[i] = o.Name
	}
	return names
}
