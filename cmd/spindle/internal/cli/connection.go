package cli

import (
	"context"
	"sync"
	"time"

	"cloud.google.com/go/spanner"

	"github.com/spindle-lock/spindle/internal/table"
)

// connection is a client of the database, and the store of a lock table in it.
//
// Once its session is gone, a client only returns errors: after an emulator was started again, or a database
// was dropped and created again. A new client then takes its place for the next call. To the protocol this is
// nothing special: the failed call is an error, and a holder goes on under its token if its lease row is there.
type connection struct {
	table string
	dial  func() (*spanner.Client, error)

	mu sync.Mutex
	db *spanner.Client
}

func newConnection(table string, dial func() (*spanner.Client, error)) (*connection, error) {
	db, err := dial()
	if err != nil {
		return nil, err
	}
	return &connection{table: table, dial: dial, db: db}, nil
}

// Close closes the client.
func (c *connection) Close() { c.client().Close() }

func (c *connection) client() *spanner.Client {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.db
}

func (c *connection) locks() table.Table { return table.Table{Store: c} }

// Read implements table.Store.
func (c *connection) Read(ctx context.Context, step string, bound table.Bound, keys table.Keys) ([]table.Row, time.Time, error) {
	db := c.client()
	rows, at, err := c.on(db).Read(ctx, step, bound, keys)
	c.heed(db, err)
	return rows, at, err
}

// Commit implements table.Store.
func (c *connection) Commit(ctx context.Context, step string, writes []table.Write) error {
	db := c.client()
	err := c.on(db).Commit(ctx, step, writes)
	c.heed(db, err)
	return err
}

// Transact implements table.Store.
func (c *connection) Transact(ctx context.Context, step string, fn func(context.Context, table.Reader) ([]table.Write, error)) (time.Time, error) {
	db := c.client()
	at, err := c.on(db).Transact(ctx, step, fn)
	c.heed(db, err)
	return at, err
}

func (c *connection) on(db *spanner.Client) table.Spanner {
	return table.Spanner{DB: db, Table: c.table}
}

// heed replaces a client that has lost its session, unless another call has done so. If it can't, the next
// call tries again.
func (c *connection) heed(db *spanner.Client, err error) {
	if !table.SessionLost(err) {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.db != db {
		return
	}
	if fresh, err := c.dial(); err == nil {
		c.db = fresh
		db.Close()
	}
}
