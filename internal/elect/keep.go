package elect

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/spindle-lock/spindle/internal/table"
)

// TermEvent is an event in the life of a term.
type TermEvent struct {
	What TermEventKind
	Err  error         // for InJeopardy and Lost
	By   table.Request // for Requested

	// At is when the event happened, and Left is how much time remained until the deadline. For InJeopardy and Safe,
	// both fields are set. For Lost, only At is set.
	At   Instant
	Left time.Duration
}

// TermEventKind is the kind of a TermEvent.
type TermEventKind int

const (
	InJeopardy TermEventKind = iota // a heartbeat was not acknowledged, although the one before it was
	Safe                            // a heartbeat was acknowledged again
	Beat                            // a heartbeat was acknowledged or failed, and the term continues
	Lost                            // the term has ended
	Requested                       // another process has asked for the locks
	Announced                       // the followers have seen the announcement, or the wait for them has ended
)

// Keeper maintains a term while its owner does other work. It sends heartbeats, polls for handover requests, and
// announces that the term is about to end. The owner must call Start first. Only the owner's goroutine may then call
// WatchRequests, Announce and Stop.
type Keeper struct {
	*Term
	Interval time.Duration   // between heartbeats
	InPhase  bool            // all terms of this process with this interval send their heartbeats at the same times
	Mute     <-chan struct{} // once it is closed, no more heartbeats are sent, so the term expires; may be nil
	Notify   func(TermEvent) // called from other goroutines; must not block

	// Before, if not nil, is called before each heartbeat. The argument again says that an earlier attempt has not been
	// acknowledged. The context ends with the work's context, or at Stop.
	Before func(ctx context.Context, again bool)

	ctx     context.Context // for everything that the keeper runs
	quit    context.CancelFunc
	left    chan struct{} // closed when no further heartbeat is to be sent
	all     sync.WaitGroup
	unwatch func() bool
	retry   Backoff
}

// Start starts sending heartbeats.
func (k *Keeper) Start() {
	k.ctx, k.quit = context.WithCancel(k.Context())
	k.left = make(chan struct{})
	k.retry.Max = k.lease / 10
	k.unwatch = context.AfterFunc(k.over, func() { k.Notify(TermEvent{What: Lost, Err: context.Cause(k.over), At: k.Ended()}) })
	k.all.Go(k.renew)
}

// WatchRequests polls for handover requests until the holder accepts one, the work's context ends, or the owner calls
// Stop.
func (k *Keeper) WatchRequests() {
	k.all.Go(func() {
		if by := k.requested(k.ctx); by != "" {
			k.Notify(TermEvent{What: Requested, By: by})
		}
	})
}

// Announce starts telling the followers that the term is about to end, and returns immediately. The keeper reports
// Announced afterwards.
func (k *Keeper) Announce() {
	k.all.Go(func() {
		k.announce(k.ctx)
		k.Notify(TermEvent{What: Announced})
	})
}

// Stop stops the keeper's goroutines and waits for them. It cancels any heartbeat in progress. Such a heartbeat does no
// harm, even if it is applied later. If the term is still held, Stop returns nil, and Notify is not called when the
// term ends. Otherwise, Stop returns why the term ended.
func (k *Keeper) Stop() error {
	k.quit()
	close(k.left)
	k.all.Wait()
	if k.lasts() > 0 && k.unwatch() { // both, because the term may end in between
		return nil
	}
	k.End(k.standing.Load().expired()) // in case the deadline passed while the machine was suspended and the timer has not fired yet
	return context.Cause(k.over)
}

// attempt is one attempt at a heartbeat, and its answer.
type attempt struct {
	cancelable
	n    int     // the number of attempts between this one and the last acknowledged one
	sent Instant // just before it was sent
	err  error
}

var errUnanswered = fmt.Errorf("no answer yet, so another heartbeat is being sent: %w", context.DeadlineExceeded)

// renew sends heartbeats until the term ends or the owner stops the keeper. It also stops once Mute is closed, or one
// lease duration after the work stalled. If an attempt is not answered soon, renew sends another attempt. It still
// accepts an answer to an earlier attempt, because a server under load may answer late.
func (k *Keeper) renew() {
	ctx := within(context.WithoutCancel(k.ctx))
	defer ctx.cancel(errUnanswered)
	next := k.clock.Timer(k.untilBeat())
	defer next.Stop()
	answers := make(chan attempt)
	var sent []attempt // since the last one that was acknowledged
	for {
		select {
		case <-k.left:
			ctx.cancel(nil)
			return
		case <-k.over.Done():
			return
		case <-k.Mute:
			return
		case <-next.C:
			if s := k.standing.Load(); s.stalled != nil && k.clock.Now().Since(s.stalledAt) >= k.lease {
				return // the work hangs, so let the lease expire
			}
			a, err := k.send(ctx, sent, answers)
			if err != nil {
				k.End(err)
				return
			}
			sent = append(sent, a)
			next.Reset(k.patience())
		case a := <-answers:
			if a.n >= len(sent) || a.sent != sent[a.n].sent {
				continue // another attempt has been acknowledged
			}
			if err := k.learn(a); err != nil {
				k.End(err)
				return
			}
			switch {
			case a.err == nil:
				a.supersede(sent)
				sent = nil
				next.Reset(k.untilBeat())
			case a.n == len(sent)-1:
				sent[a.n].err = a.err
				next.Reset(min(k.retry.Pause(k.clock), max(k.lasts()/2, time.Millisecond)))
			default:
				continue // a later attempt may still be answered
			}
			k.Notify(TermEvent{What: Beat})
		}
	}
}

