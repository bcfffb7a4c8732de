package table

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"
)

// MaxLease is the longest possible lease. This limit keeps sums of leases and times far from overflow.
const MaxLease = 24 * time.Hour

// MaxValue is the maximum length of a holder's value, in bytes.
const MaxValue = 64 << 10

// MaxID is the maximum length of a holder's id, in bytes.
const MaxID = 1 << 10

// MaxWriter is the maximum length of the text in the writer column, in characters. The longest texts are plans of
// groups. The limit is high enough for a group whose members have six different lists of 20,000 partitions each.
const MaxWriter = 2_500_000

// MaxRank is the rank of the lowest priority.
const MaxRank = 9

// MaxWeight is the largest weight of a member of a group.
const MaxWeight = 1000

// MaxKeep is the longest time for which a former member's share is remembered.
const MaxKeep = 7 * 24 * time.Hour

// LeaseRecord is the record that a holder writes into its lease row when its term begins. It never changes.
type LeaseRecord struct {
	Lease time.Duration // the holder stops by itself if no heartbeat is acknowledged for this long
	ID    string        // the holder's id, or "" if only the lock row has it
	Value string        // the value that the holder published
	Slots int           // the size of the semaphore if the lock is a slot, or 0
	Nonce string        // identifies the lease row of a claim through a free row
	Kind  LockKind      // the kind of lock, or "" if it was not recorded
	Free  bool          // the row is a free row, without a holder; Lease is the last holder's

	AcceptsHandover bool // the holder accepts requests to hand over the lock
	Rank            int  // how far the priority is below the highest one, whose rank is 0

	// The following fields are for members of a group.
	ListDigest string        // the digest of the member's list of partitions
	Since      Token         // when the member joined, if that was before its token
	Weight     int           // relative to the other members; 0 means 1
	Trial      bool          // the member is assigned one partition at most, because it achieved nothing in its last term
	Keep       time.Duration // how long the member's share is remembered after the member has left

	// With is the key of the member's lease row. It is set only for partitions of a group, which have no heartbeats of
	// their own, and Lease is then the member's lease. In this case, Lease is written under a different JSON name.
	// Programs that do not support groups can't read such a record, so they do not try to claim the partition.
	With string
}

// LockKind tells what a lock is used for, if the lock's rows show it. For example, an elector's lock should always be
// held, but a mutex is often free. The kind is shown to users and used in alerts. The protocol does not depend on it.
type LockKind string

// The kinds of locks. Programs of earlier versions do not record a lock's kind.
const (
	Elector   LockKind = "elector"
	Exec      LockKind = "exec"
	Guard     LockKind = "guard"
	Mutex     LockKind = "mutex"
	Semaphore LockKind = "semaphore"
	GroupPart LockKind = "group"
)

// IsShort reports whether locks of this kind are free while there is no work for them.
func (k LockKind) IsShort() bool { return slices.Contains([]LockKind{Mutex, Semaphore}, k) }

type leaseRecordJSON struct {
	V               int      `json:"v,omitempty"` // the format version
	Lease           string   `json:"lease,omitempty"`
	ID              string   `json:"id,omitempty"`
	Value           string   `json:"value,omitempty"`
	Slots           int      `json:"slots,omitempty"`
	Kind            LockKind `json:"kind,omitempty"`
	AcceptsHandover bool     `json:"obeys,omitempty"`
	Rank            int      `json:"deference,omitempty"`
	groupJSON
	Nonce string `json:"nonce,omitempty"`
	Free  bool   `json:"free,omitempty"`
}

type groupJSON struct {
	ListDigest string `json:"plan,omitempty"`
	Since      Token  `json:"since,omitempty"`
	Weight     int    `json:"weight,omitempty"`
	Trial      bool   `json:"trial,omitempty"`
	Keep       string `json:"keep,omitempty"`
	With       string `json:"with,omitempty"`
	For        string `json:"for,omitempty"`
}

func (p LeaseRecord) encode() string {
	j := leaseRecordJSON{V: format, Lease: p.Lease.String(), ID: p.ID, Value: p.Value, Slots: p.Slots, Kind: p.Kind, AcceptsHandover: p.AcceptsHandover, Rank: p.Rank,
		groupJSON: groupJSON{ListDigest: p.ListDigest, Since: p.Since, Weight: p.Weight, Trial: p.Trial, With: p.With}, Nonce: p.Nonce, Free: p.Free}
	if p.Keep > 0 {
		j.Keep = p.Keep.String()
	}
	if p.With != "" {
		j.Lease, j.For = "", j.Lease
	}
	b, _ := json.Marshal(j) // can't fail
	return string(b)
}

// Size returns the size of the lease record in the table, in bytes. JSON encodes some characters as six bytes.
func (p LeaseRecord) Size() int { return len(p.encode()) }

// decodeLeaseRecord decodes a lease record. If it can't read the record, it returns an error and does not assume a
// lease, because a lease that is too short could lead to two holders.
func decodeLeaseRecord(key, s string) (LeaseRecord, error) {
	p, err := parseLeaseRecord(key, s)
	switch {
	case errors.Is(err, ErrNewer):
		return LeaseRecord{}, err
	case err != nil:
		return LeaseRecord{}, fmt.Errorf("lease row %q: %w: the lock stays taken because its holder may still be acting; stop the holder, then delete the row", key, err)
	}
	return p, nil
}

func parseLeaseRecord(key, s string) (LeaseRecord, error) {
	var j leaseRecordJSON
	err := json.Unmarshal([]byte(s), &j) // a newer version may have written different types
	if newer := known(key, j.V); newer != nil {
		return LeaseRecord{}, newer
	}
	if err != nil {
		return LeaseRecord{}, fmt.Errorf("lease record %q is not JSON such as {\"lease\":\"10s\"}: %w", s, err)
	}
	what, given := "lease", j.Lease
	if j.With != "" && j.Lease == "" {
		what, given = "for", j.For
		if _, ok := MemberOf(j.With); !ok {
			return LeaseRecord{}, fmt.Errorf("lease record %q: %q is not the key of a member's lease row", s, j.With)
		}
	}
	lease, err := time.ParseDuration(given)
	if err != nil || lease <= 0 || lease > MaxLease {
		return LeaseRecord{}, fmt.Errorf("lease record %q has %s %q, but a duration of at most %v was expected", s, what, given, MaxLease)
	}
	p := LeaseRecord{Lease: lease, ID: j.ID, Value: j.Value, Slots: j.Slots, Kind: j.Kind, AcceptsHandover: j.AcceptsHandover, Rank: min(max(j.Rank, 0), MaxRank), ListDigest: j.ListDigest, Since: j.Since,
		Weight: min(max(j.Weight, 0), MaxWeight), Trial: j.Trial, Nonce: j.Nonce, Free: j.Free}
	if keep, err := time.ParseDuration(j.Keep); err == nil && keep > 0 { // the rest of the record is valid without it
		p.Keep = min(keep, MaxKeep)
	}
	if what == "for" {
		p.With = j.With
	}
	return p, nil
}
