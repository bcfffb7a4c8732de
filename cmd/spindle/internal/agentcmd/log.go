package agentcmd

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"

	"github.com/spindle-lock/spindle/cmd/spindle/internal/terminal"
)

// journal writes what the agent and its locks log to standard error, in the command's form.
type journal struct{ attrs []slog.Attr }

func logger() *slog.Logger { return slog.New(journal{}) }

// Enabled implements slog.Handler.
func (journal) Enabled(_ context.Context, level slog.Level) bool { return level >= slog.LevelInfo }

// Handle implements slog.Handler.
func (j journal) Handle(_ context.Context, r slog.Record) error {
	attrs := slices.Clone(j.attrs)
	r.Attrs(func(a slog.Attr) bool { attrs = append(attrs, a); return true })
	text := r.Message
	if !terminal.Stderr.Format.Objects() {
		var b strings.Builder
		for _, a := range attrs {
			fmt.Fprintf(&b, " %s=%v", a.Key, a.Value)
		}
		text += ":" + b.String()
	}
	terminal.Stderr.Log(r.Level, text, attrs...)
	return nil
}

// WithAttrs implements slog.Handler.
func (j journal) WithAttrs(attrs []slog.Attr) slog.Handler {
	return journal{slices.Concat(j.attrs, attrs)}
}

// WithGroup implements slog.Handler. Nothing here uses groups.
func (j journal) WithGroup(string) slog.Handler { return j }
