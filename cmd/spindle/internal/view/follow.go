package view

import (
	"context"
	"time"

	"github.com/spindle-lock/spindle"
	"github.com/spindle-lock/spindle/cmd/spindle/internal/connect"
	"github.com/spindle-lock/spindle/cmd/spindle/internal/exit"
	"github.com/spindle-lock/spindle/cmd/spindle/internal/model"
	"github.com/spindle-lock/spindle/cmd/spindle/internal/terminal"
	"github.com/spindle-lock/spindle/internal/operator"
	"github.com/spindle-lock/spindle/internal/table"
)

// A follower reads the table again and again, and shows the result of each read.
type follower struct {
	*connect.Database
	every    time.Duration // the shortest pause between two reads
	patience time.Duration // how long a read may take before it is reported that Spanner does not answer
	read     func(context.Context, table.Table) ([]operator.Listing, time.Time, error)
	show     func(found []operator.Listing, at time.Time) error
}

// A look is the result of one read of the table.
type look struct {
	found []operator.Listing
	at    time.Time     // by Spanner's clock
	pause time.Duration // until the next one
	err   error
}

// run follows the table until a signal arrives.
func (f *follower) run(ctx context.Context) error {
	db, err := f.Open(spindle.ClientOptions(0)...)
	if err != nil {
		return err
	}
	defer db.Close()
	terminal.Stderr.Time()
	ctx, stop := exit.UntilInterrupted(ctx)
	defer stop()
	return f.follow(ctx, db.Locks())
}

func (f *follower) follow(ctx context.Context, t table.Table) error {
	looks := make(chan look)
	go f.look(ctx, t, looks)
	return f.print(ctx, looks)
}

// look reads the table until ctx ends, and sends the results to looks.
func (f *follower) look(ctx context.Context, t table.Table, looks chan<- look) {
	pace := model.Pace{Every: f.every, Longest: 15 * time.Second, Share: 5}
	for ctx.Err() == nil {
		l := f.once(ctx, t, &pace)
		select {
		case looks <- l:
		case <-ctx.Done():
		}
		select {
		case <-time.After(l.pause):
		case <-ctx.Done():
		}
	}
}

func (f *follower) once(ctx context.Context, t table.Table, pace *model.Pace) (l look) {
	ctx, cancel := context.WithTimeout(ctx, f.Timeout)
	defer cancel()
	began := time.Now()
	if l.found, l.at, l.err = f.read(ctx, t); l.err == nil {
		pace.Took(time.Since(began))
	} else {
		pace.Took(0)
	}
	l.pause = pace.Pause
	return l
}

// print shows each look. An outage is one message when reads begin to fail or hang, and one when it ends.
func (f *follower) print(ctx context.Context, looks <-chan look) error {
	seen, failing := "", false
	fail := func(format string, args ...any) {
		if !failing {
			terminal.Complain(format, args...)
		}
		failing = true
	}
	late := time.NewTimer(f.patience)
	defer late.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-late.C:
			fail("no answer from Spanner for %v%s", f.patience, seen)
		case l := <-looks:
			late.Reset(l.pause + f.patience)
			switch {
			case l.err != nil && seen == "":
				return f.Explain(l.err) // probably a mistake by the user rather than a temporary failure
			case l.err != nil && ctx.Err() == nil:
				fail("can't read the locks, will try again: %v", f.Explain(l.err))
			}
			if l.err != nil {
				continue
			}
			if seen = "; the last output is as of " + l.at.UTC().Format("15:04:05Z"); failing {
				failing = false
				terminal.Complain("the locks can be read again")
			}
			if err := f.show(l.found, l.at); err != nil {
				return err
			}
		}
	}
}
