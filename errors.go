package spindle

import (
	"errors"

	"github.com/spindle-lock/spindle/internal/elect"
	"github.com/spindle-lock/spindle/internal/fence"
	"github.com/spindle-lock/spindle/internal/loop"
	"github.com/spindle-lock/spindle/internal/table"
)

var (
	// ErrRunning is returned by Run while an earlier Run of the same Lock has not ended, or its work has not returned.
	ErrRunning = loop.ErrRunning

	// ErrNoLeader is returned by Leader if nobody holds the lock.
	ErrNoLeader = errors.New("nobody holds the lock")

	// ErrNotLeader is returned by StepDown if this Lock does not hold the lock.
	ErrNotLeader = errors.New("this process does not hold the lock")

	// ErrHandoverUnsupported is returned by RequestHandover if the leader does not look for requests.
	ErrHandoverUnsupported = errors.New("the leader does not accept requests: it runs without WithHandover")

	// ErrFenced is returned by Apply and ReadWriteTransaction, here and in package lock, if the token's term was
	// superseded or released. Nothing was written, unless the commit was tried more than once: see Apply.
	ErrFenced = fence.ErrFenced

	// ErrSuperseded: the term ended because another claimed the lock, or somebody deleted its row. It is in Event.Err
	// of Lost, and the cause of the leader function's ctx.
	ErrSuperseded = table.ErrSuperseded

	// ErrStopped: the term ended because Run's ctx ended. Event.Err also wraps the ctx's cause.
	ErrStopped = errors.New("stopped")

	// ErrSteppedDown: the term ended because this Lock gave it up: by StepDown, by a request, or because its
	// leader function returned (WithStepDownOnReturn).
	ErrSteppedDown = errors.New("stepped down")

	// ErrExpired: the term ended because no heartbeat was acknowledged for a lease, by the local clock.
	ErrExpired = elect.ErrExpired
)
