// Package elect takes the steps of the protocol over time: a candidate looks at locks and claims them, a
// term keeps them with heartbeats until it is lost or ends. A lock or several are the same to it, since
// every step is one commit for all of them.
//
//   - clock.go: time, the one seam beside the table
//   - candidate.go: how a candidate looks at locks; history.go: when a lock is free
//   - claim.go: how it is won; step.go: a look and a claim, again and again
//   - term.go: how it is kept, and when that is over
package elect
