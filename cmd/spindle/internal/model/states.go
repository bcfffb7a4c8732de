package model

import (
	"slices"

	"github.com/spindle-lock/spindle/cmd/spindle/internal/terminal"
	"github.com/spindle-lock/spindle/internal/operator"
)

// Styles maps each state to the style that it is shown in.
var Styles = map[operator.State]terminal.Style{
	operator.Held: terminal.Green, operator.Leaving: terminal.Amber, operator.Expired: terminal.Red, operator.Released: terminal.Faint, operator.Unconfirmed: terminal.Amber,
	operator.Orphaned: terminal.Red, operator.Unreadable: terminal.Red, operator.Free: terminal.Faint, operator.Paused: terminal.Amber, Partial: terminal.Amber,
}

// All are the values of --state, with the worst state first.
var All = []operator.State{operator.Unreadable, operator.Orphaned, operator.Expired, Partial, operator.Unconfirmed, operator.Leaving, operator.Paused, operator.Held, operator.Released, operator.Free}

// Concern returns a state's rank, which is 0 for the worst state.
func Concern(s operator.State) int { return slices.Index(All, s) }

// Partial is the state of a group if some of its partitions have no owner.
const Partial operator.State = "partial"

// Help explains the states of locks.
const Help = `The states of locks, by Spanner's clock:
  held         the holder's lease has not expired
  leaving      held, but the holder has announced that it will give up the lock
  expired      the holder's lease has expired; the next candidate that polls the
               lock can claim it
  released     the last holder released the lock
  paused       a partition that nobody holds, because the program of its member
               has paused it
  unconfirmed  a candidate has claimed the lock but does not hold it yet
  orphaned     the lock row was deleted, but the lock still has a lease row
  unreadable   the lease row does not contain a valid lease, or was written by a
               newer version of spindle, which this version can't read
  free         nobody holds the lock, and it has no lock row; the table contains
               only its last completed key, or candidates that wait for it`
