package spindle

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"time"
)

// elector is the loop of one Run: a candidate until it is elected, a holder until its term ends, and
// again. Its state belongs to its one goroutine. Others see the lock's holding, which is immutable,
// and events.
type elector struct {
	*Lock
	log    *slog.Logger
	events *mailbox // nil: no observer

	candidacy candidacy
	problems  problems

	stopping instant           // when ctx was first seen to have ended
	overdue  []<-chan struct{} // the caller's code that did not return in time
}

func newElector(l *Lock) *elector {
	e := &elector{Lock: l, log: l.config.log.With("lock", l.name, "id", l.config.id)}
	e.problems.log = e.log
	if l.config.observe != nil {
		e.events = newMailbox(l.config.observe)
	}
	return e
}

func (e *elector) run(ctx context.Context) error {
	var err error
	for ctx.Err() == nil && err == nil {
		if token, sent, ok := e.stand(ctx); ok {
			err = e.hold(ctx, token, sent)
		}
	}
	if e.events != nil {
		e.events.close()
		e.stopping = instant{} // it was not told before
		err = errors.Join(err, e.await(e.events.done, "the observer"))
	}
	return err
}

// linger waits, however long, for what was overdue: two Runs must not call the same code at once.
func (e *elector) linger() {
	for _, returned := range e.overdue {
		<-returned
	}
}

// report delivers Run's one value. A receiver that never comes must not keep the goroutine.
func (e *elector) report(err error, done chan<- error) {
	giveUp := e.clock.timer(e.config.lease)
	defer giveUp.Stop()
	select {
	case done <- err:
	case <-giveUp.C:
		e.log.Error("nobody received from the done channel for a lease: give it room for one value, make(chan error, 1)", "value", err)
	}
}

// await waits for the caller's code to return, for at most a lease from when it was told to stop.
func (e *elector) await(returned <-chan struct{}, what string) error {
	giveUp := e.clock.timer(e.patience())
	defer giveUp.Stop()
	select {
	case <-returned:
		return nil
	case <-giveUp.C:
	}
	select {
	case <-returned:
		return nil
	default:
	}
	e.overdue = append(e.overdue, returned)
	return e.wrap("stop", fmt.Errorf("%s has not returned within a lease (%v) of being told to stop", what, e.config.lease))
}

// patience is what is left of the lease that the caller's code has to return in.
func (e *elector) patience() time.Duration {
	now := e.clock.now()
	if e.stopping == (instant{}) {
		e.stopping = now
	}
	return max(e.config.lease-now.since(e.stopping), 0)
}

func (e *elector) emit(ev Event) {
	if e.events != nil {
		ev.At = time.Now()
		e.events.put(ev)
	}
}

// sleep returns early when ctx ends.
func (e *elector) sleep(ctx context.Context, d time.Duration) {
	t := e.clock.timer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-t.C:
	}
}

// backoff grows from a thirtieth of max to max, with jitter.
type backoff struct{ next, max time.Duration }

func (b *backoff) pause() time.Duration {
	b.next = min(max(2*b.next, b.max/30), b.max)
	return jitter(b.next)
}

func (b *backoff) reset() { b.next = 0 }

// jitter returns d less up to a tenth, so that candidates which started together do not stay so.
func jitter(d time.Duration) time.Duration { return d - rand.N(d/10+1) }
