// Package elect takes the steps of the protocol over time. A candidate looks at locks and claims them, and a term keeps
// them with heartbeats until it ends or is lost. The same code works for one lock or several, because each step is a
// single commit for all of them.
//
//   - clock.go: time, which tests replace; the table's Store is the only other such seam
//   - observer.go: how a candidate looks at locks; history.go: when a lock is free
//   - claim.go, free.go: how a candidate wins a lock; step.go: one look, and the claim that follows from it
//   - cooldown.go, past.go, preference.go: when a candidate leaves a lock to other candidates
//   - term.go: the phases of a term; keep.go: its heartbeats; announce.go, release.go: how it ends
package elect
