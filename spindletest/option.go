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

// PostgreSQL makes New return a database in the PostgreSQL dialect instead of GoogleSQL.
func PostgreSQL() Option {
	return func(c *config) { c.dialect = databasepb.DatabaseDialect_POSTGRESQL }
}

// WithDDL executes the statements in order, after the lock table has been created. They must be in the database's
// dialect and have no final semicolons. If the option is given several times, the statements are combined.
func WithDDL(statements ...string) Option {
	return func(c *config) { c.statements = append(c.statements, statements...) }
}

// Private starts an emulator for this database alone, even if SPANNER_EMULATOR_HOST is set, so that
// [Database.StopEmulator] can stop it. The emulator ends after the test. The optional flags, such as
// "--enable_fault_injection", are passed to emulator_main.
func Private(flags ...string) Option {
	return func(c *config) { c.private, c.flags = true, flags }
}

func (c config) emulator(ctx context.Context) (*emulator.Emulator, error) {
	if c.private {
		return emulator.Start(ctx, c.flags...)
	}
	return emulator.Shared(ctx)
}
