package table

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"
)

// A lock that changes hands often is released with a *free row*: the lock row has the token F and no heartbeat, and the
// row name_F, which would be a holder's lease row, says that the lock is free. The free row is the right to claim the
// lock, and can be used once. So the claim needs no transaction and no confirmation: one blind commit consumes the free
// row, and inserts the lease row of a token X that the claimant has chosen.
//
// Every step that leaves the state F consumes name_F. That includes ordinary claims and Prune, because they delete the
// lease row of the observed token. So at most one of them is applied.

// tokenAge is how much older than its look a chosen token is. Spanner refuses timestamps that are newer than its present.
const tokenAge = time.Second

// FreeClaim is a claim of released locks, all or none, by their free rows. It never changes, so the same commit can be
// sent again.
type FreeClaim struct {
	Token  Token
	id     string
	record LeaseRecord // with a nonce: claimants that looked at one instant choose the same token
	seen   []Observation
}

// NewFreeClaim returns the claim of the locks seen, all at one instant. It reports false if one of them can't be
// claimed in this way: it has no free row, or the free row's token is not older than the look, as after a change by
// hand.
//
// The token of the claim is later than every token before it, and earlier than the claim's commit: a holder whose token
// equals its last heartbeat would look as if it had not confirmed its claim.
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

// Names returns the locks that it claims.
func (c FreeClaim) Names() []string {
	names := make([]string, len(c.seen))
	for i, o := range c.seen {
		names[i] = o.Name
	}
	return names
}

// ClaimFree makes the claimant the holder of every lock of the claim, or of none, in one blind commit. Only a nil error
// settles the outcome: after any other, an earlier attempt of the same claim may have been applied. See Outcome.
func (t Table) ClaimFree(ctx context.Context, c FreeClaim) error {
	var writes []Write
	for _, o := range c.seen {
		writes = append(writes, consume(o.Name, o.Token)...)
		writes = append(writes,
			Write{Kind: Insert, Name: LeaseKey(o.Name, c.Token), Set: []Cell{{ColHeartbeat, Now}, {ColToken, c.Token.Time()}, {ColWriter, c.record.encode()}}},
			Write{Kind: Update, Name: o.Name, Set: []Cell{{ColHeartbeat, Now}, {ColToken, c.Token.Time()}, {ColWriter, c.id}}})
	}
	return t.Store.Commit(ctx, "claim", writes)
}

// Outcome is the outcome of a FreeClaim.
type Outcome int

const (
	// Open says that the claim was not applied, and may still be.
	Open Outcome = iota
	// Won says that the claim was applied, and its token is valid.
	Won
	// Lost says that the claim will never be applied, or that its token is not valid any more.
	Lost
)

// Outcome reads the outcome of a claim. The nonce in a lease row tells the claimant's own row from another's with the
// same token.
func (t Table) Outcome(ctx context.Context, c FreeClaim) (Outcome, error) {
	var keys Keys
	for _, o := range c.seen {
		keys.Names = append(keys.Names, o.Name, LeaseKey(o.Name, o.Token), LeaseKey(o.Name, c.Token))
	}
	rows, at, err := t.Store.Read(ctx, "outcome", Strong, keys)
	if err != nil {
		return Open, err
	}
	outcome, byName := Open, index(rows)
	for _, o := range c.seen {
		lease, held := byName[LeaseKey(o.Name, c.Token)]
		if held && c.owns(lease) {
			return Won, nil
		}
		now, _ := observe(o.Name, at, byName, nil)
		if held || now.Freed.IsZero() { // the only free row that was read is the one to be consumed
			outcome = Lost
		}
	}
	return outcome, nil
}

func (c FreeClaim) owns(lease Row) bool {
	p, err := parseLeaseRecord(lease.Name, lease.Writer)
	return err == nil && p.Nonce == c.record.Nonce && !p.Free
}

// Retract makes sure that a claim whose outcome is open will never be applied: it replaces the free row of one of the
// locks by another, under the next token. The time since when the lock is free stays. It fails with ErrChanged if that
// free row is gone: this claim, another, or an earlier attempt to retract has consumed it. Outcome tells.
func (t Table) Retract(ctx context.Context, c FreeClaim) error {
	o := c.seen[0]
	err := t.Store.Commit(ctx, "retract", refree(LeaseRef{o.Name, o.Token}, c.record.Lease, o.Freed))
	if errors.Is(err, ErrExists) { // somebody put a row there by hand
		err = t.Store.Commit(ctx, "retract", release(LeaseRef{o.Name, o.Token}))
	}
	if errors.Is(err, ErrMissing) {
		return fmt.Errorf("%w: %w", ErrChanged, err)
	}
	return err
}

// ReleaseFree is Release that leaves a free row for each name. If a row is in the way of a free row, by hand or by an
// earlier attempt, the names are released without free rows.
func (t Table) ReleaseFree(ctx context.Context, token Token, lease time.Duration, names ...string) error {
	return t.releaseFree(ctx, "release", token, lease, nil, names...)
}

// FinishFree is Finish that leaves a free row.
func (t Table) FinishFree(ctx context.Context, token Token, lease time.Duration, name string, due Due, id string) error {
	return t.releaseFree(ctx, "finish", token, lease, []Write{record(name, token, due, id)}, name)
}

func (t Table) releaseFree(ctx context.Context, step string, token Token, lease time.Duration, done []Write, names ...string) error {
	var writes []Write
	for _, name := range names {
		writes = append(writes, refree(LeaseRef{name, token}, lease, Now)...)
	}
	err := t.Store.Commit(ctx, step, append(writes, done...))
	if !errors.Is(err, ErrExists) {
		return t.superseded(ctx, token, names, err)
	}
	writes = nil
	for _, name := range names {
		writes = append(writes, release(LeaseRef{name, token})...)
	}
	return t.superseded(ctx, token, names, t.Store.Commit(ctx, step, append(writes, done...)))
}

// refree replaces the lease row, or the free row, of a token by a free row of the next one. Since is a time, or Now.
// Programs that do not know free rows read a lease record.
func refree(h LeaseRef, lease time.Duration, since any) []Write {
	next := h.Token + 1
	return append(consume(h.Name, h.Token),
		Write{Kind: Insert, Name: LeaseKey(h.Name, next), Set: []Cell{{ColHeartbeat, since}, {ColToken, next.Time()}, {ColWriter, LeaseRecord{Lease: lease, Free: true}.encode()}}},
		Write{Kind: Update, Name: h.Name, Set: []Cell{{ColHeartbeat, nil}, {ColToken, next.Time()}, {ColWriter, nil}}})
}

// freedSince returns since when a lock is free, by the row that its released lock row's token names. It is zero if that
// is no free row.
func freedSince(row Row) time.Time {
	if p, err := parseLeaseRecord(row.Name, row.Writer); err != nil || !p.Free {
		return time.Time{}
	}
	return row.Heartbeat
}
