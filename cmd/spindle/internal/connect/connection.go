package connect

import (
	"context"
	"sync"

	"cloud.google.com/go/spanner"

	"github.com/spindle-lock/spindle/internal/table"
)

// A Connection holds a Spanner client for the database, and gives access to the lock table.
//
// A client loses its session if the emulator is restarted, or if the database is dropped and created again. From then
// on, all of the client's calls fail. Connection therefore creates a new client and repeats the failed call, which had
// no effect. This does not affect lock holders. As long as its lease row still exists, a holder keeps the lock under
// the same token.
type Connection struct {
	table string
	dial  func() (*spanner.Client, error)

	mu sync.Mutex
	db *spanner.Client
}

// Close closes the client.
func (c *Connection) Close() { c.Client().Close() }

// Client returns the current client.
func (c *Connection) Client() *spanner.Client {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.db
}

// Locks returns the lock table.
func (c *Connection) Locks() table.Table { return table.Table{Store: table.Via(c.call)} }

// call makes a call. If the client has lost its session, the call had no effect, so call repeats it with a new client.
func (c *Connection) call(ctx context.Context, _ string, do func(context.Context, table.Store) error) error {
	db := c.Client()
	err := do(ctx, table.Spanner{DB: db, Table: c.table})
	if c.replaces(db, err) {
		err = do(ctx, table.Spanner{DB: c.Client(), Table: c.table})
	}
	return err
}

// replaces reports whether err means that the client db has lost its session. In that case, it also creates a new
// client, unless another call has already done so. If it can't create one, the next call tries again.
func (c *Connection) replaces(db *spanner.Client, err error) bool {
	if table.FaultOf(err) != table.NoSession {
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.db == db {
		if fresh, err := c.dial(); err == nil {
			c.db = fresh
			db.Close()
		}
	}
	return true
}
