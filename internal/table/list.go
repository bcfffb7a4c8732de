package table

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"
)

// State is what a lock is at one instant, by Spanner's clock.
type State string

// The states.
const (
	Free        State = "free"        // it has no row: nobody ever claimed it, or somebody deleted it
	Held        State = "held"        // its holder was heard from within its lease
	Leaving     State = "leaving"     // held, and its holder has announced that it will give it up
	Expired     State = "expired"     // its holder was not, and nobody has claimed it since
	Released    State = "released"    // its last holder gave it back
	Unconfirmed State = "unconfirmed" // it is claimed, and has no lease row that lets the claimant act
	Orphaned    State = "orphaned"    // it has a lease row and no lock row: somebody deleted that by hand
	Unreadable  State = "unreadable"  // its lease row does not say how long the holder may act
)

// Listing is a lock as an operator sees it, with its lease row folded into it.
type Listing struct {
	Observation
	Unreadable error // why the promise is not known
}

// State says what the lock is.
func (l Listing) State() State {
	switch {
	case l.Unreadable != nil:
		return Unreadable
	case !l.Exists && len(l.Strays) > 0:
		return Orphaned
	case !l.Exists:
		return Free
	case l.Heartbeat.IsZero():
		return Released
	case !l.Confirmed() || l.Promise == nil:
		return Unconfirmed
	case l.At.Sub(l.Heartbeat) >= l.Promise.Lease:
		return Expired
	case l.Leaving():
		return Leaving
	}
	return Held
}

// IsHeld reports whether the lock has a holder, be it a leaving one.
func (l Listing) IsHeld() bool { return l.State() == Held || l.State() == Leaving }

// List reads every lock whose name begins with the prefix at one instant, in the order of their names; without
// all, released ones are left out. A row that can't be read does not hide the others.
func (t Table) List(ctx context.Context, prefix string, all bool) ([]Listing, time.Time, error) {
	rows, at, err := t.Store.Read(ctx, "list", Present, Keys{All: true, Prefix: prefix, Busy: !all})
	if err != nil {
		return nil, time.Time{}, err
	}
	byName := index(rows)
	names := map[string]bool{}
	for _, row := range rows {
		name := row.Name
		if lock, ok := lockOf(name); ok {
			name = lock
		}
		if strings.HasPrefix(name, prefix) { // not the lease row alone, as that of a is with a_
			names[name] = true
		}
	}
	var found []Listing
	for name := range names {
		found = append(found, list(name, at, byName, rows))
	}
	slices.SortFunc(found, func(a, b Listing) int { return cmp.Compare(a.Name, b.Name) })
	return found, at, nil
}

// ListOne is List for one name, in one RPC, and another if the local clock is a day behind.
func (t Table) ListOne(ctx context.Context, name string) (Listing, error) {
	for about := time.Now(); ; {
		rows, at, err := t.Store.Read(ctx, "list", Present, withLeases([]string{name}, about))
		if err != nil {
			return Listing{}, err
		}
		l := list(name, at, index(rows), rows)
		if l.State() != Unconfirmed || about.Add(12*time.Hour).After(at) {
			return l, nil
		}
		about = at
	}
}

// Holders reads the locks in the range that are held, with their promises, in one RPC. Other locks' names
// may be in the range too: is tells the names that are meant.
func (t Table) Holders(ctx context.Context, r Range, is func(name string) bool) ([]Observation, error) {
	rows, at, err := t.Store.Read(ctx, "observe", Present, Keys{Ranges: []Range{r}})
	if err != nil {
		return nil, err
	}
	var names []string
	for _, row := range rows {
		if is(row.Name) {
			names = append(names, row.Name)
		}
	}
	all, err := observations(rows, at, names)
	return slices.DeleteFunc(all, func(o Observation) bool {
		return o.Promise == nil || at.Sub(o.Heartbeat) >= o.Promise.Lease
	}), err
}

func list(name string, at time.Time, byName map[string]Row, rows []Row) Listing {
	o, err := observation(name, at, byName, rows)
	if o.Heartbeat.IsZero() {
		o.Writer = "" // of a claim that was withdrawn
	}
	return Listing{Observation: o, Unreadable: err}
}

// lockOf returns the lock that a key is the lease row of.
func lockOf(key string) (string, bool) {
	i := strings.LastIndexByte(key, '_')
	if i <= 0 || !isLeaseKey(key[:i], key) {
		return "", false
	}
	return key[:i], true
}
