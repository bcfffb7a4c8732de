package view

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/spindle-lock/spindle/cmd/spindle/internal/exit"
	"github.com/spindle-lock/spindle/cmd/spindle/internal/model"
	"github.com/spindle-lock/spindle/cmd/spindle/internal/terminal"
	"github.com/spindle-lock/spindle/internal/operator"
	"github.com/spindle-lock/spindle/internal/table"
)

// follow shows the list until a signal arrives.
func (ls *listing) follow(ctx context.Context) error {
	db, err := ls.Database.Open()
	if err != nil {
		return err
	}
	defer db.Close()
	ctx, stop := exit.UntilInterrupted(ctx)
	defer stop()
	terminal.Stderr.Time()
	return ls.repeat(ctx, func() *terminal.Terminal { return terminal.On(os.Stdout) }, db.Audibly(ls.Database))
}

// every is the pause between two reads.
const every = 2 * time.Second

// repeat reads and prints the list until ctx ends. It redraws the list on a terminal. Otherwise, it prints the list again
// if a lock has changed. If a read fails, repeat logs the error and tries again. However, if the first read fails, repeat
// returns the error, because the user has probably made a mistake, such as naming the wrong table. It calls on for each
// list, because the size of a terminal changes.
func (ls *listing) repeat(ctx context.Context, on func() *terminal.Terminal, t table.Table) error {
	before, failing := "", false
	for {
		all, at, err := ls.look(ctx, t)
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil && before == "":
			return ls.Explain(err)
		case err != nil && !failing:
			terminal.Complain("can't read the locks, will try again: %v", ls.Explain(err))
		case err == nil && failing:
			terminal.Complain("the locks can be read again")
		}
		if failing = err != nil; !failing {
			now, p := marks(all), on()
			if p.Redraws() || now != before {
				if err := ls.show(p, at, all); err != nil {
					return err
				}
			}
			before = now
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(every):
		}
	}
}

// marks returns a text that changes if any of the entries has changed, or is new or gone.
func marks(all []model.Entry) string {
	var text strings.Builder
	text.WriteString("as of ") // not empty, even if there are no entries
	for _, e := range all {
		fmt.Fprintf(&text, "%q %q ", e.Name, e.Mark)
	}
	return text.String()
}

func (ls *listing) look(ctx context.Context, t table.Table) ([]model.Entry, time.Time, error) {
	ctx, cancel := context.WithTimeout(ctx, ls.Timeout)
	defer cancel()
	found, at, err := operator.List(ctx, t, ls.selected.prefix, ls.selected.idle())
	return ls.entries(found), at, err
}

// show writes the list at once, with the time of the read above it. On a terminal, it replaces the previous list, and
// leaves out the lines that don't fit, which are the last ones.
func (ls *listing) show(p *terminal.Terminal, at time.Time, all []model.Entry) error {
	lines := []string{ls.selected.none()}
	if len(all) > 0 {
		lines = ls.columns(model.LockColumns, model.WideColumns).Lines(p, model.Rows(all))
	}
	var page bytes.Buffer
	if p.Redraws() {
		page.WriteString(terminal.Clear)
		if most := p.Height - 3; len(lines) > most { // the first line, the last one, and one for the cursor
			lines = append(lines[:most], fmt.Sprintf("%d more lines", len(lines)-most))
		}
	}
	fmt.Fprintf(&page, "as of %s\n", at.UTC().Format(terminal.Stamp))
	for _, line := range lines {
		fmt.Fprintln(&page, line)
	}
	_, err := p.Write(page.Bytes())
	return err
}
