package lock

import (
	"context"
	"strconv"
	"sync"
	"sync/atomic"

	"github.com/spindle-lock/spindle/internal/elect"
	"github.com/spindle-lock/spindle/internal/table"
)

// queues holds the queues in which goroutines of this process compete for a lock, in order of arrival. Only the
// goroutine at the front of a queue competes with other processes.
var queues = struct {
	sync.Mutex
	byKey map[string]*queue
}{byKey: map[string]*queue{}}

type queue struct {
	key   string
	users int                  // the queue is deleted when the last one leaves
	wants int                  // how many of them wait to reach the front
	turn  chan struct{}        // full if a goroutine is at the front; Go serves blocked senders in order of arrival
	holds atomic.Pointer[held] // for a mutex: what the goroutine at the front holds
	slots slots

	// These fields are the process's place among the other processes. The goroutine at the front of the queue owns
	// them, and passes them on to the next one.
	nonce  string
	ticket table.Ticket // without a nonce if there is none
	forget func()       // deletes the ticket from the table; see line.forget
}

// join returns the queue with the given key. Each caller must leave the queue.
func join(key string) *queue {
	queues.Lock()
	defer queues.Unlock()
	q := queues.byKey[key]
	if q == nil {
		q = &queue{key: key, turn: make(chan struct{}, 1), slots: slots{taken: map[string]bool{}}}
		queues.byKey[key] = q
	}
	q.users++
	return q
}

// leave leaves the queue. When the last goroutine has left, the queue is deleted, and the process gives up its place
// among the other processes.
func (q *queue) leave() {
	queues.Lock()
	forget := func() {}
	if q.users--; q.users == 0 {
		delete(queues.byKey, q.key)
		forget = q.giveUp()
	}
	queues.Unlock()
	forget()
}

// handOn leaves the process's place to the next goroutine. If there is none, forget is called when the last goroutine
// leaves.
func (q *queue) handOn(t table.Ticket, forget func()) {
	queues.Lock()
	defer queues.Unlock()
	q.ticket, q.forget = t, forget
}

// unlessWanted gives up the process's place if no goroutine waits to reach the front of the queue. Goroutines that hold
// slots are still in the queue, but do not wait.
//
// The returned function deletes the ticket. The caller calls it once the next goroutine can reach the front.
func (q *queue) unlessWanted() (forget func()) {
	queues.Lock()
	defer queues.Unlock()
	if q.wants > 0 {
		return func() {}
	}
	return q.giveUp()
}

// giveUp gives up the process's place, and returns the function that deletes its ticket. That takes time, so queues must
// not be locked meanwhile.
func (q *queue) giveUp() (forget func()) {
	if q.ticket.Nonce == "" {
		return func() {}
	}
	q.ticket = table.Ticket{}
	return q.forget
}

// id returns the nonce of this process's tickets. It may be called only by the goroutine at the front of the queue.
func (q *queue) id(c elect.Clock) string {
	if q.nonce == "" {
		q.nonce = strconv.FormatInt(int64(c.Random(1<<62)), 36)
	}
	return q.nonce
}

// isWanted reports whether other goroutines of this process are waiting in the queue.
func (q *queue) isWanted() bool {
	queues.Lock()
	defer queues.Unlock()
	return q.users > 1
}

// inTurn returns what the goroutine at the front of the queue holds, or nil if it holds nothing, and how many
// goroutines wait behind it.
func inTurn(key string) (h *held, behind int) {
	queues.Lock()
	defer queues.Unlock()
	if q := queues.byKey[key]; q != nil {
		return q.holds.Load(), q.users - 1
	}
	return nil, 0
}

// wait waits until the caller is at the front of the queue. It returns false if ctx ends first.
func (q *queue) wait(ctx context.Context) bool {
	q.want(1)
	defer q.want(-1)
	select {
	case q.turn <- struct{}{}:
		return true
	case <-ctx.Done():
		return false
	}
}

func (q *queue) want(n int) {
	queues.Lock()
	defer queues.Unlock()
	q.wants += n
}

// next makes way for the next goroutine.
func (q *queue) next() { <-q.turn }

// waiting reports whether a goroutine is at the front of the queue.
func (q *queue) waiting() bool { return len(q.turn) > 0 }

// enter joins a queue and waits until the caller is at its front. It returns nil if ctx ends first.
func enter(ctx context.Context, key string) *queue {
	q := join(key)
	if !q.wait(ctx) {
		q.leave()
		return nil
	}
	return q
}

// tryEnter is like enter, but returns nil instead of waiting.
func tryEnter(key string) *queue {
	q := join(key)
	select {
	case q.turn <- struct{}{}:
		return q
	default:
		q.leave()
		return nil
	}
}

// done makes way for the next goroutine, and leaves the queue.
func (q *queue) done() {
	q.holds.Store(nil)
	q.next()
	q.leave()
}
