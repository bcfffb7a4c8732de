package loop

import (
	"context"
	"log/slog"
	"strings"
	"unicode"

	"cloud.google.com/go/spanner"

	"github.com/spindle-lock/spindle/internal/elect"
)

// Problems logs what goes wrong: each kind once, until it goes well again. A single failure is everyday
// life in a network, and only for Debug, if it may go away by itself.
type Problems struct {
	Log  *slog.Logger
	What string // can't be done: compete for the lock

	row  int // failures in a row
	said map[string]bool
}

// Note takes in an error.
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
	p.Log.Log(context.Background(), level, "can't "+p.What+", trying on", attrs...)
}

// Clear takes in that it went well.
func (p *Problems) Clear() {
	if p.said != nil {
		p.Log.Info("can " + p.What + " again")
	}
	p.row, p.said = 0, nil
}

// kindOf makes messages alike that differ in times, ports or the id of a request.
func kindOf(err error) string {
	return spanner.ErrCode(err).String() + strings.Map(func(r rune) rune {
		if unicode.IsDigit(r) {
			return -1
		}
		return r
	}, spanner.ErrDesc(err))
}
