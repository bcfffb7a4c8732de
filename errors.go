package spindle

import (
	"errors"

	"github.com/spindle-lock/spindle/internal/elect"
	"github.com/spindle-lock/spindle/internal/fence"
	"github.com/spindle-lock/spindle/internal/loop"
	"github.com/spindle-lock/spindle/internal/table"
)

var (
	// ErrRunning is returned by Run if an earlier Run of the same Lock or group.Group has not ended, or if its leader
	// function, work or observer has not returned.
	ErrRunning = loop.ErrRunning

	// ErrNoLeader is returned by Leader and RequestHandover if no process holds the lock.
	ErrNoLeader = errors.New("no process holds the lock")

	// ErrNotLeader is returned by StepDown and Leading if this Lock does not hold the lock.
	ErrNotLeader = errors.New("this process does not hold the lock")

	// ErrHandoverUnsupported is returned by RequestHandover if the leader does not accept handover requests.
	ErrHandoverUnsupported = errors.New("the leader does not accept handover requests, because it runs without WithHandover")

	// ErrFenced is returned by Apply and ReadWriteTransaction, in this package and in packages lock and group, if the
	// token is not valid, for example because the lock was released or another candidate has claimed it. Nothing was
	// written, with one exception, which is described at Lock.Apply.
	ErrFenced = fence.ErrFenced

	// ErrSuperseded reports that a term ended because another candidate claimed the lock, an operator released it, or
	// the lock table or one of the lock's rows was deleted. Event.Err of the Lost event wraps it, and it is the cause of
	// the leader function's ctx.
	ErrSuperseded = table.ErrSuperseded

	// ErrStopped reports that a term ended because Run's ctx ended. Event.Err also wraps the cause of that ctx.
	ErrStopped = errors.New("stopped")

	// ErrSteppedDown reports that this Lock ended its term voluntarily: StepDown was called, a handover was requested,
	// or the leader function returned.
	ErrSteppedDown = errors.New("stepped down")

	// ErrExpired reports that a term ended because no heartbeat was acknowledged before the term's deadline, by the
	// local clock. In a group, it can also mean that no poll of the group was answered in time.
	ErrExpired = elect.ErrExpired

	// ErrStalled reports that the work made no progress for the time that WithStall sets. It is the cause of the work's
	// ctx, and the Event.Err of a Stalled event and of the Lost or PartitionRevoked event that follows.
	ErrStalled = elect.ErrStalled
)
