package cli

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"cloud.google.com/go/spanner"
	"google.golang.org/grpc/codes"

	"github.com/spindle-lock/spindle/cmd/spindle/internal/watch"
	"github.com/spindle-lock/spindle/internal/table"
)

// longestRead is how long one read for the screen may take. Somebody looks at it and sees that it takes long.
const longestRead = 10 * time.Second

// draw shows the locks on the terminal until the user leaves.
func (w *watching) draw(ctx context.Context, db *connection) error {
	on := db.locks()
	s := &screen{watching: w, on: on}
	t := &watch.Table{
		Title: "spindle watch  " + w.what() + w.table + " in " + w.db, None: "There are no locks in the table.",
		Read: s.read, Fatal: mistaken, Every: w.every, Limit: min(w.timeout, longestRead),
		Actions: []watch.Action{handoverAction(w.common, db), releaseAction(w.common, on)},
	}
	if w.name == "" {
		t.Released = s.released
	}
	unfinished, err := watch.Run(ctx, t)
	if unfinished != "" {
		complain("%s", unfinished)
	}
	return err
}

// what names what is watched of the table.
func (w *watching) what() string {
	if text := w.name + w.prefix; text != "" {
		return show(text) + " of "
	}
	return ""
}

// mistaken reports whether an error says that something is wrong with what was asked for. Others may pass.
func mistaken(err error) bool {
	code := spanner.ErrCode(err)
	return code != codes.Unavailable && code != codes.DeadlineExceeded && !errors.Is(err, context.DeadlineExceeded)
}

// screen reads the table for the screen. Only one goroutine calls read.
type screen struct {
	*watching
	on   table.Table
	told story
}

// read reads what is not released, so that it costs little beside many locks that are.
func (s *screen) read(ctx context.Context) (watch.Snapshot, error) {
	l := look{busy: s.name == ""}
	began := time.Now()
	if s.name != "" {
		one, err := s.on.ListOne(ctx, s.name)
		if err != nil {
			return watch.Snapshot{}, s.explain(err)
		}
		l.locks, l.at = []table.Listing{one}, one.At
	} else {
		found, at, err := s.on.List(ctx, s.prefix, false)
		if err != nil {
			return watch.Snapshot{}, s.explain(err)
		}
		l.locks, l.groups = gather(append(found, s.ended(ctx, found)...), s.prefix)
		l.at = at
	}
	shot := watch.Snapshot{Rows: s.rows(l), At: l.at, Read: began.Add(time.Since(began) / 2)}
	first := s.told.locks == nil
	for _, c := range s.told.next(l) {
		if !first { // what is there at first is no change
			shot.Changes = append(shot.Changes, watch.Change{At: c.At, Label: show(c.Name), State: c.State, Text: c.Text})
		}
	}
	return shot, nil
}

// mostEnded is how many locks are looked at one by one that were there at the last read and are not at this one.
const mostEnded = 10

// ended are locks that were listed and are not any more: they were released, or deleted. If that is not found out, the
// change says that it is not known.
func (s *screen) ended(ctx context.Context, found []table.Listing) (all []table.Listing) {
	missing := s.told.missing(found)
	if len(missing) > mostEnded {
		return nil
	}
	for _, name := range missing {
		if l, err := s.on.ListOne(ctx, name); err == nil && l.State() == table.Released {
			all = append(all, l)
		}
	}
	return all
}

func (s *screen) released(ctx context.Context) (watch.Released, error) {
	found, at, err := s.on.List(ctx, s.prefix, true)
	if err != nil {
		return watch.Released{}, err
	}
	locks, _ := gather(found, s.prefix)
	r := watch.Released{At: at}
	for _, l := range locks {
		if l.State() == table.Released && len(l.Waiters) == 0 {
			r.Rows = append(r.Rows, lockRow(l))
		}
	}
	return r, nil
}

// rows are the locks and groups. The members of a group are rows of their own if only that group is watched.
func (s *screen) rows(l look) (rows []watch.Row) {
	for _, lock := range l.locks {
		rows = append(rows, lockRow(lock))
	}
	for _, g := range l.groups {
		rows = append(rows, groupRow(g))
		if s.group == "" {
			continue
		}
		for _, m := range g.members {
			if m.State() != table.Released {
				rows = append(rows, lockRow(m))
			}
		}
	}
	return rows
}

func lockRow(l table.Listing) watch.Row {
	r := watch.Row{Name: l.Name, Label: show(l.Name), State: l.State(), Holder: show(l.Holder()), Note: waiting(l), Token: l.Token}
	if l.Token != 0 {
		r.Age = l.At.Sub(l.Since())
		r.Since = short(r.Age)
	}
	if l.State() == table.Released {
		r.Token = 0 // it is no term's
	}
	if l.LeaseRecord != nil {
		r.Value, r.Lease = show(l.LeaseRecord.Value), l.LeaseRecord.Lease
		r.Left = r.Lease - l.At.Sub(l.Heartbeat)
		r.Ends = short(max(r.Left, -r.Left))
	}
	r.Detail = func(int) string { return sentence(l) + waiterLines(l) }
	return r
}

func groupRow(g *group) watch.Row {
	e := g.entry()
	r := watch.Row{Name: g.prefix, Label: show(g.prefix), State: g.state(), Note: g.sum(), Group: true}
	if since := e.cells[3]; since != "-" {
		r.Since = since
	}
	r.Detail = func(width int) string {
		return show(g.prefix) + " is " + string(g.state()) + ": " + g.sum() + "\n\n" + g.columns(width)
	}
	return r
}

// columns are the members and partitions of a group that are in use, as ls --group lists them.
func (g *group) columns(width int) string {
	in := &group{prefix: g.prefix, partitions: g.partitions,
		members: slices.DeleteFunc(slices.Clone(g.members), func(l table.Listing) bool { return l.State() == table.Released })}
	page := &terminal{width: width}
	lines := (&columns{names: memberColumns}).lines(page, rows(in.memberEntries()))
	lines = append(append(lines, ""), (&columns{names: partitionColumns}).lines(page, rows(in.partitionEntries()))...)
	return strings.Join(lines, "\n")
}
