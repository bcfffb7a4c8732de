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
// was dropped and created again. A new client then takes its place, and the call, which was not carried out, is made
// again. To the protocol this is nothing special: a holder goes on under its token if its lease row is there.
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
func (c *connection) Read(ctx context.Context, step string, bound table.Bound, keys table.Keys) (rows []table.Row, at time.Time, err error) {
	err = c.call(func(s table.Spanner) error { rows, at, err = s.Read(ctx, step, bound, keys); return err })
	return rows, at, err
}

// Commit implements table.Store.
func (c *connection) Commit(ctx context.Context, step string, writes []table.Write) error {
	return c.call(func(s table.Spanner) error { return s.Commit(ctx, step, writes) })
}

// Transact implements table.Store.
func (c *connection) Transact(ctx context.Context, step string, fn func(context.Context, table.Reader) ([]table.Write, error)) (at time.Time, err error) {
	err = c.call(func(s table.Spanner) error { at, err = s.Transact(ctx, step, fn); return err })
	return at, err
}

// call makes a call, and once more if its session is gone: then it was not carried out.
func (c *connection) call(do func(table.Spanner) error) error {
	db := c.client()
	err := do(c.on(db))
	if c.replaces(db, err) {
		err = do(c.on(c.client()))
	}
	return err
}

func (c *connection) on(db *spanner.Client) table.Spanner {
	return table.Spanner{DB: db, Table: c.table}
}

// replaces replaces a client that has lost its session, unless another call did, and reports whether it was
// lost. If there is no new client yet, the next call tries again.
func (c *connection) replaces(db *spanner.Client, err error) bool {
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
