package watch

import (
	"strings"

	"github.com/spindle-lock/spindle/cmd/spindle/internal/terminal"
)

const keysHelp = `Locks in trouble are at the top. First come expired, orphaned, unreadable and unconfirmed locks, then groups with partitions that have no holder, and then locks with less than a third of the lease left. Below them are locks whose holders are leaving, locks that processes are waiting for, and all other held locks. Released locks are hidden.

All times are as of the last read. The second line shows when that was. The times don't advance while Spanner is not responding.

up, down, j, k    choose a lock
PgUp, PgDn        move one screen up or down
g, G, Home, End   move to the first or the last lock
Enter             show the details of the lock, as spindle status does
/                 show only locks whose name, state, holder or value contains a text
Esc               go back, clear the filter, or stop waiting for an action
s                 sort by trouble, name, age or holder
a                 show or hide released locks
c                 show what has changed since watch was started
`

const moreHelp = `?                 show this help
Ctrl-Z            suspend; the shell's fg command resumes
q, Ctrl-C         quit

When the chosen lock moves to another row, the cursor follows it. A cursor on the first row stays there.`

func (m Model) help() string {
	var b strings.Builder
	b.WriteString(keysHelp)
	for _, a := range m.Actions {
		b.WriteString(terminal.Pad(a.Key, 18) + a.Name + ", after confirmation, as spindle " + a.Name + " does\n")
	}
	return b.String() + moreHelp
}
