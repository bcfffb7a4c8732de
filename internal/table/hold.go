package table

import (
	"context"
	"errors"
	"fmt"
)

// under makes one blind commit that requires the token's lease rows, and changes the locks' rows. It fails with
// ErrSuperseded if the token is no longer valid. If the commit's error does not say what is missing, under reads the
// lease rows to find out whether they still exist.
func (t Table) under(ctx context.Context, step string, token Token, names []string, change func(LeaseRef) []Write, also ...Write) error {
	var writes []Write
	for _, name := range names {
		writes = append(append(writes, requireLease(name, token)), change(LeaseRef{name, token})...)
	}
	err := t.Store.Commit(ctx, step, append(writes, also...))
	switch {
	case answered(err) == noRow:
		return ErrSuperseded // err has no further information
	case errors.Is(err, ErrMissing):
		return gone{err}
	case errors.Is(err, ErrNotFound):
		if valid, unknown := t.Valid(ctx, token, names...); !valid && unknown == nil {
			return fmt.Errorf("%w: %w", ErrSuperseded, err)
		}
	}
	return err
}

// gone is an ErrSuperseded that says that the whole lock table is gone.
type gone struct{ error }

func (g gone) Error() string        { return "the lock table is gone: " + g.error.Error() }
func (g gone) Is(target error) bool { return target == ErrSuperseded }
func (g gone) Unwrap() error        { return g.error }

// requireLease returns a write that makes its commit fail unless the lock is still held under the token.
func requireLease(name string, token Token) Write {
	return Write{Kind: Update, Name: LeaseKey(name, token)}
}

// mark returns a function whose writes set one column of the lock row.
func mark(column string, value any) func(LeaseRef) []Write {
	return func(h LeaseRef) []Write { return []Write{{Kind: Update, Name: h.Name, Set: []Cell{{column, value}}}} }
}

// Heartbeat extends the leases of the named locks. It does no harm if it is applied late or more than once, because it
// can only extend the lease of a token that is still valid.
func (t Table) Heartbeat(ctx context.Context, token Token, names ...string) error {
	return t.under(ctx, "heartbeat", token, names, mark(ColHeartbeat, Now))
}

type apartKey struct{}

// Apart returns a context for a request that a Store must combine with few others or none. A poll with n > 0 is sent
// alone, because other claims in this process wait for its answer. For a heartbeat, n is the number of earlier attempts
// that were not acknowledged. The larger n is, the fewer heartbeats share a commit, because a different heartbeat in
// the same commit may have caused the failures.
func Apart(ctx context.Context, n int) context.Context { return context.WithValue(ctx, apartKey{}, n) }

func ApartOf(ctx context.Context) int {
	n, _ := ctx.Value(apartKey{}).(int)
	return n
}

// Announce records that the holder of the named locks is leaving. Heartbeats do not change the writer column, so the
// announcement stays until the end of the term. It does no harm if it is applied late or more than once.
func (t Table) Announce(ctx context.Context, token Token, names ...string) error {
	return t.under(ctx, "announce", token, names, mark(ColWriter, nil))
}

// Weigh changes a member's weight. The argument o is an observation of the member's slot, with its lease record. A
// commit that is applied late may undo a later change, so after each poll, the member compares the weight in its row
// with the intended weight.
func (t Table) Weigh(ctx context.Context, o Observation, weight int) error {
	p := *o.LeaseRecord
	p.Weight = weight
	return t.under(ctx, "weigh", o.Token, []string{o.Name}, func(h LeaseRef) []Write {
		return []Write{{Kind: Update, Name: h.Key(), Set: []Cell{{ColWriter, p.encode()}}}}
	})
}

// succeeds is the prefix of a successor's id in the writer column. No id begins with it.
const succeeds = "\n"

// Succeed records which candidate should take over from a leaving holder, so that the other candidates can poll less
// often. If several candidates are recorded, the last one becomes the successor. The lock is not reserved for the
// successor: any candidate can claim it. Later terms are not affected.
func (t Table) Succeed(ctx context.Context, id, name string, token Token) error {
	return t.under(ctx, "succeed", token, []string{name}, mark(ColWriter, succeeds+id))
}

// A Request asks a holder to give up its lock.
type Request string

// Each constant is the name of the column that the request sets to NULL in the holder's lease row.
const (
	ByOperator   Request = ColToken     // an operator wants a different holder
	ByPreference Request = ColHeartbeat // a candidate of higher priority wants the lock
)

// Ask records a request in the lease row of the holder that has the token. A later holder has a different lease row, so
// it never sees the request.
func (t Table) Ask(ctx context.Context, r Request, name string, token Token) error {
	return t.under(ctx, "ask", token, []string{name}, func(h LeaseRef) []Write {
		return []Write{{Kind: Update, Name: h.Key(), Set: []Cell{{string(r), nil}}}}
	})
}

// Asked reports which requests are recorded in the holder's lease row. It fails with ErrSuperseded if the token is no
// longer valid.
func (t Table) Asked(ctx context.Context, name string, token Token) (operator, preference bool, err error) {
	rows, _, err := t.Store.Read(ctx, "asked", Strong, Keys{Names: []string{LeaseKey(name, token)}})
	if err == nil && len(rows) == 0 {
		err = fmt.Errorf("%w: it has no lease row", ErrSuperseded)
	}
	if err != nil {
		return false, false, err
	}
	return rows[0].Token.IsZero(), rows[0].Heartbeat.IsZero(), nil
}

func (t Table) Valid(ctx context.Context, token Token, names ...string) (bool, error) {
	var keys Keys
	for _, name := range names {
		keys.Names = append(keys.Names, LeaseKey(name, token))
	}
	rows, _, err := t.Store.Read(ctx, "valid", Strong, keys)
	return len(rows) == len(names), err
}
