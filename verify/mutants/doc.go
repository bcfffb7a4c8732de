// Package mutants contains mutants, which are deliberately broken variants of spindle. For each mutant, at least one
// test must fail. This shows that the tests can find bugs.
//
// The invariants of the elector's simulation catch the mutants in list_test.go. The invariants of the group simulation
// catch the mutants in groupMutants. All other mutants are caught by tests that do not need an emulator. Most of the
// files that list them are named after the feature that the mutants break. All mutants are built together, and each
// runs in its own process (build_test.go). This takes two minutes on two cores:
//
//	go test -tags mutants -v ./verify/mutants
//
// We chose these mutants ourselves, so they might avoid what our tests miss. For this reason, sample_test.go also tries
// a random sample, determined by a seed, of all the changes that generate_test.go can make:
//
//	go test -tags mutants -v -run Sample ./verify/mutants -sample 100 -mutation-seed 1 -timeout 0
package mutants
