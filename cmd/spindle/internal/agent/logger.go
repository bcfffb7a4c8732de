package agent

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"

	"github.com/spindle-lock/spindle/cmd/spindle/internal/terminal"
)

// journal is the slog.Handler of the agent and its locks. It writes records to standard error, formatted like the
// command's other messages.
type journal struct {
	least slog.Level
	attrs []slog.Attr
}

// Enabled implements slog.Handler.
func (j journal) Enabled(_ context.Context, level slog.Level) bool { return level >= j.least }

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
	return journal{j.least, slices.Concat(j.attrs, attrs)}
}

// WithGroup implements slog.Handler. It ignores the group, because nothing here uses groups.
func (j journal) WithGroup(string) slog.Handler { return j }
