package agent

import (
	"encoding/json"
	"net"
	"slices"
	"sync"
	"time"
)

// A line is one event of a hold, as the program reads it.
type line struct {
	Event  string   `json:"event"`
	Hold   string   `json:"hold,omitempty"`
	Now    *reading `json:"now,omitempty"`
	Names  []string `json:"names,omitempty"`
	Token  int64    `json:"token,omitempty"`
	Key    string   `json:"key,omitempty"`
	Until  *reading `json:"until,omitempty"`
	Left   int64    `json:"left_ms,omitempty"`
	Reason string   `json:"reason,omitempty"`
	Detail string   `json:"detail,omitempty"`

	Leader *leaderJSON      `json:"leader,omitempty"`
	Fence  []fenceJSON      `json:"fence,omitempty"`
	Record []map[string]any `json:"record,omitempty"`
}

// lines sends lines to a program, which may read slowly or not at all. Adding a line never blocks. If an older line
// with the same event has not been sent yet, the new line replaces it.
type lines struct {
	mu      sync.Mutex
	pending []line
	ended   bool          // no more lines follow
	conn    net.Conn      // where the lines are written; nil until send is called
	news    chan struct{} // receives a value after each change; buffered
}

func newLines() *lines { return &lines{news: make(chan struct{}, 1)} }

// keepAlive is the longest time between two lines, so that a program can set a time limit on reading.
const keepAlive = 5 * time.Second

// add adds a line. A program that has lost its lock is not told any more that it held it.
func (l *lines) add(add line) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ended {
		return
	}
	l.pending = append(slices.DeleteFunc(l.pending, func(p line) bool {
		return p.Event == add.Event || add.Event == "lost" && (p.Event == "held" || p.Event == "until")
	}), add)
	l.wake()
}

// end ends the response after the lines that have been added so far.
func (l *lines) end() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ended = true; l.conn != nil {
		l.limit()
	}
	l.wake()
}

// lastWords limits how long it may take to write the last line, so that a program that does not read can't keep its
// connection open.
const lastWords = 5 * time.Second

func (l *lines) limit() { _ = l.conn.SetWriteDeadline(time.Now().Add(lastWords)) }

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
	return next, l.ended
}

// head is the start of each response that consists of lines. It has no Content-Length, because the body lasts until the
// connection is closed. The agent writes these responses itself, because net/http would need a goroutine and buffers
// for each of them.
const head = "HTTP/1.1 200 OK\r\nContent-Type: application/x-ndjson\r\nCache-Control: no-store\r\nConnection: close\r\n\r\n"

// send writes the response until its last line is written or the program can't be reached. Each line is stamped just
// before it is sent, so that its times are up to date.
func (l *lines) send(conn net.Conn, stamp func(*line)) {
	defer func() { _ = conn.Close() }()
	l.mu.Lock()
	if l.conn = conn; l.ended {
		l.limit()
	}
	l.mu.Unlock()
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
			// A program that was not told in time that it holds the lock hears only that the lock is lost.
			stamp(&next[i])
			over = over || next[i].Event == "held" && next[i].Left == 0
			if over && slices.Contains([]string{"held", "until", "jeopardy", "stop"}, next[i].Event) {
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
