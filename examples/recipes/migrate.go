package recipes

import (
	"context"
	"errors"
	"fmt"

	"cloud.google.com/go/spanner"

	"github.com/spindle-lock/spindle/lock"
)

// A Migration is one change to the schema or the data. Versions are compared as text, so give all of them the same
// number of digits.
type Migration struct {
	Version string
	Run     func(ctx context.Context, run lock.Run) error
}

// Migrate runs the migrations, which must be sorted by version. It skips those that are already done, and waits for
// those that another process is running. It returns when all migrations are done, or at the first error.
func Migrate(ctx context.Context, db *spanner.Client, migrations []Migration) error {
	once := lock.NewOnce(db, "locktable", "migrations")
	for _, m := range migrations {
		ran, err := once.Do(ctx, lock.KeyOf(m.Version), m.Run)
		if !ran && errors.Is(err, lock.ErrPassed) {
			continue // a later migration is done, so this one is too
		}
		if err != nil {
			return fmt.Errorf("migration %s: %w", m.Version, err)
		}
	}
	return nil
}
