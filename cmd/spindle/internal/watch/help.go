package watch

import (
	"strings"

	"github.com/spindle-lock/spindle/cmd/spindle/internal/terminal"
)

const keysHelp = `Locks in trouble are at the top: first expired, orphaned, unreadable and unconfirmed locks, then groups with partitions that have no holder, then holders with less than a third of their lease left. Below them are leaving locks, locks that processes wait for, and held locks. Released locks are hidden.

All times are as of the last read, which the second line shows. They don't advance while Spanner does not answer.

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

The chosen lock stays chosen when its row moves, but a cursor at the top stays at the top.`

func (m Model) help() string {
	var b strings.Builder
	b.WriteString(keysHelp)
	for _, a := range m.Actions {
		b.WriteString(terminal.Pad(a.Key, 18) + a.Name + ", after confirmation, as spindle " + a.Name + " does\n")
	}
	return b.String() + moreHelp
}
