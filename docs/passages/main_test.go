package main

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A draw is from everything that people read: documents, comments and what the program prints, and from no code or test.
func TestPassagesAreOfAllThatPeopleRead(t *testing.T) {
	all, err := collect(filepath.Join("..", ".."))
	require.NoError(t, err)
	kinds := map[string]int{}
	for _, p := range all {
		kinds[filepath.Ext(p.file)]++
		assert.NotContains(t, p.file, "_test.go")
		assert.NotContains(t, p.text, "```")
		assert.Positive(t, p.line)
	}
	assert.Greater(t, kinds[".md"], 200)
	assert.Greater(t, kinds[".go"], 1000)
}
