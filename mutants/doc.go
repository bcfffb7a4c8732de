// Package mutants holds deliberately broken variants of spindle, each of which a test must catch: they are the
// evidence that the tests are able to fail. The invariants of the elector's simulation catch those of
// list_test.go, those of the simulation of groups the first of group_list_test.go; the tests that need no emulator
// catch those of short_list_test.go and the others of group_list_test.go. All are built at once, and each runs in a
// process of its own (build_test.go). Run them, in about a minute and a half, with
//
//	go test -tags mutants -v ./mutants
package mutants
