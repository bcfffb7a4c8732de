package agent

import (
	"context"
	"encoding/json"
	"net"
	"slices"
	"sync"
	"time"
)

// A line tells the program about one event of its hold. The events are:
//
//   - hello: the first line; with wait=0, it is sent only if the lock was acquired
//   - waiting: the lock is not held yet
//   - leader: in an election, another candidate leads, or no longer does
//   - held: the lock is held
//   - until: the program may act for longer
//   - jeopardy: a heartbeat failed; the program may still act until the time in the last "held" or "until" line
//   - stop: the program should complete its work and release the lock, which it still holds
//   - lost: the last line; the program has lost the lock, and must not act any more
//   - timeout: the last line; the lock was not acquired within the time in wait
//   - refused: the last line; the lock was not acquired
//   - done: the last line; the key is already done
type line struct {
	Event  string   `json:"event"`
	Hold   string   `json:"hold,omitempty"`    // in hello: the id of the hold, which is a secret
	Now    *reading `json:"now,omitempty"`     // in hello: the agent's clocks
	Names  []string `json:"names,omitempty"`   // in held: the locks; for a semaphore, the slot
	Token  int64    `json:"token,omitempty"`   // in held: the fencing token
	Key    string   `json:"key,omitempty"`     // in held, for once: the key of this run
	Until  *reading `json:"until,omitempty"`   // in held and until: the program may act while each clock shows an earlier time
	Left   int64    `json:"left_ms,omitempty"` // in held and until: how much time was left when the line was sent
	Reason string   `json:"reason,omitempty"`  // in stop, lost and refused: why
	Detail string   `json:"detail,omitempty"`  // the reason, for people

	Leader *leaderJSON      `json:"leader,omitempty"` // in leader: who leads; absent if nobody does
	Fence  []fenceJSON      `json:"fence,omitempty"`  // in held: for each lock, what makes a transaction fail if the lock is not held
	Record []map[string]any `json:"record,omitempty"` // in held, for once: the mutations that record the key as done
}

// lines is a queue of lines for a program, which may read slowly or not at all. Adding a line never waits for the
// program. If an older line with the same event has not been sent yet, the new line replaces it.
type lines struct {
	mu      sync.Mutex
	pending []line
	news    chan struct{}   // receives a value after each change; buffered
	over    context.Context // ends once the last line has been added
	end     func()
}

func newLines() *lines {
	over, end := context.WithCancel(context.Background())
	l := &lines{news: make(chan struct{}, 1), over: over}
	l.end = func() { end(); l.wake() }
	return l
}

// keepAlive is the longest time between two lines, so that a program can set a time limit on reading.
const keepAlive = 5 * time.Second

// toHolders lists the events that a program is told of only while it holds the lock.
var toHolders = []string{"held", "until", "jeopardy", "stop"}

// add adds a line, unless the last line has already been added. If the line says that the lock is lost, add first drops
// unsent lines that are only for a program that holds the lock.
func (l *lines) add(add line) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.over.Err() != nil {
		return
	}
	l.pending = append(slices.DeleteFunc(l.pending, func(p line) bool {
		return p.Event == add.Event || add.Event == "lost" && slices.Contains(toHolders, p.Event)
	}), add)
	l.wake()
}

// lastWords limits how long it may take to write the last line, so that a program that does not read can't keep its
// connection open.
const lastWords = 5 * time.Second

func (l *lines) wake() {
	select {
	case l.news <- struct{}{}:
	default:
	}
}

func (l *lines) take() (next []line, ended bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	next, l.pending = l.pending, nil
	return next, l.over.Err() != nil
}

// head is the start of each response that consists of lines. It has no Content-Length, because the body ends only when
// the connection is closed. The agent writes these responses itself, because net/http would keep buffers and an
// additional goroutine for each response.
const head = "HTTP/1.1 200 OK\r\nContent-Type: application/x-ndjson\r\nCache-Control: no-store\r\nConnection: close\r\n\r\n"

// send writes the response until its last line is written or a write fails. Each line is stamped just before it is
// sent, so that its times are up to date.
func (l *lines) send(conn net.Conn, stamp func(*line)) {
	defer func() { _ = conn.Close() }()
	defer context.AfterFunc(l.over, func() { _ = conn.SetWriteDeadline(time.Now().Add(lastWords)) })()
	text, over := []byte(head), false
	idle := time.NewTicker(keepAlive)
	defer idle.Stop()
	for {
		select {
		case <-l.news:
		case <-idle.C:
			if _, err := conn.Write([]byte("\n")); err != nil {
				return
			}
			continue
		}
		next, ended := l.take()
		for i := range next {
			// If the term ended before the held line could be sent, the program is told only that it has lost the lock.
			stamp(&next[i])
			over = over || next[i].Event == "held" && next[i].Left == 0
			if over && slices.Contains(toHolders, next[i].Event) {
				continue
			}
			b, _ := json.Marshal(next[i]) // never fails for strings and numbers
			text = append(append(text, b...), '\n')
		}
		if _, err := conn.Write(text); err != nil || ended {
			return
		}
		text = nil
		idle.Reset(keepAlive)
	}
}
