package spindletest

import (
	"context"

	"cloud.google.com/go/spanner/admin/database/apiv1/databasepb"

	"github.com/spindle-lock/spindle/internal/testkit/emulator"
)

// An Option changes the database that [New] returns.
type Option func(*config)

type config struct {
	dialect    databasepb.DatabaseDialect
	statements []string
	private    bool
	flags      []string
}

// PostgreSQL makes New return a database of the PostgreSQL dialect instead of GoogleSQL.
func PostgreSQL() Option {
	return func(c *config) { c.dialect = databasepb.DatabaseDialect_POSTGRESQL }
}

// WithDDL executes the statements, in the database's dialect, in order after the lock table is created. They have no
// final semicolons. If it is given several times, the statements add up.
func WithDDL(statements ...string) Option {
	return func(c *config) { c.statements = append(c.statements, statements...) }
}

// Private starts an emulator for this database alone, whether or not SPANNER_EMULATOR_HOST is set, so that
// [Database.StopEmulator] can stop it. It ends after the test. The flags, if any, are more flags for emulator_main, for
// example "--enable_fault_injection".
func Private(flags ...string) Option {
	return func(c *config) { c.private, c.flags = true, flags }
}

func (c config) emulator(ctx context.Context) (*emulator.Emulator, error) {
	if c.private {
		return emulator.Start(ctx, c.flags...)
	}
	return emulator.Shared(ctx)
}
