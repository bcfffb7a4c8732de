package agent

import (
	"encoding/json"
	"net/http"
	"sync"
	"time"
)

// A line is one event of a hold, as its program reads it.
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

// lines sends lines to a program that may read slowly, or not at all. Whoever adds a line never waits: a newer line of a
// kind replaces an older one that was not sent.
type lines struct {
	mu      sync.Mutex
	pending []line
	ended   bool          // no more lines follow
	onEnd   func()        // called then
	news    chan struct{} // has room for one
}

func newLines() *lines { return &lines{news: make(chan struct{}, 1)} }

// keepAlive is how often the program hears something: one that only reads needs a time limit on reading.
const keepAlive = 5 * time.Second

// add adds a line.
func (l *lines) add(add line) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ended {
		return
	}
	for i, p := range l.pending {
		if p.Event == add.Event {
			l.pending = append(l.pending[:i], l.pending[i+1:]...)
			break
		}
	}
	l.pending = append(l.pending, add)
	l.wake()
}

// end says that no more lines follow.
func (l *lines) end() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ended = true
	if l.onEnd != nil {
		l.onEnd()
	}
	l.wake()
}

// limit has f called once no more lines follow: a program that does not read must not keep the connection.
func (l *lines) limit(f func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.onEnd = f; l.ended {
		f()
	}
}

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

// send writes the lines until the last one is written, or the program can't be reached. Each line is stamped when it is
// sent: what is promised must not be older than the line.
func (l *lines) send(w http.ResponseWriter, stamp func(*line)) {
	out := http.NewResponseController(w)
	idle := time.NewTicker(keepAlive)
	defer idle.Stop()
	for {
		select {
		case <-l.news:
		case <-idle.C:
			if _, err := w.Write([]byte("\n")); err != nil || out.Flush() != nil {
				return
			}
			continue
		}
		next, ended := l.take()
		for i := range next {
			stamp(&next[i])
			b, _ := json.Marshal(next[i]) // strings and numbers
			if _, err := w.Write(append(b, '\n')); err != nil {
				return
			}
		}
		if out.Flush() != nil || ended {
			return
		}
		idle.Reset(keepAlive)
	}
}
