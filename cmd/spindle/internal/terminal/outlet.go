package terminal

import (
	"fmt"
	"io"
	"sync"
	"time"
)

// An outlet buffers lines for a reader that may have stopped reading. A process that holds a lock, or that has to stop
// a service, must not wait for the reader of its messages. If the buffer is full, the outlet drops lines, and it
// reports their number once there is room again.
type outlet struct {
	to    io.Writer
	ended chan struct{} // closed when all accepted lines are written

	mu      sync.Mutex // guards the rest
	lines   chan any   // []byte, or a chan struct{} that is closed when all lines before it are written
	dropped int
	closed  bool
}

// room is the number of lines that an outlet buffers.
const room = 1000

// Detach lets the process continue if the reader of its messages has stopped reading. The returned function waits up to
// a second for the remaining lines to be written. Call it only when nothing writes to the journal any more.
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
			_, _ = fmt.Fprintf(o.to, "spindle: %d messages were dropped because they were not read\n", n)
		}
	}
}

// Write implements io.Writer. It never blocks.
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

// Flush waits until all lines are written, but at most 100 milliseconds.
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

// close closes the outlet, and reports whether all lines were written within the limit.
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
