// Package chaos tests real processes: candidates, programs of agents, and members of groups. They are killed, stopped and
// cut off from a real emulator, term after term. Checkers look for two holders at a time, for writes that wrongly passed
// the fence, for a register that is not linearizable, and for register writes that were lost or applied twice.
//
//	go test -tags chaos -v ./verify/chaos                                              less than a minute; SPINDLE_ALL_CASES=1: longer
//	go test -tags chaos -race -v ./verify/chaos -run TestChaos -chaos.for 30m -timeout 40m
//	go test -tags chaos -race -v ./verify/chaos -run TestGroupChaos -chaos.seed 7      repeats the attacks of that run
//
// The files are:
//
//   - chaos_test.go: the run and its output
//   - agent_test.go: the run for programs of agents, the code in their processes, and their agents
//   - group_test.go: the run for groups, and the code in their processes
//   - candidate_test.go: the code in a candidate's process
//   - process_test.go: processes, and the network of each
//   - nemesis_test.go: the faults
//   - damage_test.go: partitions that no member can claim
//   - alone_test.go: single faults of a group without any others
//   - history_test.go, register_test.go: the recorded history and the checkers
//   - paused_test.go: shows that the checkers find the anomalies that the fence prevents
package chaos
