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
	At   time.Time // the timestamp of the read

	Exists    bool
	Heartbeat time.Time // zero if the lock is released
	Token     Token     // if the lock is released, the time of the release instead of a term's token
	Writer    string    // the claimant's id; "" if the lock is released; "" or the successor if it is leaving
	Freed     time.Time // when it was released, if its free row was read at the same instant, or zero
	Began     time.Time // when its holder claimed it through a free row, if the lease row was read at the same instant

	// LeaseRecord is the record in the lease row, if that row was read at the same instant.
	LeaseRecord *LeaseRecord

	// OrphanLeases are lease rows, by token, for which a look at the leases found no matching lock row. Either the lock
	// row is missing, or the lock is held under a token without a lease row. Both result from a manual change, which
	// the holder may not have noticed yet. OrphanFreeRows are free rows without a matching lock row.
	OrphanLeases   map[Token]LeaseRecord
	OrphanFreeRows []Token
}

// Confirmed reports whether the row is that of a holder, and not a released lock or a bare claim. A claim writes its
// commit timestamp as both token and heartbeat, and the confirmation writes a later heartbeat.
func (o Observation) Confirmed() bool {
	return !o.Heartbeat.IsZero() && TokenAt(o.Heartbeat) != o.Token
}

// Bare reports whether the row is an unconfirmed claim.
func (o Observation) Bare() bool { return !o.Heartbeat.IsZero() && TokenAt(o.Heartbeat) == o.Token }

// ReleasedAt returns the time at which a lock was released. If the lock has a free row that was not read, the result is
// an earlier time.
func (o Observation) ReleasedAt() time.Time {
	if !o.Freed.IsZero() {
		return o.Freed
	}
	return o.Token.Time()
}

// Since returns the time at which the lock was claimed or released. This is the time of the token, unless the claimant
// chose the token itself.
func (o Observation) Since() time.Time {
	if o.Began.IsZero() {
		return o.ReleasedAt()
	}
	return o.Began
}

// Leaving reports whether the holder has announced that it will release the lock.
func (o Observation) Leaving() bool {
	_, named := o.Successor()
	return o.Confirmed() && (o.Writer == "" || named)
}

// Successor returns the id of the lock's successor, which is the candidate that looks often for the release of a
// leaving holder. It reports false if there is none.
func (o Observation) Successor() (id string, named bool) {
	return strings.CutPrefix(o.Writer, succeeds)
}

// Holder returns the claimant's id. It returns "" if the holder is leaving and its lease record was not read.
func (o Observation) Holder() string {
	switch {
	case !o.Leaving():
		return o.Writer
	case o.LeaseRecord != nil:
		return o.LeaseRecord.ID
	}
	return ""
}

// Observe reads the lock rows of the names at one instant, in one RPC.
func (t Table) Observe(ctx context.Context, names ...string) ([]Observation, error) {
	return t.observe(ctx, "observe", Keys{Names: names}, names)
}

// Follow is like Observe, but also reads lease rows and free rows. For each name, it reads the rows of the token in
// since and of all later tokens, up to one day after at.
func (t Table) Follow(ctx context.Context, at time.Time, since []Token, names ...string) ([]Observation, error) {
	keys := Keys{Names: names}
	for i, name := range names {
		keys.Ranges = append(keys.Ranges, Range{From: LeaseKey(name, since[i]), To: LeaseKey(name, TokenAt(at.Add(24*time.Hour)))})
	}
	return t.observe(ctx, "observe", keys, names)
}

// Inspect is like Observe, but also reads the lease rows of the tokens in earlier observations.
func (t Table) Inspect(ctx context.Context, before ...Observation) ([]Observation, error) {
	var names, leases []string
	for _, o := range before {
		names, leases = append(names, o.Name), append(leases, LeaseKey(o.Name, o.Token))
	}
	return t.observe(ctx, "lease-record", Keys{Names: slices.Concat(names, leases)}, names)
}

// LookAtLeases is like Observe, but also reads all lease rows, including orphan leases. The time about should be close
// to the present, because it limits the keys that are read. If Spanner's time is much later, LookAtLeases reads again.
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

// observation is like observe, but returns ErrGroup if the lock is a partition of a group.
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

// observe returns the observation of a lock that the rows of one snapshot show. The rows in leases include all lease
// rows of the lock that were read, and may include rows of other locks.
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

// lockRow returns an observation based on the lock row alone.
func lockRow(name string, at time.Time, byName map[string]Row) Observation {
	o := Observation{Name: name, At: at}
	if row, exists := byName[name]; exists {
		o.Exists, o.Heartbeat, o.Token, o.Writer = true, row.Heartbeat, TokenAt(row.Token), row.Writer
	}
	return o
}

// withLeases returns the keys of the lock rows of the names, and of all lease rows that these locks can have at that
// time.
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
