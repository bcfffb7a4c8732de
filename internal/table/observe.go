package table

import (
	"context"
	"time"
)

// Table runs the steps of the protocol on a store.
type Table struct {
	Store Store
}

// Observation is what a lock row said at one instant of Spanner's time.
type Observation struct {
	Name string
	At   time.Time // the read's timestamp

	Exists    bool
	Heartbeat time.Time // zero: released
	Token     Token
	Writer    string

	// Strays are the lease rows found where there is no lock row, by token: somebody deleted the
	// lock row by hand, and a holder may not know yet.
	Strays map[Token]Promise
}

// Confirmed tells a holder's row from a bare claim: a claim writes its own commit timestamp as token
// and heartbeat, and the confirmation is a later commit.
func (o Observation) Confirmed() bool { return TokenAt(o.Heartbeat) != o.Token }

// Observe reads the lock row of name. One RPC, or two where there is no such row.
func (t Table) Observe(ctx context.Context, name string) (Observation, error) {
	rows, at, err := t.Store.Read(ctx, "observe", Keys{Names: []string{name}})
	if err == nil && len(rows) == 0 {
		// Absence and strays must be of one instant: what came in between could be a whole term.
		rows, at, err = t.Store.Read(ctx, "observe", Keys{Names: []string{name}, Ranges: []Range{leaseKeys(name, at)}})
	}
	if err != nil {
		return Observation{}, err
	}
	o := Observation{Name: name, At: at, Strays: map[Token]Promise{}}
	for _, row := range rows {
		if row.Name == name {
			return Observation{Name: name, At: at, Exists: true, Heartbeat: row.Heartbeat, Token: TokenAt(row.Token), Writer: row.Writer}, nil
		}
		if isLeaseKey(name, row.Name) {
			if o.Strays[tokenOf(row.Name)], err = decodePromise(row.Name, row.Writer); err != nil {
				return Observation{}, err
			}
		}
	}
	return o, nil
}

// Promise reads the lease row of name under token. It is absent until the claim is confirmed, and
// once the token was superseded or released.
func (t Table) Promise(ctx context.Context, name string, token Token) (p Promise, ok bool, err error) {
	key := LeaseKey(name, token)
	rows, _, err := t.Store.Read(ctx, "promise", Keys{Names: []string{key}})
	if err != nil || len(rows) == 0 {
		return Promise{}, false, err
	}
	p, err = decodePromise(key, rows[0].Writer)
	return p, err == nil, err
}

// Good reports whether name is held under token.
func (t Table) Good(ctx context.Context, name string, token Token) (bool, error) {
	rows, _, err := t.Store.Read(ctx, "good", Keys{Names: []string{LeaseKey(name, token)}})
	return len(rows) > 0, err
}
