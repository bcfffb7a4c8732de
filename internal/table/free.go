package table

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"
)

// A lock that changes hands often is released with a *free row*. The lock row then has a token F and no heartbeat. A
// second row, name_F, takes the place of a holder's lease row and records that the lock is free. This free row is the
// right to claim the lock, and can be used only once. A claim therefore needs neither a transaction nor a confirmation:
// one blind commit consumes the free row and inserts the lease row of a token X that the claimant has chosen.
//
// Every step that changes the token F of the lock row also consumes name_F, so at most one such step is applied. These
// steps include ordinary claims and Prune, which delete the lease row of the observed token.

// tokenAge is the age of a chosen token at the time of the look on which the claim is based. The token is not newer,
// because Spanner refuses timestamps in the future.
const tokenAge = time.Second

// FreeClaim is a claim of released locks through their free rows. It claims either all of the locks or none. A
// FreeClaim never changes, so the same commit can be sent again.
type FreeClaim struct {
	Token  Token
	id     string
	record LeaseRecord // has a nonce, because claimants that look at the same instant choose the same token
	seen   []Observation
}

// NewFreeClaim returns a claim of the observed locks, which must have been observed at the same instant. It reports
// false if one of the locks can't be claimed in this way. Either the lock has no free row, or the free row's token is
// not older than the look, which only a manual change can cause.
//
// The claim's token is later than every earlier token of these locks and earlier than the claim's commit. If a holder's
// token were equal to its last heartbeat, its claim would look unconfirmed.
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

// Names returns the names of the locks that c claims.
func (c FreeClaim) Names() []string {
	names := make([]string, len(c.seen))
	for i, o := range c.seen {
		names[i] = o.Name
	}
	return names
}

// ClaimFree makes the claimant the holder of every lock in the claim, or of none, in one blind commit. Only success is
// conclusive. After an error, an earlier attempt of the same claim may have been applied, which Outcome determines.
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
	// Open means that the claim has not been applied, but still can be.
	Open Outcome = iota
	// Won means that the claim was applied and that its token is valid.
	Won
	// Lost means that the claim will never be applied, or that its token is no longer valid.
	Lost
)

// Outcome reads the outcome of a claim. The nonce in a lease row distinguishes the claimant's own row from that of
// another claimant with the same token.
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
		if held || now.Freed.IsZero() { // no free row was read except the one that the claim consumes
			outcome = Lost
		}
	}
	return outcome, nil
}

func (c FreeClaim) owns(lease Row) bool {
	p, err := parseLeaseRecord(lease.Name, lease.Writer)
	return err == nil && p.Nonce == c.record.Nonce && !p.Free
}

// Retract makes sure that a claim whose outcome is open will never be applied. It replaces the free row of one of the
// locks with a free row of the next token, which records the same time of release. It fails with ErrChanged if the free
// row no longer exists, because this claim, another claim or an earlier attempt to retract has consumed it. Outcome
// then shows whether it was this claim.
func (t Table) Retract(ctx context.Context, c FreeClaim) error {
	o := c.seen[0]
	err := t.Store.Commit(ctx, "retract", refree(LeaseRef{o.Name, o.Token}, c.record.Lease, o.Freed))
	if errors.Is(err, ErrExists) { // a row was inserted there by hand
		err = t.Store.Commit(ctx, "retract", release(LeaseRef{o.Name, o.Token}))
	}
	if errors.Is(err, ErrMissing) {
		return fmt.Errorf("%w: %w", ErrChanged, err)
	}
	return err
}

// ReleaseFree is like Release, but leaves a free row for each name. If a row with the key of a free row already exists,
// because of an earlier attempt or a manual change, the names are released without free rows.
func (t Table) ReleaseFree(ctx context.Context, token Token, lease time.Duration, names ...string) error {
	return t.releaseFree(ctx, "release", token, lease, nil, names...)
}

// FinishFree is like Finish, but leaves a free row.
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

// refree returns the writes that replace the lease row or the free row of a token with a free row of the next token.
// The free row's heartbeat is since, which is a time or Now. Programs that do not support free rows read it as a lease
// record.
func refree(h LeaseRef, lease time.Duration, since any) []Write {
	next := h.Token + 1
	return append(consume(h.Name, h.Token),
		Write{Kind: Insert, Name: LeaseKey(h.Name, next), Set: []Cell{{ColHeartbeat, since}, {ColToken, next.Time()}, {ColWriter, LeaseRecord{Lease: lease, Free: true}.encode()}}},
		Write{Kind: Update, Name: h.Name, Set: []Cell{{ColHeartbeat, nil}, {ColToken, next.Time()}, {ColWriter, nil}}})
}

// freedSince returns the time at which a lock became free. The row is the one with the token of the released lock row.
// If it is not a free row, freedSince returns the zero time.
func freedSince(row Row) time.Time {
	if p, err := parseLeaseRecord(row.Name, row.Writer); err != nil || !p.Free {
		return time.Time{}
	}
	return row.Heartbeat
}
