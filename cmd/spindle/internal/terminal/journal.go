package terminal

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/spf13/pflag"
)

// A Journal writes a command's messages to standard error, as lines for people or as JSON objects.
type Journal struct {
	out    io.Writer
	Format Format
	timed  atomic.Bool
}

// Time makes every later line begin with the time. JSON objects contain the time in any case. Long-running commands
// call Time. It is safe to do so while another goroutine calls Log.
func (j *Journal) Time() { j.timed.Store(true) }

// Stderr is the journal of this process.
var Stderr = NewJournal(os.Stderr)

// NewJournal returns a Journal that writes lines for people.
func NewJournal(out io.Writer) *Journal { return &Journal{out: out, Format: newFormat("text")} }

// Flag adds --log-format.
func (j *Journal) Flag(f *pflag.FlagSet) {
	f.Var(&j.Format, "log-format", "the `format` of messages on standard error: text or json")
}

// Stamp is the layout of times.
const Stamp = "2006-01-02T15:04:05.000Z"

// Log writes a message. In the JSON format, the object also contains the attributes.
func (j *Journal) Log(level slog.Level, text string, about ...slog.Attr) {
	j.logTo(j.out, level, text, about...)
}

func (j *Journal) logTo(out io.Writer, level slog.Level, text string, about ...slog.Attr) {
	if j.Format.Objects() {
		handler := slog.NewJSONHandler(escaping{Writer: out}, nil)
		slog.New(handler).LogAttrs(context.Background(), level, text, about...)
		return
	}
	line := "spindle: " + escapeLines(text) + "\n"
	if j.timed.Load() {
		line = time.Now().UTC().Format(Stamp) + " " + line
	}
	_, _ = io.WriteString(out, line)
}

// Complain logs a warning.
func Complain(format string, args ...any) {
	Stderr.Log(slog.LevelWarn, fmt.Sprintf(format, args...))
}

// An outlet buffers the lines of a journal, so that logging never blocks. A process that holds a lock, or that has to
// stop a service, must keep going even if nothing reads its messages. If the buffer is full, the outlet drops lines.
// When it can write again, it reports how many lines it has dropped.
type outlet struct {
	of    *Journal
	to    io.Writer
	lines chan any // []byte, or a chan struct{} that is closed when all lines before it are written

	mu      sync.Mutex // guards the rest
	dropped int
	closed  bool
}

// room is the number of lines that an outlet buffers.
const room = 1000

// Detach makes the journal write its lines in the background, so that logging never blocks. Call the returned function
// once no other goroutine logs messages. It waits up to a second for the buffered lines to be written. If they are
// written by then, later messages are written directly. Otherwise, later messages are dropped.
func (j *Journal) Detach() (attach func()) {
	o := &outlet{of: j, to: j.out, lines: make(chan any, room)}
	j.out = o
	go o.run()
	return func() {
		if j.out = io.Discard; o.flush(time.Second) {
			j.out = o.to
		}
		o.mu.Lock()
		defer o.mu.Unlock()
		o.closed = true
		close(o.lines)
	}
}

func (o *outlet) run() {
	for next := range o.lines {
		o.mu.Lock()
		n := o.dropped
		o.dropped = 0
		o.mu.Unlock()
		if n > 0 {
			o.of.logTo(o.to, slog.LevelWarn, "dropped "+Count(n, "message")+" that nothing has read")
		}
		switch next := next.(type) {
		case []byte:
			_, _ = o.to.Write(next)
		case chan struct{}:
			close(next)
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

// Flush waits until all lines are written, but for at most 100 milliseconds.
func (j *Journal) Flush() {
	if o, ok := j.out.(*outlet); ok {
		o.flush(100 * time.Millisecond)
	}
}

// flush reports whether all lines were written within the limit.
func (o *outlet) flush(limit time.Duration) bool {
	written, late := make(chan struct{}), time.After(limit)
	select {
	case o.lines <- written:
	case <-late:
		return false
	}
	select {
	case <-written:
		return true
	case <-late:
		return false
	}
}
