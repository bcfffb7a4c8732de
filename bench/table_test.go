package main

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

func TestAMeasurementThatWasLeftOutIsAnEmptyCell(t *testing.T) {
	c := comparison{results: []result{{system: system{name: "a"}, closed: []float64{0.01, 0.25, 0.5}, short: contest{turns: []float64{7, 8, 9}}}}, conditions: "Conditions."}
	assert.Contains(t, c.markdown(), "\n| a | | 0.250 / 0.500 | | |\n")
	assert.Contains(t, c.markdown(), "\n| a | | 7 / 9 | | | |\n")
	c.results[0].short.turns = nil
	assert.Equal(t, 1, strings.Count(c.markdown(), "\n| a |"), "nothing of a mutex was measured")
}

// Each cell shows what its column says: people compare systems by these numbers.
func TestEachColumnShowsItsMeasure(t *testing.T) {
	us := func(n ...time.Duration) (all []time.Duration) {
		for _, n := range n {
			all = append(all, n*time.Microsecond)
		}
		return all
	}
	c := comparison{results: []result{{
		system: system{name: "a"}, killed: []float64{0.1, 0.2, 0.3}, closed: []float64{0.4, 0.5, 0.6}, rest: atRest{holder: []float64{1.3}, waiter: []float64{2.5}},
		cycles: us(700, 1940, 3440), short: contest{turns: []float64{3, 4, 5}, requests: []float64{6.5}, idle: us(1)},
		long: contest{turns: []float64{1}, requests: []float64{7.5}, idle: us(8080, 9960, 10040)},
	}}, conditions: "Conditions.", versions: []string{"b 1", "c 2"}, missing: []string{"D was not measured."}}
	text := c.markdown()
	assert.Contains(t, text, "\n| a | 0.200 / 0.300 | 0.500 / 0.600 | 1.3 | 2.5 |\n")
	assert.Contains(t, text, "\n| a | 1.9 / 3.4 | 3 / 5 | 6.5 | 10.0 / 10.0 | 7.5 |\n")
	assert.True(t, strings.HasSuffix(text, "\n\n- Conditions. Versions: b 1, c 2.\n- D was not measured.\n"), text)
}
