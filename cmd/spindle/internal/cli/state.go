package cli

import (
	"slices"

	"github.com/spindle-lock/spindle/cmd/spindle/internal/watch"
	"github.com/spindle-lock/spindle/internal/table"
)

var styles = map[table.State]style{
	table.Held: green, table.Leaving: amber, table.Expired: red, table.Released: faint, table.Unconfirmed: amber,
	table.Orphaned: red, table.Unreadable: red, table.Free: faint,
}

// states are those that a list can be chosen by, the worst first.
var states = []table.State{table.Unreadable, table.Orphaned, table.Expired, partial, table.Unconfirmed, table.Leaving, table.Held, table.Released, table.Free}

func concern(s table.State) int { return slices.Index(states, s) }

// partial is the state of a group some of whose partitions nobody has.
const partial = watch.Partial
