package spindle

import (
	"errors"

	"github.com/spindle-lock/spindle/internal/elect"
	"github.com/spindle-lock/spindle/internal/table"
)

var (
	// ErrRunning is returned by Run while an earlier Run of the same Lock has not ended.
	ErrRunning = errors.New("spindle: already running: wait for done before calling Run again")

	// ErrNoLeader is returned by Leader when nobody holds the lock.
	ErrNoLeader = errors.New("nobody holds the lock")

	// ErrFenced is returned by Apply and ReadWriteTransaction when the token is not good any more: the
	// term was superseded or released, and nothing was written.
	ErrFenced = errors.New("fenced: the token was superseded or released")

	// ErrSuperseded is a reason why a term ended, in Event.Err of Lost and as the cause of a leader's
	// ctx: the lock was claimed by another, or somebody deleted its row.
	ErrSuperseded = table.ErrSuperseded

	// ErrStopped is a reason why a term ended: Run's ctx did. Event.Err wraps the cause of that too.
	ErrStopped = errors.New("stopped")

	// ErrExpired is a reason why a term ended: no heartbeat was acknowledged for a lease, by the local
	// clock.
	ErrExpired = elect.ErrExpired
)
