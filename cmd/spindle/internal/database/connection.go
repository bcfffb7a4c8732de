package database

import (
	"context"
	"sync"
	"time"

	"cloud.google.com/go/spanner"

	"github.com/spindle-lock/spindle/cmd/spindle/internal/terminal"
	"github.com/spindle-lock/spindle/internal/table"
)

// A Connection holds a Spanner client for the database, and gives access to the lock table.
//
// A client loses its session if the emulator is restarted, or if the database is dropped and created again. From then
// on, all of the client's calls fail. Connection therefore creates a new client and repeats the failed call, which had
// no effect. A new client does not affect lock holders: a holder keeps its lock, under the same token, as long as the
// lease row still exists.
type Connection struct {
	table string
	dial  func() (*spanner.Client, error)

	mu    sync.Mutex
	db    *spanner.Client
	calls map[*spanner.Client]int // how many calls use a client
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

// call runs do. If the client has lost its session, do had no effect, and call runs it again with a new client.
func (c *Connection) call(ctx context.Context, _ string, do func(context.Context, table.Store) error) error {
	db, done := c.use()
	defer done()
	err := do(ctx, table.Spanner{DB: db, Table: c.table})
	if table.FaultOf(err) != table.NoSession {
		return err
	}
	c.mu.Lock()
	if c.db == db { // no other call has replaced it
		if fresh, err := c.dial(); err == nil { // otherwise, the next call tries again
			c.db = fresh
		}
	}
	c.mu.Unlock()
	db, done = c.use()
	defer done()
	return do(ctx, table.Spanner{DB: db, Table: c.table})
}

// use returns the current client for a call, which must call done at its end. If the client has been replaced by then,
// the last call that uses it closes it.
func (c *Connection) use() (db *spanner.Client, done func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	db = c.db
	c.calls[db]++
	return db, func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.calls[db]--; c.calls[db] == 0 {
			delete(c.calls, db)
			if db != c.db {
				db.Close()
			}
		}
	}
}

// quiet is how long the database can take to answer before a command reports that it is waiting.
const quiet = 3 * time.Second

// Audible logs a message if the database takes more than a few seconds to answer. The message says that the command is
// waiting. The caller must call the returned function when the database has answered.
func (o *Database) Audible() (answered func()) {
	if o.Timeout <= quiet {
		return func() {}
	}
	t := time.AfterFunc(quiet, func() {
		terminal.Complain("no answer from the database yet; waiting up to %v (--timeout)", o.Timeout)
	})
	return func() { t.Stop() }
}

// Audibly returns the lock table for a command that makes a few calls and exits. If the first call takes more than a
// few seconds, the command logs that it is waiting.
func (c *Connection) Audibly(o *Database) table.Table {
	var said sync.Once
	return table.Table{Store: table.Via(func(ctx context.Context, step string, do func(context.Context, table.Store) error) error {
		answered := func() {}
		said.Do(func() { answered = o.Audible() })
		defer answered()
		return c.call(ctx, step, do)
	})}
}
