// Package mutants contains mutants, which are deliberately broken variants of spindle. A test must catch each of them.
// This shows that the tests are able to fail.
//
// The invariants of the elector's simulation catch the mutants in list_test.go. The invariants of the group simulation
// catch the first mutants in group_list_test.go. All other mutants are caught by tests that do not need an emulator.
// Their files are named after the feature that they break. All mutants are built together, and each runs in its own
// process (build_test.go). This takes two minutes on two cores:
//
//	go test -tags mutants -v ./verify/mutants
//
// We chose these mutants ourselves, so they might avoid what our tests miss. For this reason, sample_test.go draws random
// mutants, based on a seed, from all changes that generate_test.go can make:
//
//	go test -tags mutants -v -run Sample ./verify/mutants -sample 100 -mutation-seed 1 -timeout 0
package mutants
