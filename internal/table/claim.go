package table

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"
)

// ErrChanged means that a lock has changed since it was observed, or may have changed.
var ErrChanged = errors.New("the lock changed since it was observed")

// ErrSuperseded means that a token is no longer valid and will never be valid again.
var ErrSuperseded = errors.New("the token was superseded or released")

// Claim makes the candidate with this id the claimant of every observed lock, or of none of them. It fails with
// ErrChanged if a lock has changed since it was observed, because that lock's lease may not have expired after all.
//
// The token is the claim's commit timestamp, so the claimant learns the token only from the reply. The claimant does
// not hold the locks until it has confirmed the claim.
//
// If Spanner aborts the transaction, another candidate is probably claiming the same lock. Claim then fails with
// ErrChanged instead of retrying. If a hundred candidates all retried, they would keep the first candidate from
// confirming its claim. The next polls will show which candidate has claimed the lock.
func (t Table) Claim(ctx context.Context, id string, seen ...Observation) (Token, error) {
	token, _, err := t.claim(ctx, "claim", id, true, seen)
	return token, err
}

// ClaimPartitions claims partitions for a member, which is identified by its lease row. It skips partitions that have
// changed since they were observed, and fails with ErrChanged if all partitions have changed.
func (t Table) ClaimPartitions(ctx context.Context, member LeaseRef, seen ...Observation) (token Token, names []string, err error) {
	return t.claim(ctx, "claim-partitions", member.Key(), false, seen)
}

func (t Table) claim(ctx context.Context, step, id string, all bool, seen []Observation) (Token, []string, error) {
	taken, at, err := t.replace(ctx, step, seen, all, func(o Observation) []Write {
		kind := Insert
		if o.Exists {
			kind = Update
		}
		return append(drop(o), Write{Kind: kind, Name: o.Name, Set: []Cell{{ColHeartbeat, Now}, {ColToken, Now}, {ColWriter, id}}})
	}, t.also...)
	switch {
	case err != nil:
		return 0, nil, err
	case at.After(seen[0].At.Add(recent)):
		return 0, nil, fmt.Errorf("the claim was committed %v after the observation, so it must be withdrawn", at.Sub(seen[0].At)) // not ErrChanged, because the lock is claimed
	}
	return TokenAt(at), namesOf(taken), nil
}

// replace runs one transaction that makes the given writes for each observed lock. It skips locks that have changed
// since they were observed, and fails with ErrChanged if no lock is left. If all is set, it fails even if only one lock
// has changed. It reads the lock rows. For each lock that had no lock row, it also reads the lease rows of all terms
// that may have begun since the observation.
func (t Table) replace(ctx context.Context, step string, seen []Observation, all bool, writes func(Observation) []Write, also ...Write) ([]Observation, time.Time, error) {
	keys := Keys{Names: namesOf(seen)}
	for _, o := range seen {
		if !o.Exists {
			keys.Ranges = append(keys.Ranges, newLeaseKeys(o.Name, o.At))
		}
	}
	done, at, err := each(ctx, t, step, keys, seen, all, ErrChanged, func(o Observation, rows Rows) []Write {
		if !unchanged(o, rows) {
			return nil
		}
		return writes(o)
	}, also...)
	return done, at, changed(err)
}

// changed wraps the error of an aborted transaction in ErrChanged. It returns other errors unchanged.
func changed(err error) error {
	if errors.Is(err, ErrAborted) {
		return fmt.Errorf("%w: %w", ErrChanged, err)
	}
	return err
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
	return !slices.ContainsFunc(rows.leases[o.Name], func(lease Row) bool { return !slices.Contains(o.Orphans, tokenOf(lease.Name)) })
}

// drop returns the writes that delete all observed lease rows. Any orphan leases must have expired.
func drop(o Observation) (writes []Write) {
	if o.Exists {
		writes = append(writes, Write{Kind: Delete, Name: LeaseKey(o.Name, o.Token)})
	}
	for _, token := range o.Orphans {
		writes = append(writes, Write{Kind: Delete, Name: LeaseKey(o.Name, token)})
	}
	return writes
}

// Confirm makes the claimant the holder of the named locks, which it has claimed under the token. For each lock, it
// inserts a lease row that contains the lease record. Confirm fails with ErrSuperseded if the claim of one of the locks
// no longer exists or is already confirmed. If it fails with ErrAborted, nothing was written. After any other error,
// the confirmation may have been applied, and the claimant can send a heartbeat to find out.
func (t Table) Confirm(ctx context.Context, token Token, p LeaseRecord, names ...string) error {
	_, err := t.confirm(ctx, "confirm", token, p, true, names)
	return err
}

// ConfirmPartitions confirms partitions that were claimed under the token, and returns their names. It skips partitions
// whose claim no longer exists or is already confirmed, and fails with ErrSuperseded if no partition remains.
//
// The commit fails if the member's term has ended, because it requires the member's lease row. The transaction does not
// read that row, because the member's heartbeats would then conflict with the transaction.
func (t Table) ConfirmPartitions(ctx context.Context, member LeaseRef, p LeaseRecord, token Token, names ...string) (confirmed []string, err error) {
	p.With = member.Key()
	return t.confirm(ctx, "confirm-partitions", token, p, false, names, requireLease(member.Name, member.Token))
}

