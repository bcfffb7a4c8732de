package main

import (
	"io"
	"os"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A measurement ends its processes in reverse order, and then removes the directory with their data. Otherwise, many measurements would
// fill the disk.
func TestNothingIsLeftOfAMeasurement(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	g, err := newGround("", io.Discard)
	require.NoError(t, err)
	dir, err := g.newDir()
	require.NoError(t, err)
	var ended []string
	for _, name := range []string{"server", "client"} {
		g.onClose(func() {
			assert.DirExists(t, dir)
			ended = append(ended, name)
		})
	}
	g.close()
	assert.Equal(t, []string{"client", "server"}, ended)
	left, err := os.ReadDir(os.TempDir())
	require.NoError(t, err)
	assert.Empty(t, left)
}
