package table

import (
	"context"
	"fmt"
)

// Announce marks the named locks, which are held under token, as leaving. It does this in one blind commit that clears
// the writer of each lock row. Heartbeats do not change the writer, so the mark stays until the end of the term. The
// commit does no harm if it is applied late or more than once. Announce fails with ErrSuperseded if the token is no
// longer valid.
func (t Table) Announce(ctx context.Context, token Token, names ...string) error {
	return t.under(ctx, "announce", token, names, func(name string) []Write {
		return []Write{requireLease(name, token), {Kind: Update, Name: name, Set: []Cell{{ColWriter, nil}}}}
	})
}

// succeeds is the prefix of a successor's id in the writer column. No id begins with it.
const succeeds = "\n"

// Succeed names the candidate that should take over from a leaving holder, so that the other candidates can poll less
// often. If it is called for several candidates, the last call wins. The lock is not reserved for the successor, so any
// candidate can claim it. Later terms are not affected.
func (t Table) Succeed(ctx context.Context, id, name string, token Token) error {
	writes := []Write{requireLease(name, token), {Kind: Update, Name: name, Set: []Cell{{ColWriter, succeeds + id}}}}
	return t.superseded(ctx, token, []string{name}, t.Store.Commit(ctx, "succeed", writes))
}

// A Request asks a holder to give up its lock.
type Request string

// The requests. Each one clears a column of the holder's lease row.
const (
	ByOperator   Request = ColToken     // an operator wants a different holder
	ByPreference Request = ColHeartbeat // a candidate of higher priority wants the lock
)

// Ask records a request in the lease row of the current holder. It fails with ErrSuperseded if the holder's token is no
// longer valid. The lease row exists exactly as long as the token is valid, so a later holder never sees the request.
func (t Table) Ask(ctx context.Context, r Request, name string, token Token) error {
	ask := Write{Kind: Update, Name: LeaseKey(name, token), Set: []Cell{{string(r), nil}}}
	return t.superseded(ctx, token, []string{name}, t.Store.Commit(ctx, "ask", []Write{ask}))
}

// Asked reports which requests to the holder are recorded in its lease row. It fails with ErrSuperseded if the token is no
// longer valid.
func (t Table) Asked(ctx context.Context, name string, token Token) (operator, preference bool, err error) {
	rows, _, err := t.Store.Read(ctx, "asked", Strong, Keys{Names: []string{LeaseKey(name, token)}})
	switch {
	case err != nil:
		return false, false, err
	case len(rows) == 0:
		return false, false, fmt.Errorf("%w: it has no lease row", ErrSuperseded)
	}
	return rows[0].Token.IsZero(), rows[0].Heartbeat.IsZero(), nil
}
