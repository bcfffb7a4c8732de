package table

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// Observation is the content of a lock row at one instant of Spanner's time.
type Observation struct {
	Name string
	At   time.Time // the read's timestamp

	Exists    bool
	Heartbeat time.Time // zero: released
	Token     Token     // of a released lock: of no term, but the time of the release
	Writer    string    // the claimant's id; "", or a successor: released, or leaving
	Freed     time.Time // when it was released, if its free row was read at the same instant; zero: no free row is known
	Began     time.Time // when its holder claimed it by a free row, if the lease row was read at the same instant

	// LeaseRecord is the holder's, if its lease row was read at the same instant.
	LeaseRecord *LeaseRecord

	// OrphanLeases are lease rows without their lock row, by token, in a look at the leases: the lock row is gone, or
	// the lock is held under a token without a lease row. Somebody changed that by hand, and a holder may not know yet.
	// OrphanFreeRows are free rows without their lock row.
	OrphanLeases   map[Token]LeaseRecord
	OrphanFreeRows []Token
}

// Confirmed reports whether the row is a holder's, not a released one or a bare claim. A claim writes its own commit
// timestamp as token and heartbeat, and the confirmation is a later commit.
func (o Observation) Confirmed() bool {
	return !o.Heartbeat.IsZero() && TokenAt(o.Heartbeat) != o.Token
}

// Bare reports whether the row is a claim that was not confirmed.
func (o Observation) Bare() bool { return !o.Heartbeat.IsZero() && TokenAt(o.Heartbeat) == o.Token }

// ReleasedAt returns when a lock was released. If it has a free row that was not read, it returns some time before
// that.
func (o Observation) ReleasedAt() time.Time {
	if !o.Freed.IsZero() {
		return o.Freed
	}
	return o.Token.Time()
}

// Since returns when the lock was claimed or released. The token says so, unless its claimant has chosen it.
func (o Observation) Since() time.Time {
	if o.Began.IsZero() {
		return o.ReleasedAt()
	}
	return o.Began
}

// Leaving reports whether the holder has announced that it will give the lock up.
func (o Observation) Leaving() bool {
	_, named := o.Successor()
	return o.Confirmed() && (o.Writer == "" || named)
}

// Successor returns the id of the candidate that looks often for the release of a leaving holder, if there is one.
func (o Observation) Successor() (id string, named bool) {
	return strings.CutPrefix(o.Writer, succeeds)
}

// Holder returns the claimant's id, or "" if the holder is leaving and no lease record says it.
func (o Observation) Holder() string {
	switch {
	case !o.Leaving():
		return o.Writer
	case o.LeaseRecord != nil:
		return o.LeaseRecord.ID
	}
	return ""
}

// Observe reads the lock rows of the names, at one instant, in one RPC.
func (t Table) Observe(ctx context.Context, names ...string) ([]Observation, error) {
	return t.observe(ctx, "observe", Keys{Names: names}, names)
}

// Follow is Observe with the lease rows and the free rows of these tokens, one for each name, and of all later tokens
// up to a day after that time.
func (t Table) Follow(ctx context.Context, at time.Time, since []Token, names ...string) ([]Observation, error) {
	keys := Keys{Names: names}
	for i, name := range names {
		keys.Ranges = append(keys.Ranges, Range{From: LeaseKey(name, since[i]), To: LeaseKey(name, TokenAt(at.Add(24*time.Hour)))})
	}
	return t.observe(ctx, "observe", keys, names)
}

// Inspect is Observe with the lease rows of the tokens observed before.
func (t Table) Inspect(ctx context.Context, before ...Observation) ([]Observation, error) {
	var names, leases []string
	for _, o := range before {
		names, leases = append(names, o.Name), append(leases, LeaseKey(o.Name, o.Token))
	}
	return t.observe(ctx, "lease-record", Keys{Names: slices.Concat(names, leases)}, names)
}

