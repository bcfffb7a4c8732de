// Package versions tests this version together with the previous one on one lock, as during a rolling update. The tests
// need this repository's history: see docs/stability.md.
package versions
