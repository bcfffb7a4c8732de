package connect

import (
	"context"
	"sync"
	"time"

	"github.com/spindle-lock/spindle/cmd/spindle/internal/terminal"
	"github.com/spindle-lock/spindle/internal/table"
)

// quiet is how long the database may be silent before a command says that it waits.
const quiet = 3 * time.Second

// Audible logs that the command waits if the database does not answer for a while. The returned function calls that off.
func (o *Database) Audible() (answered func()) {
	if o.Timeout <= quiet {
		return func() {}
	}
	t := time.AfterFunc(quiet, func() {
		terminal.Complain("no answer from the database yet: waiting for it, for %v at most (--timeout)", o.Timeout)
	})
	return func() { t.Stop() }
}

// Audibly returns the table of a command that does one thing. Its first slow call logs that it waits.
func (c *Connection) Audibly(o *Database) table.Table {
	var said sync.Once
	return table.Table{Store: table.Via(func(ctx context.Context, step string, do func(context.Context, table.Store) error) error {
		answered := func() {}
		said.Do(func() { answered = o.Audible() })
		defer answered()
		return c.call(ctx, step, do)
	})}
}
