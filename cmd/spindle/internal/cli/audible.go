package cli

import (
	"context"
	"sync"
	"time"

	"github.com/spindle-lock/spindle/internal/table"
)

// quiet is how long the database may be silent until a command says that it waits.
const quiet = 3 * time.Second

// audible says that it waits if the database has not answered for a while, until it is called back.
func (o *common) audible() (answered func()) {
	if o.timeout <= quiet {
		return func() {}
	}
	t := time.AfterFunc(quiet, func() {
		complain("no answer from the database yet: waiting for it, for %v at most (--timeout)", o.timeout)
	})
	return func() { t.Stop() }
}

// audibly is the table of a command that does one thing: the first of its calls that takes long says so.
func (c *connection) audibly(o *common) table.Table {
	var said sync.Once
	return table.Table{Store: table.Via(func(ctx context.Context, step string, do func(context.Context, table.Store) error) error {
		answered := func() {}
		said.Do(func() { answered = o.audible() })
		defer answered()
		return c.call(ctx, step, do)
	})}
}
