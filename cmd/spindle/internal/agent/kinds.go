package agent

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/spindle-lock/spindle"
	"github.com/spindle-lock/spindle/internal/fence"
	"github.com/spindle-lock/spindle/lock"
)

// holding is a lock while it is held.
type holding interface {
	Token() spindle.Token
	Left() time.Duration
}

// A locker acquires a lock, calls work while it holds the lock, and releases the lock after work has returned. The
// result of work says whether to record the key as done. The error says why the lock was not acquired, or why its
// release failed. ctx limits only the wait for the lock.
type locker func(ctx context.Context, work func(holding) (done bool)) error

var (
	errBusy = errors.New("the lock is not free")
	errDone = errors.New("the key is already done")

	errUndecided = errors.New("whether the lock is free could not be found out in time: ask again later")

	errNotDone  = errors.New("the program did not report the key as done")
	errReturned = errors.New("the work has returned")
)

func newLocker(h *hold) (locker, error) {
	r, tableName, options := h.asked, h.agent.TableName, h.options()
	switch r.kind {
	case semaphores:
		s := lock.NewSemaphore(nil, tableName, r.names[0], r.slots, options)
		return semaphore(r, s), s.Err()
	case onces:
		o := lock.NewOnce(nil, tableName, r.names[0], options)
		return once(r, o), o.Err()
	case elections:
		elector := func(more ...spindle.Option) *spindle.Lock {
			return spindle.New(nil, tableName, r.names[0], append(append(r.elector(), options), more...)...)
		}
		return election(h, elector), elector().Err()
	}
	if len(r.names) == 1 {
		m := lock.New(nil, tableName, r.names[0], options)
		return mutex(r, m), m.Err()
	}
	s := lock.All(nil, tableName, r.names, options)
	return mutex(r, s), s.Err()
}

func mutex(r *request, of interface {
	holding
	Lock(context.Context) error
	TryLock(context.Context) (bool, error)
	Unlock(context.Context) error
}) locker {
	return func(ctx context.Context, work func(holding) bool) error {
		err := r.take(func() error { return of.Lock(ctx) }, func() (bool, error) { return of.TryLock(ctx) })
		if err != nil {
			return err
		}
		work(of)
		return r.giveBack(of.Unlock)
	}
}

func semaphore(r *request, of *lock.Semaphore) locker {
	return func(ctx context.Context, work func(holding) bool) error {
		var p *lock.Permit
		err := r.take(
			func() (err error) { p, err = of.Acquire(ctx); return err },
			func() (ok bool, err error) { p, ok, err = of.TryAcquire(ctx); return ok, err })
		if err != nil {
			return err
		}
		work(p)
		return r.giveBack(p.Release)
	}
}

// take acquires a lock, or tries to, as the request says.
func (r *request) take(acquire func() error, try func() (bool, error)) error {
	if !r.try {
		return acquire()
	}
	ok, err := try()
	if err == nil && !ok {
		return errBusy
	}
	return err
}

// giveBack releases a lock. It gives up after one lease, because the lock has expired by then.
func (r *request) giveBack(release func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(context.Background(), r.lease)
	defer cancel()
	return release(ctx)
}

func once(r *request, of *lock.Once) locker {
	do := of.Do
	if r.try {
		do = of.TryDo
	}
	return func(ctx context.Context, work func(holding) bool) error {
		run, cancel := context.WithCancel(context.WithoutCancel(ctx))
		defer cancel()
		stop := context.AfterFunc(ctx, cancel)
		ran, err := do(run, r.due, func(_ context.Context, run lock.Run) error {
			stop()
			if !work(run) {
				return errNotDone
			}
			return nil
		})
		switch {
		case err == nil && !ran:
			return errDone
		case errors.Is(err, lock.ErrBusy):
			return fmt.Errorf("%w: %w", errBusy, err)
		case err == errNotDone: // otherwise, the release has failed, too
			return nil
		}
		return err
	}
}

// election returns a locker that competes in an election and leads for one term.
func election(h *hold, elector func(...spindle.Option) *spindle.Lock) locker {
	return func(ctx context.Context, work func(holding) bool) error {
		run, end := context.WithCancelCause(context.WithoutCancel(ctx))
		defer end(nil)
		var decided atomic.Bool        // the elector leads, or has given up
		var lost atomic.Pointer[error] // why the term was lost; Run reports no error for that
		giveUp := func(why error) {
			if decided.CompareAndSwap(false, true) {
				end(why)
			}
		}
		lead := func(ctx context.Context, term spindle.Term) {
			if !decided.CompareAndSwap(false, true) {
				return
			}
			defer context.AfterFunc(ctx, func() {
				if errors.Is(context.Cause(ctx), spindle.ErrSteppedDown) {
					h.ask()
				}
			})()
			work(term)
			end(errReturned) // so that it does not compete again
		}
		observe := func(e spindle.Event) {
			switch {
			case e.Kind == spindle.Lost && (errors.Is(e.Err, spindle.ErrExpired) || errors.Is(e.Err, spindle.ErrSuperseded)):
				lost.Store(&e.Err)
			case e.Kind == spindle.LeaderGone:
				h.lines.add(line{Event: "leader"})
			case e.Kind == spindle.LeaderSeen:
				h.lines.add(line{Event: "leader", Leader: leaderOf(e.Leader)})
				if h.asked.try {
					giveUp(errBusy)
				}
			}
		}
		if h.asked.try { // locks of other kinds return the first error, but an elector tries again
			defer time.AfterFunc(h.asked.lease+time.Second, func() { giveUp(errUndecided) }).Stop()
		}
		l := elector(spindle.WithLeader(lead), spindle.WithObserver(observe))
		defer context.AfterFunc(ctx, func() { giveUp(errors.Join(context.Cause(ctx), l.Health())) })()
		ended := make(chan error, 1)
		if err := l.Run(run, ended); err != nil {
			return err
		}
		err := <-ended
		if why := context.Cause(run); why != errReturned {
			err = errors.Join(why, err)
		}
		if reason := lost.Load(); err == nil && reason != nil {
			err = *reason
		}
		return err
	}
}

// namesOf returns the names of the locks that were acquired. For a semaphore, it returns the name of the slot.
func namesOf(r *request, l holding) []string {
	if p, ok := l.(*lock.Permit); ok {
		return p.FenceIn(context.Background()).(fence.Fence).Names
	}
	return r.names
}
