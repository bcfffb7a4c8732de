package table

import (
	"strings"
	"time"
)

// Role is the purpose of a row.
type Role int

// The roles.
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

// Rows are rows of one snapshot. Package operator and the steps decode them by the same methods.
type Rows struct {
	At     time.Time
	byName map[string]Row
	leases map[string][]Row // by lock
}

// RowsAt returns the rows of the snapshot at a time.
func RowsAt(at time.Time, rows []Row) Rows {
	r := Rows{at, make(map[string]Row, len(rows)), map[string][]Row{}}
	for _, row := range rows {
		r.byName[row.Name] = row
		if role, lock := RoleOf(row.Name); role == OfLease {
			r.leases[lock] = append(r.leases[lock], row)
		}
	}
	return r
}

// Row returns the row with this key, or an empty Row.
func (r Rows) Row(key string) Row { return r.byName[key] }

// Done returns the key that was done last under the lock, or the zero Done.
func (r Rows) Done(lock string) (Done, error) {
	if row, ok := r.byName[DoneRow(lock)]; ok {
		return decodeDone(row)
	}
	return Done{}, nil
}

// Leases returns the lock's lease rows and free rows.
func (r Rows) Leases(lock string) []Row { return r.leases[lock] }
