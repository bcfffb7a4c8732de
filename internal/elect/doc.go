// Package elect decides when to take each step of the protocol. A Candidate polls locks and claims them. A Term keeps
// them until it is released or lost, and a Keeper sends its heartbeats. The same code works for one lock or several,
// because each step is a single commit for all of them.
//
//   - clock.go: the time; tests replace it and the table's Store, but nothing else
//   - observer.go: reading the state of locks; history.go: deciding when a lock is free
//   - claim.go, free.go: winning a lock; step.go: one poll, and the claim that may follow it
//   - cooldown.go, past.go, preference.go: when a candidate leaves a lock to other candidates
//   - term.go: the phases of a term; keep.go: its heartbeats; announce.go, release.go: its end
package elect
