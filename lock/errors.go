package lock

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spindle-lock/spindle/internal/elect"
)

var (
	// ErrNotHeld is returned by Unlock and Release if the lock is not held: it was never taken, was given
	// back already, or was lost meanwhile.
	ErrNotHeld = errors.New("not held")

	// ErrHeld is returned by Lock if it is called from work in Do that holds the lock itself: it would wait
	// for itself.
	ErrHeld = errors.New("already held by the work that asks for it")

	// ErrSize is returned by Acquire and TryAcquire if another process holds a slot of a semaphore with this
	// name and another size.
	ErrSize = errors.New("semaphores of one name disagree about their size")
)

// permanent reports whether an error will not go away by waiting.
func permanent(err error) bool {
	return errors.Is(err, ErrSize) || errors.Is(err, errFull) || elect.Lasting(err)
}

// waitedFor is the error of a wait that ctx ended: which, for whom, and what went wrong last.
func waitedFor(ctx context.Context, waited time.Duration, seen []elect.Sight, last error) error {
	why := ctx.Err()
	if cause := context.Cause(ctx); !errors.Is(cause, why) {
		why = fmt.Errorf("%w: %w", why, cause)
	}
	waited = waited.Round(time.Millisecond)
	by := holders(seen)
	if by == "" && last != nil {
		return fmt.Errorf("not acquired in %v: %w (last: %w)", waited, why, last)
	}
	return fmt.Errorf("not acquired in %v: %w%s", waited, why, by)
}

func holders(seen []elect.Sight) string {
	var by []string
	for _, s := range seen {
		if s.Free > 0 && s.Exists {
			by = append(by, fmt.Sprintf("%q by %s under token %d, last heartbeat %v before",
				s.Name, s.Writer, s.Token, s.At.Sub(s.Heartbeat).Round(time.Millisecond)))
		}
	}
	if by == nil {
		return ""
	}
	return " (held: " + strings.Join(by, "; ") + ")"
}
