package lock

import (
	"context"
	"sync"
)

// queues lets one goroutine of this process at a time stand for a lock, in the order in which they came.
var queues = struct {
	sync.Mutex
	byKey map[string]*queue
}{byKey: map[string]*queue{}}

type queue struct {
	key   string
	users int           // how many hold or wait for the turn; the queue is forgotten with the last
	turn  chan struct{} // has room for one: Go serves blocked senders in the order in which they came
}

// join returns the queue of that key, to be left once.
func join(key string) *queue {
	queues.Lock()
	defer queues.Unlock()
	q := queues.byKey[key]
	if q == nil {
		q = &queue{key: key, turn: make(chan struct{}, 1)}
		queues.byKey[key] = q
	}
	q.users++
	return q
}

func (q *queue) leave() {
	queues.Lock()
	defer queues.Unlock()
	if q.users--; q.users == 0 {
		delete(queues.byKey, q.key)
	}
}

// enter waits for its turn, and reports false where ctx ended first.
func enter(ctx context.Context, key string) (*queue, bool) {
	q := join(key)
	select {
	case q.turn <- struct{}{}:
		return q, true
	case <-ctx.Done():
		q.leave()
		return nil, false
	}
}

// tryEnter is enter without the waiting.
func tryEnter(key string) (*queue, bool) {
	q := join(key)
	select {
	case q.turn <- struct{}{}:
		return q, true
	default:
		q.leave()
		return nil, false
	}
}

// done gives the turn to the next.
func (q *queue) done() {
	<-q.turn
	q.leave()
}
