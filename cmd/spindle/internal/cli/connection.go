package cli

import (
	"context"
	"strings"
	"sync"
	"time"

	"cloud.google.com/go/spanner"
	"google.golang.org/grpc/codes"

	"github.com/spindle-lock/spindle/internal/table"
)

// connection is a client of the database, and the store of a lock table in it.
//
// A client whose session is gone answers so for ever, as where an emulator was started again, or the
// database was dropped and made again. Its place is taken by a new one then, for the next call. A client
// knows nothing of the protocol, so it makes no difference to it: what the old one did not bring about is an
// error, and a holder goes on under its token, as far as the lease rows that the new one finds allow.
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

// heed replaces a client that has lost its session, unless another call did. Where that fails, the next
// one tries again.
func (c *connection) heed(db *spanner.Client, err error) {
	if !sessionLost(err) {
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

// sessionLost goes by the text, as the client does not pass on what else there is. A new client where none
// was needed costs a connection.
func sessionLost(err error) bool {
	return spanner.ErrCode(err) == codes.NotFound && strings.Contains(spanner.ErrDesc(err), "Session")
}
