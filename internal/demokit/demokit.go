// Package demokit has what the examples and the command's demonstration need besides locks: an emulator to run on, and
// stories about child processes on a timeline. Don't copy anything from here into your own program.
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

// Table is the lock table that Open makes.
const Table = "locktable"

// Play runs a story until it ends or the user presses Ctrl+C. If the story returns an error, Play prints that and exits. A
// second Ctrl+C does not wait for the story.
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

// A Database is on an emulator, and has a lock table.
type Database struct {
	Path     string // projects/P/instances/I/databases/D
	emulator *emulator.Emulator
}

// Open makes a database on the emulator at SPANNER_EMULATOR_HOST, or on one that it starts, which ends with
// Close or with this process. It sets SPANNER_EMULATOR_HOST for the clients of this process and its children.
func Open(ctx context.Context, statements ...string) (*Database, error) {
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
	return &Database{Path: path, emulator: e}, nil
}

// Addr returns the address of the emulator.
func (d *Database) Addr() string { return d.emulator.Addr() }

// Close drops the database and ends the emulator, if Open started it.
func (d *Database) Close() {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	if err := errors.Join(d.emulator.DropDatabase(ctx, d.Path), d.emulator.Close()); err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
}
