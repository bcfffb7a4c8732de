package table

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

type Role int

const (
	OfLock Role = iota
	OfLease
	OfDone
	OfBreak
	OfPlan
	OfTicket
)

// RoleOf returns the role of the row with this key, and the lock to which the row belongs. Plans and tickets belong to
// no lock.
func RoleOf(key string) (role Role, lock string) {
	if IsTicket(key) {
		return OfTicket, ""
	}
	if strings.HasSuffix(key, planSuffix) {
		return OfPlan, ""
	}
	if lock, ok := strings.CutSuffix(key, doneSuffix); ok {
		return OfDone, lock
	}
	if lock, ok := strings.CutSuffix(key, brokenSuffix); ok {
		return OfBreak, lock
	}
	if i := strings.LastIndexByte(key, '_'); i > 0 && len(key)-i-1 == tokenDigits && strings.Trim(key[i+1:], "0123456789") == "" {
		return OfLease, key[:i]
	}
	return OfLock, key
}

// Rows are rows of one snapshot.
type Rows struct {
	At     time.Time
	All    []Row
	byName map[string]Row
	leases map[string][]Row // by lock
}

func RowsAt(at time.Time, rows []Row) Rows {
	r := Rows{at, rows, make(map[string]Row, len(rows)), map[string][]Row{}}
	for _, row := range rows {
		r.byName[row.Name] = row
		if role, lock := RoleOf(row.Name); role == OfLease {
			r.leases[lock] = append(r.leases[lock], row)
		}
	}
	return r
}

func (r Rows) Row(key string) Row { return r.byName[key] }

func (r Rows) Done(lock string) (Done, error) {
	if row, ok := r.byName[DoneRow(lock)]; ok {
		return decodeDone(row)
	}
	return Done{}, nil
}

func (r Rows) Leases(lock string) []Row { return r.leases[lock] }

// observations decodes the rows of the named locks, unless err is set.
func (r Rows) observations(names []string, err error) ([]Observation, error) {
	observed := make([]Observation, len(names))
	for i, name := range names {
		if err == nil {
			observed[i], err = r.Lock(name)
		}
	}
	if err != nil {
		return nil, err
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
	o := Observation{Name: name, At: r.At}
	if row, exists := r.byName[name]; exists {
		o.Exists, o.Heartbeat, o.Token, o.Writer = true, row.Heartbeat, TokenAt(row.Token), row.Writer
	}
	if o.Exists && o.Heartbeat.IsZero() {
		o.Freed = freedSince(r.byName[LeaseKey(name, o.Token)])
	}
	if o.Exists && !o.Confirmed() {
		return o, nil
	}
	if leaseRow, ok := r.byName[LeaseKey(name, o.Token)]; ok && o.Exists {
		p, err := decodeLeaseRecord(leaseRow)
		o.LeaseRecord = &p
		if p.Nonce != "" {
			o.Began = leaseRow.Heartbeat
		}
		return o, err
	}
	o.OrphanLeases = map[Token]LeaseRecord{}
	for _, row := range r.leases[name] {
		p, err := decodeLeaseRecord(row)
		if err != nil {
			o.OrphanLeases, o.Orphans = nil, nil
			return o, err
		}
		if !p.Free {
			o.OrphanLeases[tokenOf(row.Name)] = p
		}
		o.Orphans = append(o.Orphans, tokenOf(row.Name))
	}
	return o, nil
}
