// Package agent holds locks for the programs of one machine, or of one pod, which ask for them over a Unix socket in plain
// HTTP. One response is one hold: docs/agent.md has the protocol, and says why it is safe.
//
//   - machine.go: the rules of one hold, above all when its lock may be released
//   - hold.go: what a hold does by these rules; lines.go: what it says to its program
//   - clocks.go: until when a program may act; barred.go: when the next program may
//   - kinds.go: locks, sets, semaphores, elections and work that is done once
//   - agent.go: all holds; http.go: the paths; request.go: their parameters; problem.go: what is wrong with a request
//   - metrics.go: for Prometheus
package agent
