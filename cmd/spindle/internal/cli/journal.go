package cli

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"time"

	"github.com/spf13/pflag"
)

// A journal has a command's messages on the standard error: lines for people, or JSON objects.
type journal struct {
	out    io.Writer
	format format
	timed  bool // lines begin with the time: the command runs for long
}

var stderr = newJournal(os.Stderr)

func newJournal(out io.Writer) *journal { return &journal{out: out, format: format{text: "text"}} }

func (j *journal) flag(f *pflag.FlagSet) {
	f.Var(&j.format, "log-format", "the `format` of messages on the standard error: text or json")
}

const stamp = "2006-01-02T15:04:05.000Z"

func (j *journal) log(level slog.Level, text string, about ...slog.Attr) {
	if j.format.json {
		handler := slog.NewJSONHandler(escaping{Writer: j.out}, nil)
		slog.New(handler).LogAttrs(context.Background(), level, text, about...)
		return
	}
	line := "spindle: " + escapeLines(text) + "\n"
	if j.timed {
		line = time.Now().UTC().Format(stamp) + " " + line
	}
	_, _ = io.WriteString(j.out, line)
}

// complain tells people what went wrong.
func complain(format string, args ...any) {
	stderr.log(slog.LevelWarn, fmt.Sprintf(format, args...))
}
