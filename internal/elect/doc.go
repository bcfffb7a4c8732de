// Package elect takes the steps of the protocol over time: a candidate looks at locks and claims them, a term keeps
// them with heartbeats until it is lost or ends. One lock or several make no difference, since every step is one commit
// for all of them.
//
//   - clock.go: time, the one seam beside the table
//   - observer.go: how a candidate looks at locks; history.go: when a lock is free
//   - claim.go, free.go: how a lock is won; step.go: a look and a claim, again and again
//   - cooldown.go, past.go, preference.go: when a candidate leaves a lock to others
//   - term.go: what a term is, and when it is over; keep.go: its heartbeats; announce.go, release.go: how it ends
package elect
