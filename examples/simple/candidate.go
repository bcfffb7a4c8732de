package main

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"cloud.google.com/go/spanner"

	"github.com/spindle-lock/spindle"
	"github.com/spindle-lock/spindle/ddl"
)

// candidate is one process that competes for a lock.
type candidate struct {
	database string // projects/P/instances/I/databases/D
	table    string
	name     string
	id       string // empty for the default
	lease    time.Duration
	create   bool
	wrote    func(spindle.Token, error) // called after each of the leader's writes
	log      *slog.Logger
}

// run competes for the lock until ctx ends, and then releases the lock if the candidate holds it.
func (c candidate) run(ctx context.Context) error {
	if c.create {
		if err := ddl.Create(ctx, c.database, c.table); err != nil {
			return err
		}
	}
	db, err := spindle.Open(ctx, c.database, spindle.ClientOptions(c.lease)...)
	if err != nil {
		return err
	}
	defer db.Close()
	if err := c.verify(ctx, db); err != nil {
		return err
	}

	options := []spindle.Option{
		spindle.WithLease(c.lease),
		spindle.WithLeader(c.lead),
		spindle.WithLogger(c.log),
	}
	if c.id != "" {
		options = append(options, spindle.WithID(c.id))
	}
	lock := spindle.New(db, c.table, c.name, options...)
	return lock.RunAndWait(ctx)
}

// verify returns an error if the table is missing or wrong, or if the database can't be reached. Without this check,
// the lock would only log these errors and keep trying.
func (c candidate) verify(ctx context.Context, db *spanner.Client) error {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	return ddl.Verify(ctx, db, c.table)
}

// lead does the leader's work: it writes about four times a second, and once more after ctx has ended. If the process
// was paused for longer than the lease, another process may already lead, and only the fence can reject the late write.
func (c candidate) lead(ctx context.Context, term spindle.Term) {
	for {
		ended := ctx.Err() != nil
		var write []*spanner.Mutation // put your own mutations here
		_, err := term.Apply(context.WithoutCancel(ctx), write)
		c.wrote(term.Token(), err)
		if ended || errors.Is(err, spindle.ErrFenced) {
			return
		}
		select {
		case <-time.After(250 * time.Millisecond):
		case <-ctx.Done():
		}
	}
}
