package table

import (
	"context"
	"slices"
	"strings"
	"time"
)

// Observation is the content of a lock's rows at one instant of Spanner's time.
type Observation struct {
	Name string
	At   time.Time // the timestamp of the read

	Exists    bool
	Heartbeat time.Time // zero if the lock is released
	Token     Token     // of the term; after a release, the time of the release, or the free row's token
	Writer    string    // the claimant's id, even after a withdrawal; "" after a release; "" or the successor if the holder is leaving; see also MarkPaused
	Freed     time.Time // when the lock was released, if its free row was read at the same instant; otherwise zero
	Began     time.Time // when the holder claimed the lock through a free row, if the lease row was read at the same instant; otherwise zero

	// LeaseRecord is the record in the lease row, if that row was read at the same instant.
	LeaseRecord *LeaseRecord

	// OrphanLeases contains the lock's lease rows, by token, if none of them matches the lock row. This happens only
	// after a manual change: either the lock row is missing, or the lock is held under a token that has no lease row.
	// The holder may not have noticed the change yet. Orphans contains the tokens of these lease rows, and of free rows
	// that match no lock row.
	OrphanLeases map[Token]LeaseRecord
	Orphans      []Token
}

// Confirmed reports whether the lock has a holder.
func (o Observation) Confirmed() bool { return !o.Heartbeat.IsZero() && !o.Bare() }

// Bare reports whether the row is an unconfirmed claim. Such a claim writes its commit timestamp as both token and
// heartbeat, and the confirmation writes a later heartbeat.
func (o Observation) Bare() bool { return !o.Heartbeat.IsZero() && TokenAt(o.Heartbeat) == o.Token }

// ReleasedAt returns the time at which the lock was released. If the lock has a free row that was not read, the result
// is too early.
func (o Observation) ReleasedAt() time.Time {
	if !o.Freed.IsZero() {
		return o.Freed
	}
	return o.Token.Time()
}

// Since returns the time at which the lock was claimed or released. This is the token's time, except after a claim
// through a free row or a release that left one. In these cases, only the lease row or the free row contains the exact
// time. If that row was not read, the result is too early.
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

// Holder returns the id of the holder or claimant. It returns "" if the holder is leaving and its lease record was not
// read.
func (o Observation) Holder() string {
	switch {
	case !o.Leaving():
		return o.Writer
	case o.LeaseRecord != nil:
		return o.LeaseRecord.ID
	}
	return ""
}

// WithLeases returns the keys of the named locks' rows: the lock rows, and all lease rows that the locks can have at
// the given time. The ranges also contain rows of other locks. For example, the range for job contains job_1 and
// job_15. Do not read the ranges in a transaction, because a commit to one of these other rows would make the
// transaction fail.
func WithLeases(names []string, at time.Time) Keys {
	keys := Keys{Names: names}
	for _, name := range names {
		keys.Ranges = append(keys.Ranges, Range{From: LeaseKey(name, 0), To: LeaseKey(name, TokenAt(at.Add(24*time.Hour)))})
	}
	return keys
}

// Observe reads the lock rows of the named locks at one instant, in one RPC.
func (t Table) Observe(ctx context.Context, names ...string) ([]Observation, error) {
	rows, err := t.Read(ctx, "observe", Present, Keys{Names: names})
	return rows.observations(names, err)
}

// Follow is like Observe, but also reads lease rows and free rows. For each name, it reads the rows of the given token
// and of all later tokens, up to one day after the given time.
func (t Table) Follow(ctx context.Context, at time.Time, since []Token, names ...string) ([]Observation, error) {
	keys := WithLeases(names, at)
	for i, name := range names {
		keys.Ranges[i].From = LeaseKey(name, since[i])
	}
	rows, err := t.Read(ctx, "observe", Present, keys)
	return rows.observations(names, err)
}

// Inspect is like Observe, but also reads the lease rows of the tokens in earlier observations. It does not read the
// additional keys of a Table that Beside returned.
func (t Table) Inspect(ctx context.Context, before ...Observation) ([]Observation, error) {
	keys := Keys{Names: namesOf(before)}
	for _, o := range before {
		keys.Names = append(keys.Names, LeaseKey(o.Name, o.Token))
	}
	t.beside = nil
	rows, err := t.Read(ctx, "lease-record", Present, keys)
	return rows.observations(namesOf(before), err)
}

// LookAtLeases is like Observe, but also reads all lease rows, including orphan leases. The given time should be close
// to the current time (see ReadAbout).
func (t Table) LookAtLeases(ctx context.Context, about time.Time, names ...string) ([]Observation, error) {
	rows, err := t.ReadAbout(ctx, "observe", about, func(about time.Time) Keys { return WithLeases(names, about) })
	return rows.observations(names, err)
}

// Holders reads a range of keys in one RPC. It returns the held locks whose leases have not expired, with their lease
// records. The range may contain unrelated locks: Holders ignores names for which the given function returns false.
func (t Table) Holders(ctx context.Context, r Range, is func(name string) bool) ([]Observation, error) {
	rows, err := t.Read(ctx, "observe", Present, Keys{Ranges: []Range{r}})
	var names []string
	for _, row := range rows.All {
		if is(row.Name) {
			names = append(names, row.Name)
		}
	}
	all, err := rows.observations(names, err)
	return slices.DeleteFunc(all, func(o Observation) bool {
		return o.LeaseRecord == nil || rows.At.Sub(o.Heartbeat) >= o.LeaseRecord.Lease
	}), err
}
