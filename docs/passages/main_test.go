package main

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A draw covers everything that people read, which is documents, comments and the program's output, but no code and no
// tests.
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
	assert.Greater(t, kinds[".md"], 150)
	assert.Greater(t, kinds[".go"], 1000)
}
