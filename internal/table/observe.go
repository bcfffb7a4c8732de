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

	// OrphanLeases contains the lock's lease rows, by token, if none of them matches the lock row. This happens only
	// after a manual change: either the lock row is missing, or the lock is held under a token that has no lease row.
	// The holder may not have noticed yet. OrphanFreeRows contains the tokens of free rows that match no lock row. Both
	// are empty if the lease rows were not read.
	OrphanLeases   map[Token]LeaseRecord
	OrphanFreeRows []Token
}

// Confirmed reports whether the lock has a holder. It returns false if the lock is released, or claimed but not
// confirmed. The claim writes its commit timestamp as both token and heartbeat, and the confirmation writes a later
// heartbeat.
func (o Observation) Confirmed() bool {
	return !o.Heartbeat.IsZero() && TokenAt(o.Heartbeat) != o.Token
}

// Bare reports whether the row is an unconfirmed claim.
func (o Observation) Bare() bool { return !o.Heartbeat.IsZero() && TokenAt(o.Heartbeat) == o.Token }

// ReleasedAt returns the time at which the lock was released. If the lock has a free row that was not read, ReleasedAt
// returns an earlier time.
func (o Observation) ReleasedAt() time.Time {
	if !o.Freed.IsZero() {
		return o.Freed
	}
	return o.Token.Time()
}

// Since returns the time at which the lock was claimed or released. The token contains this time, unless the claimant
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

// Successor returns the id of the candidate that should take over from a leaving holder, and reports whether there is
// one. The successor polls often, so that it soon notices the release.
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

// Follow is like Observe, but also reads lease rows and free rows. The argument since contains one token for each name.
// Follow reads the rows of that token and of all later tokens, up to one day after the time at.
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
	t.beside = nil
	return t.observe(ctx, "lease-record", Keys{Names: slices.Concat(names, leases)}, names)
}

// LookAtLeases is like Observe, but also reads all lease rows, including orphan leases. The argument about should be
// close to the current time, because it limits the range of keys that are read. If Spanner's time turns out to be much
// later, LookAtLeases repeats the read.
func (t Table) LookAtLeases(ctx context.Context, about time.Time, names ...string) ([]Observation, error) {
	for {
		observed, err := t.observe(ctx, "observe", WithLeases(names, about), names)
		if err != nil || !observed[0].At.After(about.Add(12*time.Hour)) {
			return observed, err
		}
		about = observed[0].At
	}
}

func (t Table) observe(ctx context.Context, step string, keys Keys, names []string) ([]Observation, error) {
	rows, at, err := t.poll(ctx, step, keys)
	if err != nil {
		return nil, err
	}
	return RowsAt(at, rows).observations(names)
}

// poll reads the keys, and what is beside them.
func (t Table) poll(ctx context.Context, step string, keys Keys) ([]Row, time.Time, error) {
	b := t.beside
	if b == nil {
		return t.Store.Read(ctx, step, Present, keys)
	}
	keys.Names = slices.Concat(keys.Names, b.Names)
	rows, at, err := ReadQueues(ctx, t.Store, step, Present, keys, b.Queues...)
	if err == nil {
		b.Rows, b.At = rows, at
	}
	return rows, at, err
}

// Holders reads the held locks in the range, with their lease records, in one RPC. The range may contain the names of
// unrelated locks. Holders ignores a name if the function is returns false for it.
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
	all, err := RowsAt(at, rows).observations(names)
	return slices.DeleteFunc(all, func(o Observation) bool {
		return o.LeaseRecord == nil || at.Sub(o.Heartbeat) >= o.LeaseRecord.Lease
	}), err
}

func (r Rows) observations(names []string) ([]Observation, error) {
	observed := make([]Observation, len(names))
	for i, name := range names {
		var err error
		if observed[i], err = r.Lock(name); err != nil {
			return nil, err
		}
	}
	return observed, nil
}

// Lock is like Observe, but returns ErrGroup if the lock is a partition of a group.
func (r Rows) Lock(name string) (Observation, error) {
	o, err := r.Observe(name)
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

// Observe decodes a lock's rows. Lease rows that were not read count as missing.
func (r Rows) Observe(name string) (Observation, error) {
	o := r.lockRow(name)
	if o.Exists && o.Heartbeat.IsZero() {
		o.Freed = freedSince(r.byName[LeaseKey(name, o.Token)])
	}
	if o.Exists && !o.Confirmed() {
		return o, nil
	}
	if leaseRow, ok := r.byName[LeaseKey(name, o.Token)]; ok && o.Exists {
		p, err := decodeLeaseRecord(leaseRow.Name, leaseRow.Writer)
		o.LeaseRecord = &p
		if p.Nonce != "" {
			o.Began = leaseRow.Heartbeat
		}
		return o, err
	}
	var err error
	o.OrphanLeases, o.OrphanFreeRows, err = orphanLeases(r.leases[name])
	return o, err
}

// lockRow returns an observation based on the lock row alone.
func (r Rows) lockRow(name string) Observation {
	o := Observation{Name: name, At: r.At}
	if row, exists := r.byName[name]; exists {
		o.Exists, o.Heartbeat, o.Token, o.Writer = true, row.Heartbeat, TokenAt(row.Token), row.Writer
	}
	return o
}

// WithLeases returns the keys of the named locks' rows: the lock rows, and all lease rows that the locks can have at
// the given time.
func WithLeases(names []string, at time.Time) Keys {
	keys := Keys{Names: names}
	for _, name := range names {
		keys.Ranges = append(keys.Ranges, leaseKeys(name, at))
	}
	return keys
}

func orphanLeases(rows []Row) (found map[Token]LeaseRecord, free []Token, err error) {
	found = map[Token]LeaseRecord{}
	for _, row := range rows {
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
