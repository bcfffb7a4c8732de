package connect

import (
	"context"
	"sync"

	"cloud.google.com/go/spanner"

	"github.com/spindle-lock/spindle/internal/table"
)

// Connection is a client of the database, and the store of a lock table in it.
//
// A client that has lost its session only returns errors: after an emulator was restarted, or a database was dropped and
// created again. Connection then makes a new client, and repeats the call, which had no effect. To the protocol this is
// nothing special: a holder continues under its token if its lease row is there.
type Connection struct {
	table string
	dial  func() (*spanner.Client, error)

	mu sync.Mutex
	db *spanner.Client
}

// Close closes the client.
func (c *Connection) Close() { c.Client().Close() }

// Client returns the present client.
func (c *Connection) Client() *spanner.Client {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.db
}

// Locks returns the lock table.
func (c *Connection) Locks() table.Table { return table.Table{Store: table.Via(c.call)} }

// call makes a call, and repeats it if the session is gone: then the first one had no effect.
func (c *Connection) call(ctx context.Context, _ string, do func(context.Context, table.Store) error) error {
	db := c.Client()
	err := do(ctx, table.Spanner{DB: db, Table: c.table})
	if c.replaces(db, err) {
		err = do(ctx, table.Spanner{DB: c.Client(), Table: c.table})
	}
	return err
}

// replaces reports whether err says that the client has lost its session. It then replaces the client, unless another
// call has done so. If that fails, the next call tries again.
func (c *Connection) replaces(db *spanner.Client, err error) bool {
	if !table.SessionLost(err) {
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
