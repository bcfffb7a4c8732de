package run

import (
	"errors"
	"fmt"
	"log/slog"

	"cloud.google.com/go/spanner"

	"github.com/spindle-lock/spindle/cmd/spindle/internal/terminal"
	"github.com/spindle-lock/spindle/internal/elect"
	"github.com/spindle-lock/spindle/internal/table"
)

// complain logs a problem with the lock.
func (c *lockCommand) complain(format string, args ...any) {
	terminal.Stderr.Log(slog.LevelWarn, fmt.Sprintf(format, args...), c.about()...)
}

// say logs progress, unless --quiet is set.
func (c *lockCommand) say(format string, args ...any) {
	if !c.quiet {
		terminal.Stderr.Log(slog.LevelInfo, fmt.Sprintf(format, args...), c.about()...)
	}
}

// relieve logs the end of a problem that complain has logged, even with --quiet.
func (c *lockCommand) relieve(format string, args ...any) {
	terminal.Stderr.Log(slog.LevelInfo, fmt.Sprintf(format, args...), c.about()...)
}

// about returns the lock's attributes, under the keys that the library's log uses.
func (c *lockCommand) about() []slog.Attr {
	about := []slog.Attr{slog.String("lock", c.name), slog.String("id", c.id)}
	if c.token != 0 {
		about = append(about, slog.Int64("token", int64(c.token)))
	}
	if c.key != "" {
		about = append(about, slog.String("key", c.key))
	}
	return about
}

// A narrator logs what polls of a lock find. It logs each holder once, and each new kind of error once.
type narrator struct {
	*lockCommand
	seen    table.Token
	trouble string
}

func (n *narrator) report(step elect.Step) {
	kind := spanner.ErrCode(step.Err).String() // the code, because the texts differ in times and ids
	if errors.Is(step.Err, table.ErrNewer) {
		kind = "newer"
	}
	switch err := step.Err; {
	case err != nil && kind != n.trouble:
		n.trouble = kind
		n.complain("can't compete for %s, will try again: %v", n.name, n.Explain(err))
	case err == nil && n.trouble != "":
		n.trouble = ""
		n.relieve("competing for %s again", n.name)
	}
	for _, s := range step.Seen {
		if s.Confirmed() && s.FreeIn > 0 && s.Token != n.seen {
			n.seen = s.Token
			n.say("waiting for %s: held by %s, token %v", n.name, terminal.Show(s.Holder()), s.Token)
		}
	}
}
