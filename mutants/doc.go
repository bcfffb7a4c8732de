// Package mutants holds deliberately broken variants of spindle, each of which the simulation must catch:
// they are the evidence that its invariants are able to fail. Run them, in about two minutes, with
//
//	go test -tags mutants -v ./mutants
package mutants
