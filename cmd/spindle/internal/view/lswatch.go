package view

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spindle-lock/spindle/cmd/spindle/internal/model"
	"github.com/spindle-lock/spindle/cmd/spindle/internal/terminal"
	"github.com/spindle-lock/spindle/internal/operator"
	"github.com/spindle-lock/spindle/internal/table"
)

// follow returns the follower that shows the list. On a terminal, the follower redraws the list after each read.
// Otherwise, it prints the list again only if a lock has changed. It gets the terminal from screen after each read,
// because the size of a terminal can change.
func (ls *listing) follow(screen func() *terminal.Terminal) *follower {
	before := ""
	return &follower{Database: ls.Database, every: 2 * time.Second, patience: ls.Timeout + time.Second,
		read: func(ctx context.Context, t table.Table) ([]operator.Listing, time.Time, error) {
			return operator.List(ctx, t, ls.selected.prefix, ls.selected.idle())
		},
		show: func(found []operator.Listing, at time.Time) error {
			all := ls.entries(found)
			now, p := marks(all), screen()
			if !p.Redraws() && now == before {
				return nil
			}
			before = now
			return ls.show(p, at, all)
		}}
}

// marks returns a string that changes when an entry appears, changes or disappears. The string leaves out heartbeats
// and waiters, because they change all the time.
func marks(all []model.Entry) string {
	var text strings.Builder
	text.WriteString("as of ") // not empty, even if there are no entries
	for _, e := range all {
		fmt.Fprintf(&text, "%q %v %v %q %q %q %v %v %v ", e.Name, e.State, e.Token, e.Holder(), e.Last, e.Done.Key, e.Done.At.UnixMicro(), e.Unreadable, e.Undone)
	}
	return text.String()
}

// show writes the time of the read and then the list, in a single write. On a terminal, the list replaces the previous
// one. If the list is too long for the terminal, show leaves out its last lines and says how many it has left out.
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
