package connect

import (
	"context"
	"sync"
	"time"

	"github.com/spindle-lock/spindle/cmd/spindle/internal/terminal"
	"github.com/spindle-lock/spindle/internal/table"
)

// quiet is how long the database can take to answer before a command reports that it is waiting.
const quiet = 3 * time.Second

// Audible logs that the command is waiting if the database does not answer for a while. The returned function cancels
// the message.
func (o *Database) Audible() (answered func()) {
	if o.Timeout <= quiet {
		return func() {}
	}
	t := time.AfterFunc(quiet, func() {
		terminal.Complain("no answer from the database yet; waiting up to %v (--timeout)", o.Timeout)
	})
	return func() { t.Stop() }
}

// Audibly returns the lock table for a command that does a single task. If its first call is slow, the table logs that
// it is waiting.
func (c *Connection) Audibly(o *Database) table.Table {
	var said sync.Once
	return table.Table{Store: table.Via(func(ctx context.Context, step string, do func(context.Context, table.Store) error) error {
		answered := func() {}
		said.Do(func() { answered = o.Audible() })
		defer answered()
		return c.call(ctx, step, do)
	})}
}
