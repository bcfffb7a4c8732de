package table

import "slices"

// LockKind is what a lock is for, as far as its rows tell: an elector's should always be held, a mutex's may be free.
// It is for people and alerts: the protocol does not depend on it.
type LockKind string

// The kinds. Programs of earlier versions don't write theirs.
const (
	Elector   LockKind = "elector"
	Exec      LockKind = "exec"
	Guard     LockKind = "guard"
	Mutex     LockKind = "mutex"
	Semaphore LockKind = "semaphore"
	GroupPart LockKind = "group"
)

// Kind returns what the lock is for, or "" if its rows don't say.
func (l Listing) Kind() LockKind {
	switch p := l.LeaseRecord; {
	case l.IsPart():
		return GroupPart
	case p != nil && p.Kind != "":
		return p.Kind
	case p != nil && p.Slots > 0, l.changesHands() && len(queuesOf(l.Name)) > 1:
		return Semaphore
	case l.changesHands():
		return Mutex
	}
	return ""
}

// changesHands reports whether the lock is claimed by free rows, as only package lock does.
func (l Listing) changesHands() bool {
	return !l.Freed.IsZero() || l.LeaseRecord != nil && l.LeaseRecord.Nonce != ""
}

// IsShort reports whether locks of the kind are free whenever nobody has work for them.
func (k LockKind) IsShort() bool { return slices.Contains([]LockKind{Mutex, Semaphore}, k) }
