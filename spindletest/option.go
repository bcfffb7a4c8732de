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

// WithDDL makes New execute the statements in order, after it has created the lock table. The statements must be in the
// database's dialect, and must not end with semicolons. If the option is given several times, all the statements are
// executed.
func WithDDL(statements ...string) Option {
	return func(c *config) { c.statements = append(c.statements, statements...) }
}

// Private makes New start a separate emulator for this database, even if SPANNER_EMULATOR_HOST is set. The emulator is
// stopped after the test. Only a private emulator can be stopped earlier, with [Database.StopEmulator]. The optional
// flags, such as "--enable_fault_injection", are passed to emulator_main.
func Private(flags ...string) Option {
	return func(c *config) { c.private, c.flags = true, flags }
}

func (c config) emulator(ctx context.Context) (*emulator.Emulator, error) {
	if c.private {
		return emulator.Start(ctx, c.flags...)
	}
	return emulator.Shared(ctx)
}
