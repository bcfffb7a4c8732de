package lock

import (
	"context"
	"strconv"
	"sync"
	"sync/atomic"

	"github.com/spindle-lock/spindle/internal/elect"
	"github.com/spindle-lock/spindle/internal/table"
)

// queues lets the goroutines of this process compete for a lock in the order in which they came.
var queues = struct {
	sync.Mutex
	byKey map[string]*queue
}{byKey: map[string]*queue{}}

type queue struct {
	key   string
	users int                  // the queue is forgotten when the last one leaves
	wants int                  // how many of them wait for their turn
	turn  chan struct{}        // has room for one; Go serves blocked senders in the order in which they came
	holds atomic.Pointer[held] // for a mutex: what is held in this turn
	slots slots

	// These fields are the process's place among the other processes. They belong to the goroutine that has the turn,
	// which passes them on to the next one.
	nonce  string
	ticket table.Ticket // without a nonce if there is none
	forget func()       // deletes the ticket from the table
}

// join returns the queue with that key. Each caller must leave it.
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

// leave leaves the queue. After the last goroutine has left, the queue is forgotten, and the process gives up its place
// among the processes.
func (q *queue) leave() {
	queues.Lock()
	defer queues.Unlock()
	if q.users--; q.users > 0 {
		return
	}
	delete(queues.byKey, q.key)
	q.giveUp()
}

// handOn leaves the process's place to the next goroutine. If there is none, forget is called when the last one leaves.
func (q *queue) handOn(t table.Ticket, forget func()) {
	queues.Lock()
	defer queues.Unlock()
	q.ticket, q.forget = t, forget
}

// unlessWanted gives up the process's place if no goroutine waits for the turn. The holders of slots remain in the
// queue.
func (q *queue) unlessWanted() {
	queues.Lock()
	defer queues.Unlock()
	if q.wants == 0 {
		q.giveUp()
	}
}

func (q *queue) giveUp() {
	if q.ticket.Nonce != "" {
		go q.forget()
	}
	q.ticket = table.Ticket{}
}

// id returns the nonce of this process's tickets. It is for the goroutine that has the turn.
func (q *queue) id(c elect.Clock) string {
	if q.nonce == "" {
		q.nonce = strconv.FormatInt(int64(c.Random(1<<62)), 36)
	}
	return q.nonce
}

// isWanted reports whether other goroutines of this process wait for their turn.
func (q *queue) isWanted() bool {
	queues.Lock()
	defer queues.Unlock()
	return q.users > 1
}

// inTurn returns what is held by the goroutine of this process that has the turn, or nil, and how many goroutines wait
// behind it.
func inTurn(key string) (h *held, behind int) {
	queues.Lock()
	defer queues.Unlock()
	if q := queues.byKey[key]; q != nil {
		return q.holds.Load(), q.users - 1
	}
	return nil, 0
}

// wait waits for the caller's turn. It reports false if ctx ended first.
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

// next passes the turn on.
func (q *queue) next() { <-q.turn }

// waiting reports whether a goroutine has the turn.
func (q *queue) waiting() bool { return len(q.turn) > 0 }

// enter joins a queue and waits for its turn. It returns nil if ctx ended first.
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

// done passes the turn on, and leaves the queue.
func (q *queue) done() {
	q.holds.Store(nil)
	q.next()
	q.leave()
}
