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

// A Journal writes a command's messages to standard error: lines for people, or JSON objects.
type Journal struct {
	out    io.Writer
	Format Format
	timed  atomic.Bool
}

// Time makes lines begin with the time from now on: the command runs for long. It may be called while Log runs.
func (j *Journal) Time() { j.timed.Store(true) }

// Stderr is the journal of this process.
var Stderr = NewJournal(os.Stderr)

// NewJournal returns one that writes lines for people.
func NewJournal(out io.Writer) *Journal { return &Journal{out: out, Format: Format{text: "text"}} }

// Flag adds --log-format.
func (j *Journal) Flag(f *pflag.FlagSet) {
	f.Var(&j.Format, "log-format", "the `format` of messages on the standard error: text or json")
}

// Stamp is how times are written.
const Stamp = "2006-01-02T15:04:05.000Z"

// Log writes a message, and in an object what it is about.
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

// Complain logs what went wrong.
func Complain(format string, args ...any) {
	Stderr.Log(slog.LevelWarn, fmt.Sprintf(format, args...))
}