// supersede cancels the other attempts after one has been acknowledged. The earlier attempts count as failed.
func (a attempt) supersede(all []attempt) {
	for _, other := range all {
		if other.n < a.n {
			other.cancel(errUnanswered)
		}
		other.cancel(nil)
	}
}

// send sends another attempt. It returns an error only if the term has ended.
func (k *Keeper) send(ctx context.Context, before []attempt, answers chan<- attempt) (attempt, error) {
	n := len(before)
	if n > 0 && before[n-1].err == nil {
		if err := k.learn(attempt{err: errUnanswered}); err != nil {
			return attempt{}, err
		}
	}
	if k.Before != nil {
		k.Before(k.ctx, n > 0)
	}
	a := attempt{n: n, sent: k.clock.Now(), cancelable: within(table.Apart(ctx, n))}
	left := k.lasts()
	if left <= 0 {
		a.cancel(nil)
		return a, k.standing.Load().expired()
	}
	k.all.Go(func() {
		a := a
		limited, cancel := context.WithTimeout(a, min(left, max(min(left*2/3, k.lease/2), k.lease/50), longestAttempt))
		a.err = k.table.Heartbeat(limited, k.token, k.names...)
		cancel()
		select {
		case answers <- a:
		case <-ctx.Done():
		}
		a.cancel(nil)
	})
	return a, nil
}

// patience returns how long to wait for the answer to an attempt before the next attempt is sent. With the default
// heartbeat interval, at least a third of the lease is left when the second attempt is sent.
func (k *Keeper) patience() time.Duration {
	return max(min(k.lasts()*3/8, k.lease/4), k.lease/50)
}

// learn reacts to the answer to an attempt. It returns an error only if the term has ended.
func (k *Keeper) learn(a attempt) error {
	if errors.Is(a.err, table.ErrSuperseded) {
		k.refused.CompareAndSwap(nil, &a.sent)
		return a.err
	}
	if a.err != nil {
		was, goesOn := k.endanger(a.err)
		switch {
		case !goesOn:
			return k.standing.Load().expired()
		case !was:
			k.notify(TermEvent{What: InJeopardy, Err: fmt.Errorf("heartbeat: %w", a.err)})
		}
		return nil
	}
	was, extended := k.extend(a.sent)
	if !extended {
		return k.standing.Load().expired()
	}
	if was {
		k.retry.Reset()
		k.notify(TermEvent{What: Safe})
	}
	return nil
}

// Ended returns the time at which the term ended, without reading the clock. If a heartbeat found that the token was no
// longer valid, this is the time just before that heartbeat was sent. If a fence found the lease row missing, it is the
// instant that was passed to Supersede. Otherwise, it is the deadline.
func (k *Keeper) Ended() Instant {
	if sent := k.refused.Load(); sent != nil {
		return *sent
	}
	at, limit := k.standing.Load().acknowledged, int64(Limit(k.lease))
	return Instant{at.Wall + limit, at.Mono + limit}
}

// notify reports an event that has just happened.
func (k *Keeper) notify(e TermEvent) {
	e.At = k.clock.Now()
	e.Left = k.Term.left(k.standing.Load(), e.At)
	k.Notify(e)
}

// untilBeat returns the time until the next heartbeat. If InPhase is set, heartbeats are due when the monotonic clock
// reaches a multiple of the interval. Otherwise, the next heartbeat is due one interval after the last acknowledged
// heartbeat was sent, plus or minus a random time of up to 5% of the interval. The random time keeps terms that began
// together from always sending their heartbeats together.
func (k *Keeper) untilBeat() time.Duration {
	now := k.clock.Now()
	since := now.Since(k.standing.Load().acknowledged)
	next := k.Interval + k.clock.Random(k.Interval/10+1) - k.Interval/20 - since
	if k.InPhase {
		next = -time.Duration(now.Mono) % k.Interval
		if next <= 0 {
			next += k.Interval
		}
	}
	return max(min(next, k.lease-k.lease/10-since), 0)
}

// Event is an event in the life of a lock. The public package documents the kinds.
type Event struct {
	Kind      int
	At        time.Time // by the local clock
	Token     table.Token
	Partition string // in a group; "": the event is about the lock
	Err       error
	Deadline  time.Time         // the term's, by the local clock
	Leader    table.Observation // the other holder
}
