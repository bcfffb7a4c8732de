package main

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestAMeasurementThatWasLeftOutIsAnEmptyCell(t *testing.T) {
	c := comparison{results: []result{{system: system{name: "a"}, closed: []float64{0.01, 0.25, 0.5}, short: contest{turns: []float64{7, 8, 9}}}}, conditions: "Conditions."}
	assert.Contains(t, c.markdown(), "\n| a | | 0.250 / 0.500 | | |\n")
	assert.Contains(t, c.markdown(), "\n| a | | 7 / 9 | | | |\n")
	c.results[0].short.turns = nil
	assert.Equal(t, 1, strings.Count(c.markdown(), "\n| a |"), "nothing of a mutex was measured")
}
