//go:build race

package fleet

const raced = true // the race detector makes everything five times slower
