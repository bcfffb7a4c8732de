package table

import (
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"time"
)

// These limits apply to what holders and members write.
const (
	MaxLease  = 24 * time.Hour // keeps sums of leases and times far from overflow
	MaxValue  = 64 << 10       // bytes of a holder's value
	MaxID     = 1 << 10        // bytes of a holder's id
	MaxRank   = 9              // the rank of the lowest priority
	MaxWeight = 1000
	MaxKeep   = 7 * 24 * time.Hour

	// MaxWriter is the maximum length of the text in the writer column, in characters. The longest texts are plans of
	// groups. The limit is high enough for a group whose members have six different lists of 20,000 partitions each.
	MaxWriter = 2_500_000
)

// LeaseRecord is the record that a holder writes into its lease row when its term begins. Only a member's weight can
// change later.
//
// Three JSON keys are older than the glossary, and are kept because existing rows contain them: "obeys" says that the
// holder accepts requests for a handover, "deference" is the rank, and "plan" is the list digest.
type LeaseRecord struct {
	Lease time.Duration `json:"-"`               // the holder stops by itself if no heartbeat is acknowledged for this long
	ID    string        `json:"id,omitempty"`    // the holder's id, or "" if only the lock row has it
	Value string        `json:"value,omitempty"` // the value that the holder published
	Slots int           `json:"slots,omitempty"` // the size of the semaphore if the lock is a slot, or 0
	Kind  LockKind      `json:"kind,omitempty"`  // the kind of lock, or "" if it was not recorded

	AcceptsHandover bool `json:"obeys,omitempty"`     // the holder accepts requests to hand over the lock
	Rank            int  `json:"deference,omitempty"` // how far the priority is below the highest one, whose rank is 0

	// The following fields are for members of a group.
	ListDigest string        `json:"plan,omitempty"`   // the digest of the member's list of partitions
	Since      Token         `json:"since,omitempty"`  // when the member joined, if that was before its token
	Weight     int           `json:"weight,omitempty"` // relative to the other members; 0 means 1
	Trial      bool          `json:"trial,omitempty"`  // the member is assigned at most one partition, because it achieved nothing in its last term
	Keep       time.Duration `json:"-"`                // how long the member's share is remembered after the member has left

	// With is set only for partitions of a group, because they have no heartbeats of their own. It is the key of the
	// member's lease row. Lease is then the member's lease, and is written under a different JSON key. Programs that do
	// not support groups can't read such a record, so they do not try to claim the partition.
	With string `json:"with,omitempty"`

	Nonce  string `json:"nonce,omitempty"`  // identifies the lease row of a claim through a free row
	Free   bool   `json:"free,omitempty"`   // the row is a free row, without a holder; Lease is the last holder's
	Notify string `json:"notify,omitempty"` // how to notify the holder: an address and a secret, which must not be shown
}

// leaseRecordJSON is a lease record with the format version, and with durations as text.
type leaseRecordJSON struct {
	V     int    `json:"v,omitempty"`
	Lease string `json:"lease,omitempty"`
	For   string `json:"for,omitempty"` // the lease, if With is set
	Keep  string `json:"keep,omitempty"`
	LeaseRecord
}

// LockKind says what a lock is used for, if the lock's rows show it. The kind is shown to users and used in alerts: for
// example, an elector's lock should always be held, but a mutex is often free. The protocol does not depend on it.
type LockKind string

// Programs of earlier versions do not record a lock's kind.
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

func (p LeaseRecord) encode() string {
	j := leaseRecordJSON{V: format, Lease: p.Lease.String(), Keep: orNothing(p.Keep), LeaseRecord: p}
	if p.With != "" {
		j.Lease, j.For = "", j.Lease
	}
	b, _ := json.Marshal(j) // can't fail
	return string(b)
}

// orNothing returns a duration as text, or no text if it is not positive.
func orNothing(d time.Duration) string {
	if d <= 0 {
		return ""
	}
	return d.String()
}

// Size returns the size of the lease record in the table, in bytes. JSON encodes some characters as six bytes.
func (p LeaseRecord) Size() int { return len(p.encode()) }

// decodeLeaseRecord decodes a lease record. If it can't read the record, it returns an error and does not assume a
// lease, because a lease that is too short could lead to two holders.
func decodeLeaseRecord(row Row) (LeaseRecord, error) {
	var j leaseRecordJSON
	err := json.Unmarshal([]byte(row.Writer), &j) // a newer version may have written different types
	if newer := known(row.Name, j.V); newer != nil {
		return LeaseRecord{}, newer
	}
	what, given := "lease", j.Lease
	if j.With != "" && j.Lease == "" {
		what, given = "for", j.For
	}
	lease, unreadable := time.ParseDuration(given)
	switch _, ok := MemberOf(j.With); {
	case err != nil:
		err = fmt.Errorf("is not JSON such as {\"lease\":\"10s\"}: %w", err)
	case what == "for" && !ok:
		err = fmt.Errorf("has \"with\":%q, which is not the key of a member's lease row", j.With)
	case unreadable != nil || lease <= 0 || lease > MaxLease:
		err = fmt.Errorf("has %q:%q, but a positive duration of at most %v was expected", what, given, MaxLease)
	}
	if err != nil {
		return LeaseRecord{}, fmt.Errorf("lease row %q: lease record %q %w; the lock stays taken because its holder may still be acting: stop the holder, then delete the row",
			row.Name, secret.ReplaceAllString(row.Writer, `$1"…"`), err)
	}
	p := j.LeaseRecord
	p.Lease, p.Rank, p.Weight = lease, min(max(p.Rank, 0), MaxRank), min(max(p.Weight, 0), MaxWeight)
	keep, _ := time.ParseDuration(j.Keep) // the rest of the record is valid without it
	p.Keep = min(max(keep, 0), MaxKeep)
	if what == "lease" {
		p.With = ""
	}
	return p, nil
}

// secret matches the text that says how to notify the writer of a row. It must not be shown.
var secret = regexp.MustCompile(`("notify"\s*:\s*)"[^"]*"?`)

// ErrNewer means that a row was written by a newer version of this program, in a format that this version can't read. A
// lock with such a lease row counts as held.
var ErrNewer = errors.New("written by a newer version of spindle")

// format is the version of the JSON in rows. This program writes it into the field v, and can read this version and all
// earlier ones. Rows without the field have version 1. A change to the JSON needs a new version if older programs would
// misread it.
const format = 1

// known returns ErrNewer if v, the format of the row, is newer than this program can read.
func known(row string, v int) error {
	if v <= format {
		return nil
	}
	return fmt.Errorf("row %q was %w (it has format %d, and this program reads formats up to %d): update this program", row, ErrNewer, v, format)
}
