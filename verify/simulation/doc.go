// Package simulation runs fleets of real Locks in virtual time, on a table in memory, and injects all the faults that can
// affect them. It contains only tests.
//
//   - simulation_test.go runs and replays simulations.
//   - plan_test.go derives a fleet and its faults from a seed.
//   - world_test.go performs the run, and injects faults through a driver.
//   - process_test.go implements a process, its clock and its leader function.
//   - link_test.go implements the connection between a process and the table.
//   - check_test.go has the invariants.
//   - group_test.go simulates groups instead of locks; group_check_test.go has their invariants.
//   - handover_test.go has handovers, their faults, and their invariants.
//   - notify_test.go lets the candidates notify each other, over a network with faults.
//   - dice_test.go provides randomness.
//
// The agents of the command have a simulation of their own, in cmd/spindle/internal/agent.
//
// The mutants in ../mutants show that the simulation can find bugs.
package simulation
