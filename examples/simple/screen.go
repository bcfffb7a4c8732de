package main

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"time"

	"github.com/spindle-lock/spindle"
	"github.com/spindle-lock/spindle/internal/demokit"
)

// screen shows a candidate's events on a timeline. It is also the handler of the lock's logger, because some problems
// are only logged.
type screen struct {
	*demokit.Timeline
	leads bool // whether it leads, or led until it was stopped
}

func (s *screen) welcome(c candidate) {
	s.Print(demokit.Bold, "A candidate for lock %q in table %s", c.name, c.table)
	s.Print(demokit.Plain, "Database: %s", c.database)
	s.Print(demokit.Plain, "Lease:    %v; if the leader is killed, the lock becomes free after this time", c.lease)
	s.Print(demokit.Plain, "To add candidates, run this command in other terminals. To stop, press Ctrl+C.\n")
	s.Say("", demokit.Plain, "connecting")
}

func (s *screen) event(e spindle.Event) {
	switch e.Kind {
	case spindle.Elected:
		s.leads = true
		s.Say("", demokit.Good, "ELECTED      token %v", e.Token)
	case spindle.LeaderSeen:
		s.Say("", demokit.Plain, "leader seen  %s, token %v, lease %v", e.Leader.ID, e.Token, e.Leader.Lease)
	case spindle.Jeopardy:
		s.Say("", demokit.Bad, "jeopardy     will lose the lock in %v unless a heartbeat succeeds; the last one failed: %v",
			time.Until(e.Deadline).Round(10*time.Millisecond), e.Err)
	case spindle.Safe:
		s.Say("", demokit.Good, "safe         heartbeats succeed again")
	case spindle.Lost:
		if errors.Is(e.Err, spindle.ErrSuperseded) || errors.Is(e.Err, spindle.ErrExpired) {
			s.leads = false
			s.Say("", demokit.Bad, "LOST         %v; competing again", e.Err)
		} else {
			s.Say("", demokit.Plain, "stopping     no longer the leader")
		}
	}
}

func (s *screen) wrote(token spindle.Token, fenced bool) {
	if fenced {
		s.Say("", demokit.Bad, "FENCED       a late write under token %v was rejected", token)
	}
}

// goodbye prints the last line after a Run that returned no error.
func (s *screen) goodbye() {
	if s.leads {
		s.Say("", demokit.Good, "released     the next candidate can claim the lock immediately")
	} else {
		s.Say("", demokit.Plain, "stopped      this candidate was not the leader")
	}
}

// Enabled implements slog.Handler.
func (s *screen) Enabled(_ context.Context, level slog.Level) bool { return level >= slog.LevelWarn }

// Handle implements slog.Handler.
func (s *screen) Handle(_ context.Context, r slog.Record) error {
	if strings.HasPrefix(r.Message, "jeopardy") {
		return nil // event shows it
	}
	text := r.Message
	r.Attrs(func(a slog.Attr) bool { text += ": " + a.Value.String(); return true })
	s.Say("", demokit.Bad, "problem      %s", text)
	return nil
}

// WithAttrs implements slog.Handler.
func (s *screen) WithAttrs([]slog.Attr) slog.Handler { return s }

// WithGroup implements slog.Handler.
func (s *screen) WithGroup(string) slog.Handler { return s }
