package terminal

import (
	"fmt"
	"io"
	"sync"
	"time"
)

// An outlet takes lines for a reader that may have stopped reading: a process that holds a lock, or must end a service, does
// not wait for the reader of its messages. The outlet counts lines that find no room, and writes the count when there is room
// again.
type outlet struct {
	to    io.Writer
	ended chan struct{} // all that was taken is written

	mu      sync.Mutex // guards the rest
	lines   chan any   // []byte, or a chan struct{} that is closed when all before it is written
	dropped int
	closed  bool
}

// room is how many lines an outlet keeps.
const room = 1000

// Detach lets the journal continue when its reader has stopped reading. The returned function spends a moment on writing
// what is left. Call it when nothing else writes any more.
func (j *Journal) Detach() (attach func()) {
	o := &outlet{to: j.out, ended: make(chan struct{}), lines: make(chan any, room)}
	j.out = o
	go o.run()
	return func() {
		if o.close(time.Second) {
			j.out = o.to
		}
	}
}

func (o *outlet) run() {
	defer close(o.ended)
	for next := range o.lines {
		switch next := next.(type) {
		case []byte:
			_, _ = o.to.Write(next)
		case chan struct{}:
			close(next)
		}
		o.mu.Lock()
		n := o.dropped
		o.dropped = 0
		o.mu.Unlock()
		if n > 0 {
			_, _ = fmt.Fprintf(o.to, "spindle: %d messages were dropped, as nobody read them\n", n)
		}
	}
}

// Write implements io.Writer. It does not wait.
func (o *outlet) Write(line []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.closed {
		return len(line), nil
	}
	select {
	case o.lines <- append([]byte(nil), line...):
	default:
		o.dropped++
	}
	return len(line), nil
}

// Flush waits until all is written, but only for a moment.
func (j *Journal) Flush() {
	if o, ok := j.out.(*outlet); ok {
		o.flush(100 * time.Millisecond)
	}
}

func (o *outlet) flush(limit time.Duration) {
	written := make(chan struct{})
	o.mu.Lock()
	select {
	case o.lines <- written:
	default:
	}
	o.mu.Unlock()
	select {
	case <-written:
	case <-time.After(limit):
	}
}

// close ends the outlet, and reports whether all was written in that time.
func (o *outlet) close(limit time.Duration) bool {
	o.mu.Lock()
	o.closed = true
	close(o.lines)
	o.mu.Unlock()
	select {
	case <-o.ended:
		return true
	case <-time.After(limit):
		return false
	}
}
