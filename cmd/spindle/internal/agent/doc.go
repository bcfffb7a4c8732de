// Package agent holds locks for the programs of one machine or one pod. Programs ask for locks over a Unix socket, in
// plain HTTP, and each response is one hold. docs/agent.md describes the protocol and explains why it is safe.
//
//   - command.go, stepdown.go, logger.go: the commands agent and agent stepdown, and what they print
//   - machine.go: the state machine of a hold, which decides when a lock may be released
//   - hold.go: carries out what the state machine decides
//   - account.go: what requests can see of a hold
//   - lines.go: the lines that a program is sent
//   - process.go: the process that sent a request
//   - clocks.go: the times until which a program may act
//   - barred.go: lost locks that no other program may get yet
//   - kinds.go: mutexes, sets, semaphores, elections and work that is done once
//   - agent.go: the holds of an agent
//   - program.go: how much one program may have
//   - turns.go: how programs take turns
//   - conn.go: connections, whose requests begin in turn
//   - http.go, request.go, problem.go: the paths, their parameters, and error responses
//   - metrics.go: metrics for Prometheus
package agent
