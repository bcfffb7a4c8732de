//go:build race

package fleet

const raced = true // by the race detector, under which all takes five times as long
