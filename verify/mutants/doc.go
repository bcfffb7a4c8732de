// Package mutants holds deliberately broken variants of spindle, each of which a test must catch: they are the
// evidence that the tests are able to fail. The invariants of the elector's simulation catch those of
// list_test.go, those of the simulation of groups the first of group_list_test.go; the tests that need no emulator
// catch those of the other lists, which are called by what they break. All are built at once, and each runs in a
// process of its own (build_test.go). Run them, in two minutes on two cores, with
//
//	go test -tags mutants -v ./verify/mutants
//
// Those who chose these mutants wrote the tests. A sample of mutants that nobody chose (sample_test.go) is drawn by a
// seed from all changes that generate_test.go can make:
//
//	go test -tags mutants -v -run Sample ./verify/mutants -sample 100 -mutation-seed 1 -timeout 0
package mutants
