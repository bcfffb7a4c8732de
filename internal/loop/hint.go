package loop

import (
	"errors"
	"fmt"

	"github.com/spindle-lock/spindle/internal/fence"
	"github.com/spindle-lock/spindle/internal/table"
)

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

// HintAttr returns the attribute for a log line about err that contains the hint, or nothing if there is no hint.
func HintAttr(err error) []any {
	if hint := Hint(err); hint != "" {
		return []any{"hint", hint}
	}
	return nil
}
