package table

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"
)

// MaxLease is the longest lease. It keeps every sum of leases and times far from overflow.
const MaxLease = 24 * time.Hour

// MaxValue is the longest value of a holder, in bytes.
const MaxValue = 64 << 10

// MaxID is the longest id of a holder, in bytes.
const MaxID = 1 << 10

// MaxWriter is the longest text in the column writer, in characters: the plan of a group whose members have six lists
// of 20,000 partitions each.
const MaxWriter = 2_500_000

// MaxRank is the rank of the lowest priority.
const MaxRank = 9

// MaxWeight is the largest weight of a member of a group.
const MaxWeight = 1000

// MaxKeep is the longest time for which a gone member's share is remembered.
const MaxKeep = 7 * 24 * time.Hour

// LeaseRecord is what a holder wrote into its lease row when its term began. It never changes.
type LeaseRecord struct {
	Lease time.Duration // the holder stops by itself when no heartbeat was acknowledged for this long
	ID    string        // the holder's; "": it is in the lock row
	Value string        // what the holder published
	Slots int           // the size of the semaphore that the lock is a slot of, or 0
	Nonce string        // a claimant by a free row knows its own lease row by it
	Kind  LockKind      // what the lock is for; "": not said
	Free  bool          // there is no holder: the row is a free row, and the lease is the last holder's

	AcceptsHandover bool // the holder looks for requests to hand the lock over
	Rank            int  // how far its priority is below the highest, which is 0

	// For a member of a group: the digest of its list of partitions; since when it is there, if that is before its
	// token; its weight beside others', 0 for 1; whether it is assigned one partition at most, because it could do
	// nothing the last time; and for how long its share is remembered once it is gone.
	ListDigest string
	Since      Token
	Weight     int
	Trial      bool
	Keep       time.Duration

	// For a partition of a group: the key of its member's lease row, instead of heartbeats of its own. The lease is the
	// member's. It is written under another JSON name, so programs that know nothing of groups can't read it: they
	// leave the partition taken.
	With string
}

type leaseRecordJSON struct {
	V               int      `json:"v,omitempty"` // its format
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
	b, _ := json.Marshal(j) // strings and numbers: this can't fail
	return string(b)
}

// Size returns how many bytes the lease record has in the table. JSON writes some characters as six.
func (p LeaseRecord) Size() int { return len(p.encode()) }

// decodeLeaseRecord refuses what it can't read: a lease guessed too short would make two holders.
func decodeLeaseRecord(key, s string) (LeaseRecord, error) {
	p, err := parseLeaseRecord(key, s)
	switch {
	case errors.Is(err, ErrNewer):
		return LeaseRecord{}, err
	case err != nil:
		return LeaseRecord{}, fmt.Errorf("lease row %q: %w: how long its holder may act is not known, so the lock stays taken: stop the holder, then delete the row", key, err)
	}
	return p, nil
}

func parseLeaseRecord(key, s string) (LeaseRecord, error) {
	var j leaseRecordJSON
	err := json.Unmarshal([]byte(s), &j) // a newer version may have written other types
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
			return LeaseRecord{}, fmt.Errorf("lease record %q is with %q where the lease row of a member was expected", s, j.With)
		}
	}
	lease, err := time.ParseDuration(given)
	if err != nil || lease <= 0 || lease > MaxLease {
		return LeaseRecord{}, fmt.Errorf("lease record %q has %s %q where a duration of at most %v was expected", s, what, given, MaxLease)
	}
	p := LeaseRecord{Lease: lease, ID: j.ID, Value: j.Value, Slots: j.Slots, Kind: j.Kind, AcceptsHandover: j.AcceptsHandover, Rank: min(max(j.Rank, 0), MaxRank), ListDigest: j.ListDigest, Since: j.Since,
		Weight: min(max(j.Weight, 0), MaxWeight), Trial: j.Trial, Nonce: j.Nonce, Free: j.Free}
	if keep, err := time.ParseDuration(j.Keep); err == nil && keep > 0 { // a missing or bad value is no reason to refuse the rest
		p.Keep = min(keep, MaxKeep)
	}
	if what == "for" {
		p.With = j.With
	}
	return p, nil
}
