package cli

import (
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/spindle-lock/spindle/internal/table"
)

const (
	frame = 100 * time.Millisecond // between two pictures

	otherScreen = "\x1b[?1049h\x1b[?25l" // without a cursor
	backAgain   = "\x1b[?25h\x1b[?1049l"
	home        = "\x1b[H"
	restOfLine  = "\x1b[K"
	restBelow   = "\x1b[J"
)

// draw shows the leases as bars until ctx ends, and leaves the last picture on the terminal.
func (w *watching) draw(ctx context.Context, p *paper, looks <-chan look) error {
	var s story
	var now look
	var recent []change
	select {
	case now = <-looks:
	case <-ctx.Done():
		return nil
	}
	if now.err != nil {
		return w.explain(now.err)
	}
	s.next(now) // what is there at first is no change
	fmt.Fprint(p, otherScreen)
	tick := time.NewTicker(frame)
	defer tick.Stop()
	for {
		p.measure(os.Stdout)
		lines := w.picture(p, now, recent, time.Now())
		fmt.Fprint(p, home+strings.Join(lines, restOfLine+"\n")+restOfLine+restBelow)
		select {
		case <-ctx.Done():
			fmt.Fprint(p, backAgain+strings.Join(lines, "\n")+"\n")
			return nil
		case l := <-looks:
			if l.err != nil {
				now.err = l.err
				continue
			}
			now = l
			recent = append(recent, s.next(l)...)
			recent = recent[max(len(recent)-100, 0):]
		case <-tick.C:
		}
	}
}

// picture is the whole screen at a local time: a heading, the locks, and the last changes.
func (w *watching) picture(p *paper, l look, recent []change, local time.Time) []string {
	at := l.at.Add(local.Sub(l.local)) // now, by Spanner's clock
	heading := fmt.Sprintf("%s  %s", at.UTC().Format("15:04:05Z"), w.table+" in "+w.db)
	lines := []string{p.paint(bold, fit(heading, p.width))}
	if l.err != nil {
		text := escape(strings.ReplaceAll(l.err.Error(), "\n", " "))
		lines = append(lines, p.paint(red, fit(fmt.Sprintf("no answer for %s: %s", short(local.Sub(l.local)), text), p.width)))
	} else {
		lines = append(lines, "")
	}

	below := min(max(len(recent), 1), 8) + 2
	room := max(p.height-len(lines)-below-2, 1)
	all := rowsOf(p, l, at)
	shown := all[:min(len(all), room)]
	lines = append(lines, bars(p, shown)...)
	if more := len(all) - len(shown); more > 0 {
		lines = append(lines, p.paint(faint, fmt.Sprintf("and %d more: see spindle ls", more)))
	}
	if len(all) == 0 {
		lines = append(lines, p.paint(faint, "There are no locks in the table."))
	}

	lines = append(lines, "")
	if len(recent) == 0 {
		return append(lines, p.paint(faint, "Changes are shown here. Ctrl+C ends this."))
	}
	for _, c := range recent[max(len(recent)-8, 0):] {
		head := c.At.UTC().Format("15:04:05.0") + "  " + show(c.Name) + "  "
		lines = append(lines, p.paint(faint, fit(head, p.width))+p.paint(styles[c.State], fit(c.Text, max(p.width-length(head), 0))))
	}
	return lines
}

const barWidth = 18

// A row is a lock on the screen, or the heading of a group, which has only a name.
type row struct{ name, holder, token, lease string }

// rowsOf are the locks, and then each group with its members.
func rowsOf(p *paper, l look, at time.Time) (all []row) {
	of := func(name string, l table.Listing, more string) row {
		token := "-"
		if l.Token != 0 {
			token = l.Token.String()
		}
		return row{name, joined("  ", show(l.Holder()), more), token, lease(p, l, at)}
	}
	for _, lock := range l.locks {
		all = append(all, of(show(lock.Name), lock, waiting(lock)))
	}
	for _, g := range l.groups {
		all = append(all, row{name: show(g.prefix) + " is " + string(g.state()) + ": " + g.sum()})
		has := g.has()
		for _, m := range g.members {
			if m.State() != table.Released {
				all = append(all, of("  "+slotOf(m.Name), m, fmt.Sprintf("has %d", len(has[m.Name]))))
			}
		}
	}
	return all
}

// bars are the rows, one on each line.
func bars(p *paper, rows []row) []string {
	if len(rows) == 0 {
		return nil
	}
	name, holder := len("LOCK"), len("HOLDER")
	for _, r := range rows {
		if r.lease != "" {
			name, holder = max(name, length(r.name)), max(holder, length(r.holder))
		}
	}
	rest := p.width - 2 - 2 - tokenWidth - 2 - barWidth - 1 - 6
	name = min(name, max(rest-holder, rest*3/5))
	holder = min(holder, rest-name)
	line := func(r row) string {
		return pad(fit(r.name, name), name) + "  " + pad(fit(r.holder, holder), holder) + "  " + pad(r.token, tokenWidth) + "  " + r.lease
	}
	lines := []string{p.paint(faint, line(row{"LOCK", "HOLDER", "TOKEN", "LEASE"}))}
	for _, r := range rows {
		if r.lease == "" {
			lines = append(lines, p.paint(bold, fit(r.name, p.width)))
		} else {
			lines = append(lines, line(r))
		}
	}
	return lines
}

// lease is the bar of a lock that is held, and the state of any other.
func lease(p *paper, l table.Listing, at time.Time) string {
	state := l.State()
	if !l.IsHeld() && state != table.Expired {
		return p.paint(styles[state], string(state))
	}
	left := l.Promise.Lease - at.Sub(l.Heartbeat)
	if left <= 0 {
		return p.paint(red, "expired "+short(-left)+" ago")
	}
	share := min(float64(left)/float64(l.Promise.Lease), 1)
	colour := green
	if share < 0.6 { // a heartbeat is late
		colour = amber
	}
	if share < 0.3 {
		colour = red
	}
	if state == table.Leaving {
		return p.paint(amber, bar(share, barWidth)) + " leaving"
	}
	return p.paint(colour, bar(share, barWidth)) + " " + short(left)
}

// bar fills a share of the width, by eighths of a character.
func bar(share float64, width int) string {
	eighths := int(share*float64(width)*8 + 0.5)
	text := strings.Repeat("█", eighths/8)
	if rest := eighths % 8; rest > 0 {
		text += string([]rune(" ▏▎▍▌▋▊▉")[rest])
	}
	return text + strings.Repeat("·", width-length(text))
}
