package terminal

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
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

// Time makes each later line begin with the time. It is for commands that run for a long time, and can be called while
// Log runs.
func (j *Journal) Time() { j.timed.Store(true) }

// Stderr is the journal of this process.
var Stderr = NewJournal(os.Stderr)

// NewJournal returns a Journal that writes lines for people.
func NewJournal(out io.Writer) *Journal { return &Journal{out: out, Format: Format{text: "text"}} }

// Flag adds --log-format.
func (j *Journal) Flag(f *pflag.FlagSet) {
	f.Var(&j.Format, "log-format", "the `format` of messages on standard error: text or json")
}

// Stamp is the layout of times.
const Stamp = "2006-01-02T15:04:05.000Z"

// Log writes a message. In the JSON format, the object also has the attributes.
func (j *Journal) Log(level slog.Level, text string, about ...slog.Attr) {
	if j.Format.json {
		handler := slog.NewJSONHandler(escaping{Writer: j.out}, nil)
		slog.New(handler).LogAttrs(context.Background(), level, text, about...)
		return
	}
	line := "spindle: " + escapeLines(text) + "\n"
	if j.timed.Load() {
		line = time.Now().UTC().Format(Stamp) + " " + line
	}
	_, _ = io.WriteString(j.out, line)
}

// Complain logs a warning.
func Complain(format string, args ...any) {
	Stderr.Log(slog.LevelWarn, fmt.Sprintf(format, args...))
}
