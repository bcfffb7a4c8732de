package recipes

import (
	"context"
	"errors"
	"fmt"

	"cloud.google.com/go/spanner"

	"github.com/spindle-lock/spindle/lock"
)

// A Migration is one change of the schema or the data. Versions are compared as text: give all of them the same number of
// digits.
type Migration struct {
	Version string
	Run     func(ctx context.Context, run lock.Run) error
}

// Migrate returns when all migrations are done, by this process or another. It runs the others in their order.
func Migrate(ctx context.Context, db *spanner.Client, migrations []Migration) error {
	once := lock.NewOnce(db, "locktable", "migrations")
	for _, m := range migrations {
		ran, err := once.Do(ctx, lock.KeyOf(m.Version), m.Run)
		if !ran && errors.Is(err, lock.ErrPassed) {
			continue // a later one is done, and this one before it
		}
		if err != nil {
			return fmt.Errorf("migration %s: %w", m.Version, err)
		}
	}
	return nil
}
