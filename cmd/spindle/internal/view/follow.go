package view

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/spindle-lock/spindle"
	"github.com/spindle-lock/spindle/cmd/spindle/internal/database"
	"github.com/spindle-lock/spindle/cmd/spindle/internal/model"
	"github.com/spindle-lock/spindle/cmd/spindle/internal/terminal"
	"github.com/spindle-lock/spindle/internal/operator"
	"github.com/spindle-lock/spindle/internal/table"
)

// A follower reads the table again and again, and shows the result of each read.
type follower struct {
	*database.Database
	every    time.Duration // the shortest pause between two reads
	patience time.Duration // how long a read may take before it is reported that Spanner does not answer
	read     func(context.Context, table.Table) ([]operator.Listing, time.Time, error)
	show     func(found []operator.Listing, at time.Time) error
}

// run follows the table until a signal arrives.
func (f *follower) run(ctx context.Context) error {
	db, err := f.Open(spindle.ClientOptions(0)...)
	if err != nil {
		return err
	}
	defer db.Close()
	terminal.Stderr.Time()
	ctx, stop := terminal.UntilInterrupted(ctx)
	defer stop()
	return f.follow(ctx, db.Locks())
}

// follow reads the table until ctx ends. It returns an error if the first read fails or a result can't be shown. For
// each later outage, it logs one message when reads begin to fail or hang, and another one when they succeed again.
func (f *follower) follow(ctx context.Context, t table.Table) error {
	pace := model.Pace{Every: f.every, Longest: 15 * time.Second, Share: 5}
	var failing atomic.Bool
	fail := func(format string, args ...any) {
		if !failing.Swap(true) {
			terminal.Complain(format, args...)
		}
	}
	for last := ""; ; {
		shown, began := last, time.Now()
		late := time.AfterFunc(f.patience, func() { fail("no answer from Spanner for %v%s", f.patience, shown) })
		found, at, err := f.once(ctx, t)
		late.Stop()
		switch {
		case ctx.Err() != nil:
			return nil
		case err == nil:
			pace.Took(time.Since(began))
			last = "; the last output is as of " + at.UTC().Format("15:04:05Z")
			if failing.Swap(false) {
				terminal.Complain("the locks can be read again")
			}
			if err := f.show(found, at); err != nil {
				return err
			}
		case last == "":
			return f.Explain(err) // probably a mistake by the user rather than a temporary failure
		default:
			pace.Took(0)
			fail("can't read the locks, will try again: %v", f.Explain(err))
		}
		select {
		case <-time.After(pace.Pause):
		case <-ctx.Done():
			return nil
		}
	}
}

func (f *follower) once(ctx context.Context, t table.Table) ([]operator.Listing, time.Time, error) {
	ctx, cancel := context.WithTimeout(ctx, f.Timeout)
	defer cancel()
	return f.read(ctx, t)
}
