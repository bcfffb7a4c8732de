package watch

import (
	"strings"

	"github.com/spindle-lock/spindle/cmd/spindle/internal/terminal"
)

const keysHelp = `Trouble is at the top: expired, orphaned, unreadable and unconfirmed locks, groups of which some partitions have no holder, holders that have less than a third of their lease left. Then come leaving ones, those that somebody waits for, and those that are held. Released ones are hidden.

All times are as of the last read, which the second line tells. They stand still while Spanner does not answer.

up, down, j, k    choose a lock
PgUp, PgDn        a screen up or down
g, G, Home, End   to the first, to the last
Enter             all that is known of the lock, as spindle status says it
/                 show only what has a text in its name, state, holder or value
Esc               back; without a filter again; wait no longer
s                 sort by trouble, name, age or holder
a                 show released locks, or hide them
c                 what has changed since watch began
`

const moreHelp = `?                 this
Ctrl-Z            suspend; fg goes on
q, Ctrl-C         leave

The chosen lock stays chosen wherever it goes. At the top, the cursor stays at the top.`

func (m Model) help() string {
	var b strings.Builder
	b.WriteString(keysHelp)
	for _, a := range m.Actions {
		b.WriteString(terminal.Pad(a.Key, 18) + a.Name + ": asks before it acts, as spindle " + a.Name + " does\n")
	}
	return b.String() + moreHelp
}
