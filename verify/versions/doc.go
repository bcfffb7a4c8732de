// Package versions tests what this version and the one before do on one lock, as during a rolling update. The tests
// need this repository's history: see docs/stability.md.
package versions
