package main

import (
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A document keeps everything around the table, and a run without a place for its table fails instead of writing it
// somewhere else.
func TestOnlyTheTableOfADocumentIsReplaced(t *testing.T) {
	document := "before\n" + beginMark + "old\n" + endMark + "after\n"
	got, err := replaceMarked([]byte(document), "new\n")
	require.NoError(t, err)
	assert.Equal(t, "before\n"+beginMark+"new\n"+endMark+"after\n", string(got))

	for _, document := range []string{"", beginMark, endMark + beginMark} {
		_, err := replaceMarked([]byte(document), "new\n")
		assert.Error(t, err, document)
	}
}

func TestTheDocumentsHaveAPlaceForTheTable(t *testing.T) {
	for _, path := range documents {
		text, err := os.ReadFile(path)
		require.NoError(t, err)
		_, err = replaceMarked(text, "")
		assert.NoError(t, err, path)
	}
}

// If another system is better than one of its counterparts, the comparison says so. A better counterpart doesn't hide
// that, and neither does a system of another kind.
func TestItIsSaidWhereAnotherSystemIsBetter(t *testing.T) {
	elector := result{system: system{name: "elector", kind: "election"}, killed: []float64{0.9}, closed: []float64{0.1, 0.2, 0.3}}
	handover := result{system: system{name: "handover", kind: "election"}, closed: []float64{0.007}}
	agent := result{system: system{name: "agent", kind: "program"}, killed: []float64{0.01}}
	mutex := result{system: system{name: "mutex", kind: "mutex"}, turns: []float64{80, 81}, cycles: []time.Duration{2 * time.Millisecond}}
	theirElection := result{system: system{name: "their election", kind: "election", peer: true}, killed: []float64{0.8}, closed: []float64{0.02}}
	theirMutex := result{system: system{name: "their mutex", kind: "mutex", peer: true}, turns: []float64{90, 91}, cycles: []time.Duration{3 * time.Millisecond}}
	c := comparison{results: []result{elector, handover, agent, mutex, theirElection, theirMutex}, conditions: "Conditions.", versions: []string{"v1"}}
	assert.Equal(t, []string{
		`"kill -9, leases": their election (0.800) is better than elector (0.900).`,
		`"stop, leases": their election (0.020) is better than elector (0.200).`,
		`"turns of 10 processes": their mutex (90) is better than mutex (80).`,
		"Conditions. Versions: v1.",
	}, c.remarks())
}

func TestAMeasurementThatWasLeftOutIsAnEmptyCell(t *testing.T) {
	c := comparison{results: []result{{system: system{name: "a"}, closed: []float64{0.01, 0.25, 0.5}, turns: []float64{7, 8, 9}}}, conditions: "Conditions."}
	assert.Contains(t, c.markdown(), "\n| a | | 0.250 / 0.500 | | | | 7 / 9 |\n")
}
