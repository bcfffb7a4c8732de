// Package demokit supports the examples and the command spindle demo. It starts an emulator, runs child processes, and
// prints what happens to them on a timeline. Do not copy code from this package into your own program.
package demokit

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"cloud.google.com/go/spanner/admin/database/apiv1/databasepb"

	"github.com/spindle-lock/spindle/ddl"
	"github.com/spindle-lock/spindle/internal/testkit/emulator"
)

// Table is the name of the lock table that Open creates.
const Table = "locktable"

// Play runs a story until it ends or the user presses Ctrl+C. If the story fails or is interrupted, Play prints a
// message and exits. A second Ctrl+C ends the process immediately.
func Play(story func(context.Context) error) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	context.AfterFunc(ctx, stop)
	err := story(ctx)
	switch {
	case err != nil && ctx.Err() != nil:
		fmt.Fprintln(os.Stderr, "\nInterrupted. Nothing is left running.")
		os.Exit(130)
	case err != nil:
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// A Database is a database on an emulator, with a lock table.
type Database struct {
	Path     string // projects/P/instances/I/databases/D
	emulator *emulator.Emulator
}

// Open creates a database on the emulator at SPANNER_EMULATOR_HOST. The database has a lock table, and Open also
// executes the given statements, which can create other tables. If SPANNER_EMULATOR_HOST is not set, Open starts an
// emulator, and sets the variable for the clients in this process and its children. The emulator runs until Close is
// called or this process exits.
func (s *Story) Open(ctx context.Context, statements ...string) (*Database, error) {
	s.Say("", Plain, "starting a Cloud Spanner emulator")
	e, err := emulator.Open(ctx)
	if err != nil {
		return nil, err
	}
	dialect := databasepb.DatabaseDialect_GOOGLE_STANDARD_SQL
	path, err := e.CreateDatabase(ctx, dialect, append([]string{ddl.Statement(dialect, Table)}, statements...)...)
	if err == nil {
		err = os.Setenv("SPANNER_EMULATOR_HOST", e.Addr())
	}
	if err != nil {
		return nil, errors.Join(err, e.Close())
	}
	s.Say("", Plain, "it is ready at %s, with a lock table", e.Addr())
	return &Database{Path: path, emulator: e}, nil
}

// Close drops the database, and stops the emulator if Open started it.
func (d *Database) Close() {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	if err := errors.Join(d.emulator.DropDatabase(ctx, d.Path), d.emulator.Close()); err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
}
