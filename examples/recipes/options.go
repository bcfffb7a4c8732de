package recipes

import (
	"log/slog"
	"time"

	"cloud.google.com/go/spanner"

	"github.com/spindle-lock/spindle"
	"github.com/spindle-lock/spindle/lock"
)

// Locks returns the locks of a service, which have the same lease and the same logger.
func Locks(db *spanner.Client, lease time.Duration, log *slog.Logger) (*spindle.Lock, *lock.Mutex) {
	common := spindle.Options(spindle.WithLease(lease), spindle.WithLogger(log))
	leader := spindle.New(db, "locktable", "leader", common, spindle.WithHandover())
	imports := lock.New(db, "locktable", "imports", common)
	return leader, imports
}
