package table

import (
	"context"
	"fmt"
)

// Announce marks every name under token as leaving, in one blind commit: its lock row loses the writer, which
// heartbeats leave alone. It fails with ErrSuperseded if the token is not valid any more. It may be applied late or
// again: only the end of the term takes the mark away.
func (t Table) Announce(ctx context.Context, token Token, names ...string) error {
	var writes []Write
	for _, name := range names {
		writes = append(writes, requireLease(name, token), Write{Kind: Update, Name: name, Set: []Cell{{ColWriter, nil}}})
	}
	return t.superseded(ctx, token, names, t.Store.Commit(ctx, "announce", writes))
}

// succeeds precedes the id of a successor. No id begins so.
const succeeds = "\n"

// Succeed names the candidate that is to follow a leaving holder, so that the others need not look as often. The last
// one named counts. It is no reservation. Like an announcement, it does nothing to a later term.
func (t Table) Succeed(ctx context.Context, id, name string, token Token) error {
	writes := []Write{requireLease(name, token), {Kind: Update, Name: name, Set: []Cell{{ColWriter, succeeds + id}}}}
	return t.superseded(ctx, token, []string{name}, t.Store.Commit(ctx, "succeed", writes))
}

// A Request asks a holder to give the lock up.
type Request string

// The requests. Each empties a column of the holder's lease row.
const (
	ByOperator   Request = ColToken     // somebody wants another holder
	ByPreference Request = ColHeartbeat // a candidate of higher priority is there
)

// Ask leaves a request for the holder under token, in its lease row. That row is there exactly while the token is
// valid, so a request never reaches a later term, and leaves nothing behind. It fails with ErrSuperseded if the token
// is not valid.
func (t Table) Ask(ctx context.Context, r Request, name string, token Token) error {
	ask := Write{Kind: Update, Name: LeaseKey(name, token), Set: []Cell{{string(r), nil}}}
	return t.superseded(ctx, token, []string{name}, t.Store.Commit(ctx, "ask", []Write{ask}))
}

// Asked reports which requests the holder under token has. It fails with ErrSuperseded if the token is not valid.
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
