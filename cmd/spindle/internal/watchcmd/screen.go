package watchcmd

import (
	"context"
	"time"

	"github.com/spindle-lock/spindle/cmd/spindle/internal/connect"
	"github.com/spindle-lock/spindle/cmd/spindle/internal/describe"
	"github.com/spindle-lock/spindle/cmd/spindle/internal/operate"
	"github.com/spindle-lock/spindle/cmd/spindle/internal/terminal"
	"github.com/spindle-lock/spindle/cmd/spindle/internal/watch"
	"github.com/spindle-lock/spindle/internal/operator"
	"github.com/spindle-lock/spindle/internal/table"
)

// longestRead limits one read for the screen. The limit can be long, because the screen shows how long the read takes.
const longestRead = 10 * time.Second

// draw shows the locks on the terminal until the user leaves.
func (w *watching) draw(ctx context.Context, db *connect.Connection) error {
	on := db.Locks()
	s := &screen{watching: w, on: on}
	t := &watch.Table{
		Title: "spindle watch  " + w.what() + w.Table + " in " + w.Path, None: "There are no locks in the table.",
		Read: s.read, Fatal: mistaken, Every: w.every, Limit: min(w.Timeout, longestRead),
		Actions: []watch.Action{operate.HandoverAction(w.Database, db), operate.ReleaseAction(w.Database, on)},
	}
	if w.name == "" {
		t.Released = s.released
	}
	unfinished, err := watch.Run(ctx, t)
	if unfinished != "" {
		terminal.Complain("%s", unfinished)
	}
	return err
}

// what returns the part of the title that says which locks of the table are shown.
func (w *watching) what() string {
	if text := w.name + w.prefix; text != "" {
		return terminal.Show(text) + " of "
	}
	return ""
}

// mistaken reports whether an error shows that the request is wrong. Other errors may be temporary.
func mistaken(err error) bool {
	return table.FaultOf(err).Kind != table.Outage
}

// screen reads the table for the screen. Only one goroutine calls read.
type screen struct {
	*watching
	on   table.Table
	told story
}

// read leaves out released locks, so that it is cheap even if there are many of them.
func (s *screen) read(ctx context.Context) (watch.Snapshot, error) {
	l := look{busy: s.name == ""}
	began := time.Now()
	if s.name != "" {
		one, err := operator.ListOne(ctx, s.on, s.name)
		if err != nil {
			return watch.Snapshot{}, s.Explain(err)
		}
		l.locks, l.at = []operator.Listing{one}, one.At
	} else {
		found, at, err := operator.List(ctx, s.on, s.prefix, false)
		if err != nil {
			return watch.Snapshot{}, s.Explain(err)
		}
		l.locks, l.groups = describe.Gather(append(found, s.ended(ctx, found)...), s.prefix)
		l.at = at
	}
	shot := watch.Snapshot{Rows: s.rows(l), At: l.at, Read: began.Add(time.Since(began) / 2)}
	first := s.told.locks == nil
	for _, c := range s.told.next(l) {
		if !first { // locks that the first read finds are not changes
			shot.Changes = append(shot.Changes, watch.Change{At: c.At, Label: terminal.Show(c.Name), State: c.State, Text: c.Text})
		}
	}
	return shot, nil
}

// mostEnded is the largest number of locks missing since the last read that are read one by one.
const mostEnded = 10

// ended returns the locks that have been released since the last read. It reads the missing locks one by one to see
// whether they were released or deleted. If there are too many of them, or if a read fails, the screen says "released,
// or its row was pruned or deleted".
func (s *screen) ended(ctx context.Context, found []operator.Listing) (all []operator.Listing) {
	missing := s.told.missing(found)
	if len(missing) > mostEnded {
		return nil
	}
	for _, name := range missing {
		if l, err := operator.ListOne(ctx, s.on, name); err == nil && l.State() == operator.Released {
			all = append(all, l)
		}
	}
	return all
}

func (s *screen) released(ctx context.Context) (watch.Released, error) {
	found, at, err := operator.List(ctx, s.on, s.prefix, true)
	if err != nil {
		return watch.Released{}, err
	}
	locks, _ := describe.Gather(found, s.prefix)
	r := watch.Released{At: at}
	for _, l := range locks {
		if l.State() == operator.Released && len(l.Waiters) == 0 {
			r.Rows = append(r.Rows, lockRow(l))
		}
	}
	return r, nil
}

// rows returns the rows for the locks and groups. If only one group is shown, its members have rows of their own.
func (s *screen) rows(l look) (rows []watch.Row) {
	for _, lock := range l.locks {
		rows = append(rows, lockRow(lock))
	}
	for _, g := range l.groups {
		rows = append(rows, groupRow(g))
		if s.group == "" {
			continue
		}
		for _, m := range g.Members {
			if m.State() != operator.Released {
				rows = append(rows, lockRow(m))
			}
		}
	}
	return rows
}

func lockRow(l operator.Listing) watch.Row {
	r := watch.Row{Name: l.Name, Label: terminal.Show(l.Name), State: l.State(), Holder: terminal.Show(l.Holder()), Note: describe.Waiting(l), Token: l.Token}
	if l.Token != 0 {
		r.Age = l.At.Sub(l.Since())
		r.Since = terminal.Short(r.Age)
	}
	if l.State() == operator.Released {
		r.Token = 0 // it belongs to no term
	}
	if l.LeaseRecord != nil {
		r.Value, r.Lease = terminal.Show(l.LeaseRecord.Value), l.LeaseRecord.Lease
		r.Left = r.Lease - l.At.Sub(l.Heartbeat)
		r.Ends = terminal.Short(max(r.Left, -r.Left))
	}
	r.Detail = func(int) string { return describe.Sentence(l) + describe.WaiterLines(l) }
	return r
}

func groupRow(g *describe.Group) watch.Row {
	e := g.Entry()
	r := watch.Row{Name: g.Prefix, Label: terminal.Show(g.Prefix), State: g.State(), Note: g.Sum(), Group: true}
	if since := e.Cells[3]; since != "-" {
		r.Since = since
	}
	r.Detail = func(width int) string {
		return terminal.Show(g.Prefix) + " is " + string(g.State()) + ": " + g.Sum() + "\n\n" + g.Columns(width)
	}
	return r
}
