package table

import (
	"context"
	"errors"
	"slices"
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

	// Promise is the holder's, where its lease row was read at the same instant.
	Promise *Promise

	// Strays are the lease rows found where there is no lock row, by token: somebody deleted the
	// lock row by hand, and a holder may not know yet.
	Strays map[Token]Promise
}

// Held tells a holder's row from a released one and from a bare claim. A claim writes its own commit
// timestamp as token and heartbeat, and the confirmation is a later commit.
func (o Observation) Held() bool { return !o.Heartbeat.IsZero() && TokenAt(o.Heartbeat) != o.Token }

// Observe reads the lock rows of the names, at one instant. One RPC, or two where one has no such row:
// absence and strays must be of one instant, since what came in between could be a whole term.
func (t Table) Observe(ctx context.Context, names ...string) ([]Observation, error) {
	rows, at, err := t.Store.Read(ctx, "observe", Keys{Names: names})
	switch {
	case err != nil:
		return nil, err
	case len(rows) < len(names):
		return t.Survey(ctx, at, names...)
	}
	return observations(rows, at, names)
}

// Survey is Observe with the lease rows, all at one instant, in one RPC. The time is about the present,
// and bounds the keys that are looked for.
func (t Table) Survey(ctx context.Context, about time.Time, names ...string) ([]Observation, error) {
	rows, at, err := t.Store.Read(ctx, "observe", withLeases(names, about))
	if err != nil {
		return nil, err
	}
	return observations(rows, at, names)
}

func observations(rows []Row, at time.Time, names []string) ([]Observation, error) {
	byName := index(rows)
	observed := make([]Observation, len(names))
	for i, name := range names {
		o := Observation{Name: name, At: at}
		row, exists := byName[name]
		if !exists {
			var err error
			if o.Strays, err = strays(name, rows); err != nil {
				return nil, err
			}
			observed[i] = o
			continue
		}
		o.Exists, o.Heartbeat, o.Token, o.Writer = true, row.Heartbeat, TokenAt(row.Token), row.Writer
		if leaseRow, ok := byName[LeaseKey(name, o.Token)]; ok && o.Held() {
			p, err := decodePromise(leaseRow.Name, leaseRow.Writer)
			if err != nil {
				return nil, err
			}
			o.Promise = &p
		}
		observed[i] = o
	}
	return observed, nil
}

// withLeases are the lock rows of the names and all lease rows that they can have at that time.
func withLeases(names []string, at time.Time) Keys {
	keys := Keys{Names: names}
	for _, name := range names {
		keys.Ranges = append(keys.Ranges, leaseKeys(name, at))
	}
	return keys
}

func strays(name string, rows []Row) (map[Token]Promise, error) {
	found := map[Token]Promise{}
	for _, row := range rows {
		if isLeaseKey(name, row.Name) {
			p, err := decodePromise(row.Name, row.Writer)
			if err != nil {
				return nil, err
			}
			found[tokenOf(row.Name)] = p
		}
	}
	return found, nil
}

func index(rows []Row) map[string]Row {
	byName := make(map[string]Row, len(rows))
	for _, row := range rows {
		byName[row.Name] = row
	}
	return byName
}

// Promises reads the lease rows of what was observed, and returns the promises by the lock's name. One
// is missing until the claim is confirmed, and once the token was superseded or released. What can't
// be read is an error beside the others.
func (t Table) Promises(ctx context.Context, observed ...Observation) (map[string]Promise, error) {
	var keys Keys
	for _, o := range observed {
		keys.Names = append(keys.Names, LeaseKey(o.Name, o.Token))
	}
	rows, _, err := t.Store.Read(ctx, "promise", keys)
	if err != nil {
		return nil, err
	}
	byKey, promises := index(rows), map[string]Promise{}
	for _, o := range observed {
		if row, ok := byKey[LeaseKey(o.Name, o.Token)]; ok {
			p, unreadable := decodePromise(row.Name, row.Writer)
			if unreadable != nil {
				err = errors.Join(err, unreadable)
				continue
			}
			promises[o.Name] = p
		}
	}
	return promises, err
}

// Good reports whether name is held under token.
func (t Table) Good(ctx context.Context, name string, token Token) (bool, error) {
	rows, _, err := t.Store.Read(ctx, "good", Keys{Names: []string{LeaseKey(name, token)}})
	return len(rows) > 0, err
}

// Holders reads the locks with names in the range that are held, with their promises, in one RPC.
func (t Table) Holders(ctx context.Context, r Range) ([]Observation, error) {
	rows, at, err := t.Store.Read(ctx, "observe", Keys{Ranges: []Range{r}})
	if err != nil {
		return nil, err
	}
	var names []string
	for _, row := range rows {
		if !leaseLike.MatchString(row.Name) {
			names = append(names, row.Name)
		}
	}
	all, err := observations(rows, at, names)
	return slices.DeleteFunc(all, func(o Observation) bool {
		return o.Promise == nil || at.Sub(o.Heartbeat) >= o.Promise.Lease
	}), err
}
