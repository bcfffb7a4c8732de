// Package mutants holds deliberately broken variants of spindle, each of which a test must catch: they show that the tests
// can fail. The invariants of the elector's simulation catch the mutants of list_test.go, and the invariants of the groups'
// simulation catch the first of group_list_test.go. The tests that need no emulator catch the mutants of the other lists,
// which are named after what they break. All are built at once, and each runs in its own process (build_test.go). Run them,
// in two minutes on two cores, with
//
//	go test -tags mutants -v ./verify/mutants
//
// The authors of these mutants also wrote the tests. So sample_test.go draws mutants that nobody chose, by a seed, from all
// changes that generate_test.go can make:
//
//	go test -tags mutants -v -run Sample ./verify/mutants -sample 100 -mutation-seed 1 -timeout 0
package mutants
