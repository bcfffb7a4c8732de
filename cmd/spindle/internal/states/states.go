// Package states has the states of locks and groups: what they mean, which is worse, and how they look.
package states

import (
	"slices"

	"github.com/spindle-lock/spindle/cmd/spindle/internal/terminal"
	"github.com/spindle-lock/spindle/internal/table"
)

// Styles are how states look.
var Styles = map[table.State]terminal.Style{
	table.Held: terminal.Green, table.Leaving: terminal.Amber, table.Expired: terminal.Red, table.Released: terminal.Faint, table.Unconfirmed: terminal.Amber,
	table.Orphaned: terminal.Red, table.Unreadable: terminal.Red, table.Free: terminal.Faint, Partial: terminal.Amber,
}

// All are the states that --state takes, the worst first.
var All = []table.State{table.Unreadable, table.Orphaned, table.Expired, Partial, table.Unconfirmed, table.Leaving, table.Held, table.Released, table.Free}

// Concern orders states: the worst is 0.
func Concern(s table.State) int { return slices.Index(All, s) }

// Partial is the state of a group with partitions that no member has.
const Partial table.State = "partial"

// Help explains the states of locks.
const Help = `The states, by Spanner's clock:
  held         its holder was heard from within its lease
  leaving      held, and its holder has announced that it will give the lock up
  expired      its holder fell silent: the next candidate that looks takes it
  released     its last holder gave it back
  unconfirmed  it is claimed, but the claimant may not act yet
  orphaned     somebody deleted its row, but not the lease row
  unreadable   its lease row does not say how long the holder may act, or was
               written by a newer version, so that only newer programs know
  free         it has no row: only what was done last under it is known, or who
               waits for it`
