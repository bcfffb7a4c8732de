// Package simulation runs fleets of real Locks in virtual time, on a table in memory. It injects faults into requests,
// replies, processes, clocks and rows. It contains only tests.
//
//   - simulation_test.go runs and replays simulations.
//   - plan_test.go derives a fleet and its faults from a seed.
//   - world_test.go performs the run, and injects faults through a driver.
//   - process_test.go implements a process, its clock and its leader function.
//   - link_test.go implements the connection between a process and the table.
//   - check_test.go checks the invariants.
//   - group_test.go simulates groups instead of locks; group_check_test.go checks their invariants.
//   - handover_test.go adds handovers, their faults, and their invariants.
//   - notify_test.go lets the candidates notify each other, over a network with faults.
//   - sick_test.go runs fleets in which one step of one machine fails permanently.
//   - dice_test.go provides randomness.
//
// The command's agents have a simulation of their own, in cmd/spindle/internal/agent.
//
// The mutants in ../mutants show that the simulation can find bugs.
package simulation
