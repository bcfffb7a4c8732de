package table

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"
)

// ReleaseFree leaves a *free row*, so that the next holder can claim the lock with a single blind commit, without a
// transaction or a confirmation.
//
// After such a release, the lock row has a token F and no heartbeat. The free row has the key name_F, which looks like
// the key of a lease row. It records that the lock is free. Only one claim can use the row, because the claim's commit
// deletes the row and fails if the row no longer exists. The same commit inserts the claimant's lease row, under a
// token that the claimant has chosen.
//
// Every other step that changes the token F of the lock row also deletes name_F, so only one of these steps can be
// applied. Ordinary claims and Prune do so because they delete the lease row of the token that they observed.

// tokenAge is how old a chosen token is when the claimant observes the lock. If the lock was released more recently
// than that, the token is younger. A token must be in the past, because Spanner rejects timestamps in the future.
const tokenAge = time.Second

// FreeClaim is a claim of released locks through their free rows. It claims either all of the locks or none. A
// FreeClaim is immutable, so its commit can be sent repeatedly.
type FreeClaim struct {
	Token  Token
	id     string
	record LeaseRecord // has a nonce, because claimants that poll at the same instant can choose the same token
	seen   []Observation
}

// NewFreeClaim returns a claim of the observed locks, which must have been observed at the same instant. It reports
// false if one of the locks has to be claimed in the ordinary way. Such a lock has no free row, or has one whose token
// a manual change has set to a future time.
//
// The claim's token is later than all earlier tokens of these locks. It must also be earlier than the heartbeat, which
// is the claim's commit timestamp. Otherwise, the lock row would count as an unconfirmed claim, whose token equals its
// heartbeat.
func NewFreeClaim(id string, p LeaseRecord, seen ...Observation) (FreeClaim, bool) {
	var last Token
	for _, o := range seen {
		if o.Freed.IsZero() || o.Token >= TokenAt(o.At) {
			return FreeClaim{}, false
		}
		last = max(last, o.Token)
	}
	if len(seen) == 0 || p.Nonce == "" {
		return FreeClaim{}, false
	}
	return FreeClaim{Token: max(last+1, TokenAt(seen[0].At.Add(-tokenAge))), id: id, record: p, seen: slices.Clone(seen)}, true
}

func (c FreeClaim) Names() []string { return namesOf(c.seen) }

// ClaimFree makes the claimant the holder of every lock in the claim, or of none, in one blind commit. If ClaimFree
// returns nil, the claim was applied. If it returns an error, this attempt or an earlier one may still have been
// applied, or may be applied later. The claimant can call Outcome to find out.
func (t Table) ClaimFree(ctx context.Context, c FreeClaim) error {
	var writes []Write
	for _, o := range c.seen {
		c.record.Notify = t.Contact(LeaseKey(o.Name, c.Token))
		writes = append(writes, requireLease(o.Name, o.Token), Write{Kind: Delete, Name: LeaseKey(o.Name, o.Token)},
			Write{Kind: Insert, Name: LeaseKey(o.Name, c.Token), Set: []Cell{{ColHeartbeat, Now}, {ColToken, c.Token.Time()}, {ColWriter, c.record.encode()}}},
			Write{Kind: Update, Name: o.Name, Set: []Cell{{ColHeartbeat, Now}, {ColToken, c.Token.Time()}, {ColWriter, c.id}}})
	}
	return t.Store.Commit(ctx, "claim", append(writes, t.also...))
}

// Outcome is what has become of a FreeClaim.
type Outcome int

const (
	Open Outcome = iota // the claim has not been applied, but still can be
	Won                 // the claim was applied, and its token is valid
	Lost                // the claim will never be applied, or its token is no longer valid
)

// Outcome reads the rows of the claimed locks and returns the outcome of the claim. Another claimant may have chosen
// the same token, so Outcome recognizes the claimant's own lease row by its nonce.
func (t Table) Outcome(ctx context.Context, c FreeClaim) (Outcome, error) {
	var keys Keys
	for _, o := range c.seen {
		keys.Names = append(keys.Names, o.Name, LeaseKey(o.Name, o.Token), LeaseKey(o.Name, c.Token))
	}
	read, err := t.Read(ctx, "outcome", Strong, keys)
	if err != nil {
		return Open, err
	}
	outcome := Open
	for _, o := range c.seen {
		lease, held := read.byName[LeaseKey(o.Name, c.Token)]
		if p, err := decodeLeaseRecord(lease); err == nil && p.Nonce == c.record.Nonce && !p.Free {
			return Won, nil
		}
		now, _ := read.Observe(o.Name)
		if held || now.Freed.IsZero() { // the only free row that was read is the one that the claim deletes
			outcome = Lost
		}
	}
	return outcome, nil
}

// Retract makes sure that a claim whose outcome is Open will never be applied. It replaces the free row of one of the
// locks with a free row of the next token. The new row records the same time of release.
//
// Retract fails with ErrChanged if the old free row no longer exists. The claim itself, an earlier attempt at Retract,
// or another candidate may have deleted that row. Outcome tells whether the claim was applied.
func (t Table) Retract(ctx context.Context, c FreeClaim) error {
	o := c.seen[0]
	t.also = nil
	err := t.release(ctx, "retract", o.Token, c.record.Lease, o.Freed, []string{o.Name})
	if errors.Is(err, ErrSuperseded) {
		return fmt.Errorf("%w: %w", ErrChanged, err)
	}
	return err
}

// refree returns the writes that free a lock and replace the token's lease row or free row with a free row of the next
// token. The argument since becomes the new row's heartbeat, and must be a time or Now. Programs that do not support
// free rows take the new row for an ordinary lease row.
func refree(h LeaseRef, lease time.Duration, since any) []Write {
	next := h.Token + 1
	return []Write{
		{Kind: Delete, Name: h.Key()},
		{Kind: Insert, Name: LeaseKey(h.Name, next), Set: []Cell{{ColHeartbeat, since}, {ColToken, next.Time()}, {ColWriter, LeaseRecord{Lease: lease, Free: true}.encode()}}},
		{Kind: Update, Name: h.Name, Set: []Cell{{ColHeartbeat, nil}, {ColToken, next.Time()}, {ColWriter, nil}}},
	}
}

// freedSince returns the time of the release if row is a free row, or the zero time.
func freedSince(row Row) time.Time {
	if p, err := decodeLeaseRecord(row); err == nil && p.Free {
		return row.Heartbeat
	}
	return time.Time{}
}