func (t Table) confirm(ctx context.Context, step string, token Token, p LeaseRecord, all bool, names []string, also ...Write) ([]string, error) {
	confirmed, _, err := each(ctx, t, step, Keys{Names: names}, names, all, ErrSuperseded, func(name string, rows Rows) []Write {
		row := rows.byName[name]
		if !bare(row, token) {
			return nil
		}
		p.Notify = t.Contact(LeaseKey(name, token))
		return []Write{
			{Kind: Insert, Name: LeaseKey(name, token), Set: []Cell{{ColHeartbeat, Now}, {ColToken, row.Token}, {ColWriter, p.encode()}}},
			{Kind: Update, Name: name, Set: []Cell{{ColHeartbeat, Now}}},
		}
	}, also...)
	return confirmed, err
}

// Withdraw frees the named locks that are still claimed or held under the token. If there is no such lock, it returns
// ErrSuperseded. A claimant calls Withdraw if it can't confirm its claim, or does not know whether the claim is
// confirmed.
//
// Unlike Release, Withdraw leaves the claimant's id in the lock row, because a withdrawal does not mean that the
// previous holder has released the lock.
func (t Table) Withdraw(ctx context.Context, token Token, names ...string) error {
	_, _, err := each(ctx, t, "withdraw", Keys{Names: names}, names, false, ErrSuperseded, func(name string, rows Rows) []Write {
		if row := rows.byName[name]; TokenAt(row.Token) == token && !row.Heartbeat.IsZero() {
			return withdraw(name, token)
		}
		return nil
	})
	return err
}

// Disown frees the observed locks that the candidate with this id has claimed but not confirmed, unless their tokens
// have changed since the observation. A candidate calls Disown if its claim was applied but the reply was lost. Disown
// fails with ErrChanged if there is no such lock.
func (t Table) Disown(ctx context.Context, id string, seen ...Observation) error {
	_, _, err := each(ctx, t, "withdraw", Keys{Names: namesOf(seen)}, seen, false, ErrChanged, func(o Observation, rows Rows) []Write {
		if row := rows.byName[o.Name]; row.Writer == id && bare(row, o.Token) {
			return withdraw(o.Name, o.Token)
		}
		return nil
	})
	return err
}

func withdraw(name string, token Token) []Write {
	return []Write{{Kind: Delete, Name: LeaseKey(name, token)}, {Kind: Update, Name: name, Set: []Cell{{ColHeartbeat, nil}, {ColToken, Now}}}}
}

func bare(row Row, token Token) bool {
	return TokenAt(row.Token) == token && row.Heartbeat.Equal(row.Token)
}

// each runs one transaction for all items. It calls the given function for each item, commits the returned writes
// together with the additional ones, and returns the items that have writes. It fails with the given error if no item
// has writes. If all is set, it also fails if any item has none.
func each[T any](ctx context.Context, t Table, step string, keys Keys, items []T, all bool, none error, writes func(T, Rows) []Write, also ...Write) (done []T, at time.Time, err error) {
	at, err = t.change(ctx, step, keys, func(rows Rows) (made []Write, err error) {
		done = nil
		for _, item := range items {
			if w := writes(item, rows); w != nil {
				made, done = append(made, w...), append(done, item)
			}
		}
		if done == nil || all && len(done) < len(items) {
			return nil, none
		}
		return append(made, also...), nil
	})
	return done, at, err
}

// change runs one transaction. It reads the keys, passes the rows to the given function, and commits the writes that
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

func namesOf(seen []Observation) []string {
	names := make([]string, len(seen))
	for i, o := range seen {
		names[i] = o.Name
	}
	return names
}

// Prune deletes the rows of the observed locks, and returns the number of locks that it pruned. It skips a lock,
// without an error, if a claim, a heartbeat or a release has changed the lock row since the observation.
func (t Table) Prune(ctx context.Context, seen ...Observation) (int, error) {
	pruned, _, err := t.replace(ctx, "prune", seen, false, func(o Observation) []Write {
		if !o.Exists {
			return nil
		}
		return append(drop(o), Write{Kind: Delete, Name: o.Name}, Write{Kind: Delete, Name: BrokenRow(o.Name)})
	})
	switch {
	case errors.Is(err, ErrAborted) && len(seen) > 1: // one of the locks is being claimed; the others are still to be pruned
		a, err := t.Prune(ctx, seen[:len(seen)/2]...)
		if err != nil {
			return a, err
		}
		b, err := t.Prune(ctx, seen[len(seen)/2:]...)
		return a + b, err
	case errors.Is(err, ErrChanged):
		return 0, nil
	case err != nil: // replace has collected them, but may not have pruned any
		return 0, err
	}
	return len(pruned), nil
}
