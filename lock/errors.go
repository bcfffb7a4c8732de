package lock

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"cloud.google.com/go/spanner"
	"google.golang.org/grpc/codes"

	"github.com/spindle-lock/spindle/internal/elect"
	"github.com/spindle-lock/spindle/internal/table"
)

var (
	// ErrNotHeld is returned by Unlock and Release when the lock is not held: it was never taken, it was
	// given back already, or it was lost meanwhile.
	ErrNotHeld = errors.New("not held")

	// ErrHeld is returned by Lock when the work that it was called from, in Do, holds the lock itself:
	// it would wait for itself.
	ErrHeld = errors.New("already held by the work that asks for it")

	// ErrSize is returned by Acquire and TryAcquire when another process holds a slot of a semaphore of
	// this name and another size.
	ErrSize = errors.New("semaphores of one name disagree about their size")
)

// lasting reports whether an error of a look will not mend itself by waiting.
func lasting(err error) bool {
	return slices.Contains([]codes.Code{codes.NotFound, codes.PermissionDenied, codes.Unauthenticated,
		codes.InvalidArgument, codes.FailedPrecondition}, spanner.ErrCode(err))
}

// waitedFor is the error of a wait that ctx ended: which, for whom, and what went wrong last.
func waitedFor(ctx context.Context, start time.Time, seen []elect.Sight, last error) error {
	why := ctx.Err()
	if cause := context.Cause(ctx); !errors.Is(cause, why) {
		why = fmt.Errorf("%w: %w", why, cause)
	}
	waited := time.Since(start).Round(time.Millisecond)
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

func superseded(err error) bool {
	return errors.Is(err, table.ErrChanged) || errors.Is(err, table.ErrSuperseded)
}
