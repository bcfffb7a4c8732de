package elect

import (
	"context"
	"time"
)

// Remind calls say while work that was told to stop does not return: after one lease, and again each time the wait has
// doubled, with the time waited so far. It returns when ctx ends.
func Remind(ctx context.Context, c Clock, lease time.Duration, say func(waited time.Duration)) {
	for waited, next := time.Duration(0), lease; ; waited, next = next, 2*next {
		if Sleep(ctx, c, next-waited); ctx.Err() != nil {
			return
		}
		say(next)
	}
}
