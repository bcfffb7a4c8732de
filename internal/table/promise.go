package table

import (
	"encoding/json"
	"fmt"
	"time"
)

// MaxLease is the longest lease. It keeps every sum of leases and times far from overflow.
const MaxLease = 24 * time.Hour

// MaxValue is the longest value of a holder, in bytes.
const MaxValue = 64 << 10

// MaxID is the longest id of a holder, in bytes.
const MaxID = 1 << 10

// MaxWriter is the longest text in the column writer, in characters: JSON may write six for a byte of a
// value, as in \u0000.
const MaxWriter = 6*(MaxValue+MaxID) + 150

// MaxDeference is that of the lowest priority.
const MaxDeference = 9

// Promise is what a holder wrote into its lease row when its term began. It never changes.
type Promise struct {
	Lease time.Duration // the holder stops by itself when no heartbeat was acknowledged for this long
	ID    string        // the holder's; "": it is in the lock row
	Value string        // what the holder published
	Slots int           // the size of the semaphore that the lock is a slot of, or 0

	Obeys     bool // the holder looks for requests to hand the lock over
	Deference int  // how far its priority is below the highest, which is 0
}

type promiseJSON struct {
	Lease     string `json:"lease"`
	ID        string `json:"id,omitempty"`
	Value     string `json:"value,omitempty"`
	Slots     int    `json:"slots,omitempty"`
	Obeys     bool   `json:"obeys,omitempty"`
	Deference int    `json:"deference,omitempty"`
}

func (p Promise) encode() string {
	// Strings and numbers: this can't fail.
	b, _ := json.Marshal(promiseJSON{p.Lease.String(), p.ID, p.Value, p.Slots, p.Obeys, p.Deference})
	return string(b)
}

// Size is how many bytes the promise has in the table. JSON writes some characters as six.
func (p Promise) Size() int { return len(p.encode()) }

// decodePromise refuses what it can't read: a guess that is too short would make two holders.
func decodePromise(key, s string) (Promise, error) {
	p, err := parsePromise(s)
	if err != nil {
		return Promise{}, fmt.Errorf("lease row %q: %w: how long its holder may act is not known, so the lock stays taken: stop the holder, then delete the row", key, err)
	}
	return p, nil
}

func parsePromise(s string) (Promise, error) {
	var j promiseJSON
	if err := json.Unmarshal([]byte(s), &j); err != nil {
		return Promise{}, fmt.Errorf("promise %q is not JSON such as {\"lease\":\"10s\"}: %w", s, err)
	}
	lease, err := time.ParseDuration(j.Lease)
	if err != nil || lease <= 0 || lease > MaxLease {
		return Promise{}, fmt.Errorf("promise %q has lease %q where a duration of at most %v was expected", s, j.Lease, MaxLease)
	}
	return Promise{lease, j.ID, j.Value, j.Slots, j.Obeys, min(max(j.Deference, 0), MaxDeference)}, nil
}
