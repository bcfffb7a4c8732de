package spindle

import (
	"fmt"

	"github.com/spindle-lock/spindle/internal/loop"
)

// wrap adds the step and the lock's name to an error, and what to do about it if that is known.
func (l *Lock) wrap(step string, err error) error {
	if hint := loop.Mend(err); hint != "" {
		return fmt.Errorf("spindle: %s: lock %q in table %s: %w (%s)", step, l.name, l.spanner.Table, err, hint)
	}
	return fmt.Errorf("spindle: %s: lock %q: %w", step, l.name, err)
}
