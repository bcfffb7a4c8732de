package loop

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"unicode"

	"cloud.google.com/go/spanner"

	"github.com/spindle-lock/spindle/internal/fence"
	"github.com/spindle-lock/spindle/internal/table"
)

// Problems logs errors. Each kind of error is logged once as a warning, and after that only at Debug until the next
// success. Isolated failures are normal in a network, so the first failure after a success is also logged only at
// Debug, unless Spanner refused the request.
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
	if kind := kindOf(err); (p.row > 1 || table.Refused(err)) && !p.said[kind] {
		level = slog.LevelWarn
		if p.said == nil {
			p.said = map[string]bool{}
		}
		p.said[kind] = true
	}
	p.Log.Log(context.Background(), level, "can't "+p.What+", still trying", append([]any{"err", err}, HintAttr(err)...)...)
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

// Wrap adds context to an error: the step, the kind and name of its object, such as a lock, and a hint if there is one.
func Wrap(step, kind, name, tableName string, err error) error {
	if hint := Hint(err); hint != "" {
		return fmt.Errorf("spindle: %s: %s %q in table %s: %w (%s)", step, kind, name, tableName, err, hint)
	}
	return fmt.Errorf("spindle: %s: %s %q: %w", step, kind, name, err)
}

// Hint returns advice on how to fix an error, or "" if there is none.
func Hint(err error) string {
	if errors.Is(err, fence.ErrFenced) {
		return ""
	}
	return table.FaultOf(err).Hint
}

// HintAttr returns a log attribute with the hint for err, or nil if there is no hint.
func HintAttr(err error) []any {
	if hint := Hint(err); hint != "" {
		return []any{"hint", hint}
	}
	return nil
}