// LookAtLeases is Observe with all lease rows, orphan leases included. The time is about the present, and bounds the
// keys that are read: if Spanner's time differs much, a second read makes up for it.
func (t Table) LookAtLeases(ctx context.Context, about time.Time, names ...string) ([]Observation, error) {
	for {
		observed, err := t.observe(ctx, "observe", withLeases(names, about), names)
		if err != nil || !observed[0].At.After(about.Add(12*time.Hour)) {
			return observed, err
		}
		about = observed[0].At
	}
}

func (t Table) observe(ctx context.Context, step string, keys Keys, names []string) ([]Observation, error) {
	rows, at, err := t.Store.Read(ctx, step, Present, keys)
	if err != nil {
		return nil, err
	}
	return observations(rows, at, names)
}

func observations(rows []Row, at time.Time, names []string) ([]Observation, error) {
	byName := index(rows)
	observed := make([]Observation, len(names))
	for i, name := range names {
		o, err := observation(name, at, byName, rows)
		if err != nil {
			return nil, err
		}
		observed[i] = o
	}
	return observed, nil
}

// observation is observe for locks outside of groups.
func observation(name string, at time.Time, byName map[string]Row, rows []Row) (Observation, error) {
	o, err := observe(name, at, byName, rows)
	records := slices.Collect(maps.Values(o.OrphanLeases))
	if o.LeaseRecord != nil {
		records = append(records, *o.LeaseRecord)
	}
	for _, p := range records {
		if err == nil && p.With != "" {
			err = fmt.Errorf("lock %q %w", name, ErrGroup)
		}
	}
	return o, err
}

// observe makes an observation of rows. Leases contain, among other rows, all lease rows of the lock that were read.
func observe(name string, at time.Time, byName map[string]Row, leases []Row) (Observation, error) {
	o := lockRow(name, at, byName)
	if o.Exists && o.Heartbeat.IsZero() {
		o.Freed = freedSince(byName[LeaseKey(name, o.Token)])
	}
	if o.Exists && !o.Confirmed() {
		return o, nil
	}
	if leaseRow, ok := byName[LeaseKey(name, o.Token)]; ok && o.Exists {
		p, err := decodeLeaseRecord(leaseRow.Name, leaseRow.Writer)
		o.LeaseRecord = &p
		if p.Nonce != "" {
			o.Began = leaseRow.Heartbeat
		}
		return o, err
	}
	var err error
	o.OrphanLeases, o.OrphanFreeRows, err = orphanLeases(name, leases)
	return o, err
}

// lockRow returns an observation of the lock row alone.
func lockRow(name string, at time.Time, byName map[string]Row) Observation {
	o := Observation{Name: name, At: at}
	if row, exists := byName[name]; exists {
		o.Exists, o.Heartbeat, o.Token, o.Writer = true, row.Heartbeat, TokenAt(row.Token), row.Writer
	}
	return o
}

// withLeases returns the keys of the lock rows of the names, and of all lease rows that they can have at that time.
func withLeases(names []string, at time.Time) Keys {
	keys := Keys{Names: names}
	for _, name := range names {
		keys.Ranges = append(keys.Ranges, leaseKeys(name, at))
	}
	return keys
}

func orphanLeases(name string, rows []Row) (found map[Token]LeaseRecord, free []Token, err error) {
	found = map[Token]LeaseRecord{}
	for _, row := range rows {
		if !isLeaseKey(name, row.Name) {
			continue
		}
		p, err := decodeLeaseRecord(row.Name, row.Writer)
		switch {
		case err != nil:
			return nil, nil, err
		case p.Free:
			free = append(free, tokenOf(row.Name))
		default:
			found[tokenOf(row.Name)] = p
		}
	}
	return found, free, nil
}

func index(rows []Row) map[string]Row {
	byName := make(map[string]Row, len(rows))
	for _, row := range rows {
		byName[row.Name] = row
	}
	return byName
}
