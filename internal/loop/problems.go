package loop

import (
	"context"
	"log/slog"
	"strings"
	"unicode"

	"cloud.google.com/go/spanner"

	"github.com/spindle-lock/spindle/internal/elect"
)

// Problems logs errors, each kind once until the next success. A single failure is normal in a network, so a first
// failure that may go away by itself is logged at Debug.
type Problems struct {
	Log  *slog.Logger
	What string // what can't be done, such as "compete for the lock"

	row  int // failures in a row
	said map[string]bool
}

// Note handles an error.
func (p *Problems) Note(err error) {
	p.row++
	level := slog.LevelDebug
	if kind := kindOf(err); (p.row > 1 || elect.Lasting(err)) && !p.said[kind] {
		level = slog.LevelWarn
		if p.said == nil {
			p.said = map[string]bool{}
		}
		p.said[kind] = true
	}
	attrs := []any{"err", err}
	if hint := Hint(err); hint != "" {
		attrs = append(attrs, "hint", hint)
	}
	p.Log.Log(context.Background(), level, "can't "+p.What+", still trying", attrs...)
}

// Clear handles a success.
func (p *Problems) Clear() {
	if p.said != nil {
		p.Log.Info("can " + p.What + " again")
	}
	p.row, p.said = 0, nil
}

// kindOf returns the same text for errors that differ only in times, ports or request ids.
func kindOf(err error) string {
	return spanner.ErrCode(err).String() + strings.Map(func(r rune) rune {
		if unicode.IsDigit(r) {
			return -1
		}
		return r
	}, spanner.ErrDesc(err))
}
