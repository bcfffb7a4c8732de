// Package simulation runs fleets of real Locks in virtual time, on a table in memory, and injects every fault that can
// happen around them. It has only tests.
//
//   - simulation_test.go: how it is run, and replayed
//   - plan_test.go: what a seed's fleet is like
//   - world_test.go: the run, and the faults that a driver injects
//   - process_test.go: a process, its clock and its leader function
//   - link_test.go: its way to the table
//   - check_test.go: the invariants
//   - group_test.go: groups instead of locks, and group_check_test.go: their invariants
//   - handover_test.go: handovers, what the driver does to them, and their invariants
//   - dice_test.go: chance
//   - stall_test.go: fails a run in which virtual time stands still
//
// The mutants in ../mutants show that it finds what it should.
package simulation
