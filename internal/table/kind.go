package table

import "slices"

// LockKind is the purpose of a lock, as far as its rows show it. An elector's lock should always be held, for example,
// whereas a mutex is often free. The kind is for users and alerts, and the protocol does not depend on it.
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

// Kind returns the lock's kind, or "" if its rows do not show it.
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

// changesHands reports whether the lock is claimed through free rows. Only package lock does this.
func (l Listing) changesHands() bool {
	return !l.Freed.IsZero() || l.LeaseRecord != nil && l.LeaseRecord.Nonce != ""
}

// IsShort reports whether locks of this kind are free while there is no work for them.
func (k LockKind) IsShort() bool { return slices.Contains([]LockKind{Mutex, Semaphore}, k) }
