package cli

import (
	"context"
	"errors"
	"time"

	"cloud.google.com/go/spanner"
	"github.com/spf13/pflag"

	"github.com/spindle-lock/spindle"
	"github.com/spindle-lock/spindle/ddl"
	"github.com/spindle-lock/spindle/internal/elect"
	"github.com/spindle-lock/spindle/internal/options"
)

// A competitor is a command that competes for a lock.
type competitor struct {
	*common
	name  string
	id    string
	value string
	quiet bool
}

func (x *competitor) flags(f *pflag.FlagSet) {
	f.StringVar(&x.name, "name", "", "the lock's `name`")
	f.StringVar(&x.id, "id", "", "the `id` that others see as the holder's (default host, process id and a UUID)")
	f.StringVar(&x.value, "value", "", "a `text` that others see while this holds the lock, such as an address")
	f.BoolVarP(&x.quiet, "quiet", "q", false, "only report problems")
}

// candidate checks the flags by the library's rules.
func (x *competitor) candidate(db *connection, lease time.Duration) (elect.Candidate, error) {
	opts := []spindle.Option{spindle.WithLease(lease), spindle.WithValue(x.value)}
	if x.id != "" {
		opts = append(opts, spindle.WithID(x.id))
	}
	c := options.New(opts)
	if x.name == "" {
		return elect.Candidate{}, misuse("which lock? Give it a name with --name or in SPINDLE_NAME")
	}
	c.Check(db.client(), x.table, x.name)
	if err := c.Err(); err != nil {
		return elect.Candidate{}, misuse("%w", err)
	}
	return c.Candidate(db.locks(), x.name), nil
}

// verify returns errors that waiting can't fix. If the database can't be reached now, it may be later.
func (x *competitor) verify(ctx context.Context, db *spanner.Client) error {
	ctx, cancel := context.WithTimeout(ctx, x.timeout)
	defer cancel()
	err := ddl.Verify(ctx, db, x.table)
	var schema *ddl.SchemaError
	if err != nil && (errors.As(err, &schema) || elect.Lasting(err)) {
		return x.explain(err)
	}
	if err != nil {
		complain("can't verify the table yet, will try again: %v", x.explain(err))
	}
	return nil
}
