package lock

import (
	"context"
	"sync"
	"sync/atomic"

	"github.com/spindle-lock/spindle/internal/elect"
	"github.com/spindle-lock/spindle/internal/wait"
)

// queues holds the queues in which goroutines of this process compete for a lock, in order of arrival. For a mutex or a
// set, only the goroutine at the front of the queue competes with other processes. For a semaphore, a goroutine can
// also claim a free slot without queueing.
var queues = struct {
	sync.Mutex
	byKey map[string]*queue
}{byKey: map[string]*queue{}}

type queue struct {
	key   string
	users int                  // how many goroutines use the queue; it is deleted when the last one leaves
	wants int                  // how many of them are waiting to reach the front
	turn  chan struct{}        // full if a goroutine is at the front; Go serves blocked senders in order of arrival
	holds atomic.Pointer[held] // for a mutex: what the goroutine at the front holds
	slots map[*waiter]string   // the slot of a semaphore that each goroutine holds or is about to claim
	nonce string               // identifies the process in its tickets

	// The goroutines that reach the front for a mutex or a set share patience. If the requests of one goroutine have
	// succeeded, the goroutines behind it do not give up at their first refusal.
	patience *elect.Patience

	works atomic.Bool // for a semaphore: a goroutine has claimed a slot

	// ticket is the process's ticket in the table while one goroutine hands it on to the next. Otherwise, it is empty.
	ticket wait.OwnTicket
}

// join returns the queue with the given key. Each caller must call leave later.
func join(key string) *queue {
	queues.Lock()
	defer queues.Unlock()
	q := queues.byKey[key]
	if q == nil {
		q = &queue{key: key, turn: make(chan struct{}, 1), slots: map[*waiter]string{}}
		queues.byKey[key] = q
	}
	q.users++
	return q
}

// leave makes w leave the queue, and gives up its slot, if any.
func (q *queue) leave(w *waiter) {
	queues.Lock()
	defer queues.Unlock()
	delete(q.slots, w)
	if q.users--; q.users == 0 {
		delete(queues.byKey, q.key)
	}
}

// enter waits until the caller is at the front of the queue, and returns the process's ticket. It reports false if ctx
// ends first, or if try is set and the caller would have to wait. If it reports false, it returns the ticket only if no
// other goroutine is left to take the ticket over.
func (q *queue) enter(ctx context.Context, try bool) (own wait.OwnTicket, front bool) {
	waits := 0
	select {
	case q.turn <- struct{}{}:
		front = true
	default:
		if try {
			return own, false
		}
		waits = 1
		queues.Lock()
		q.wants++
		queues.Unlock()
		select {
		case q.turn <- struct{}{}:
			front = true
		case <-ctx.Done():
		}
	}
	queues.Lock()
	defer queues.Unlock()
	if q.wants -= waits; front || q.wants == 0 {
		own, q.ticket = q.ticket, wait.OwnTicket{}
	}
	return own, front
}

// share returns the patience of the goroutines at the front of the queue. The first of them provides it. Only the
// goroutine at the front may call share and use the result.
func (q *queue) share(own *elect.Patience) *elect.Patience {
	if q.patience == nil {
		q.patience = own
	}
	q.patience.Lease = own.Lease
	return q.patience
}

// next gives up the front of the queue, and leaves the ticket to the goroutine that follows. If no goroutine is
// waiting, next reports false, and the caller keeps the ticket. Goroutines that hold slots are still in the queue, but
// do not wait.
func (q *queue) next(own wait.OwnTicket) (taken bool) {
	queues.Lock()
	if taken = q.wants > 0; taken {
		q.ticket = own
	}
	queues.Unlock()
	q.holds.Store(nil)
	<-q.turn
	return taken
}

// behind returns how many goroutines of this process are waiting to reach the front of the queue.
func (q *queue) behind() int {
	queues.Lock()
	defer queues.Unlock()
	return q.wants
}

// isTaken reports whether a goroutine is at the front of the queue.
func (q *queue) isTaken() bool { return len(q.turn) > 0 }

// id returns the nonce of this process's tickets. Only the goroutine at the front of the queue may call it.
func (q *queue) id(c elect.Clock) string {
	if q.nonce == "" {
		q.nonce = wait.Nonce(c)
	}
	return q.nonce
}
