package connect

import (
	"context"
	"sync"

	"cloud.google.com/go/spanner"

	"github.com/spindle-lock/spindle/internal/table"
)

// A Connection has a client of the database, and is the store of a lock table in it.
//
// A client loses its session if an emulator is restarted, or if a database is dropped and created again. From then on,
// the client only returns errors. Connection therefore makes a new client and repeats the failed call, which had no
// effect. The protocol needs no special case for this, because a holder continues under its token if its lease row
// still exists.
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

// replaces reports whether err shows that the client has lost its session. If so, it also replaces the client, unless
// another call has already done that. If the replacement fails, the next call tries again.
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
