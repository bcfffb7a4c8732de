package cli

import (
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// An init container may run again while the program that it installed is running: a running program's file can't be
// written to, and a program that starts meanwhile must find a whole file.
func TestInstallReplacesTheFileInsteadOfWritingToIt(t *testing.T) {
	dir := t.TempDir()
	self := filepath.Join(dir, "self")
	require.NoError(t, os.WriteFile(self, []byte("new"), 0o600))
	old := filepath.Join(dir, programName())
	require.NoError(t, os.WriteFile(old, []byte("old"), 0o600))
	running, err := os.Open(old)
	require.NoError(t, err)
	defer func() { _ = running.Close() }()

	path, err := install(self, dir)
	require.NoError(t, err)
	assert.Equal(t, old, path)
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	assert.Equal(t, "new", string(text))
	was := make([]byte, 3)
	_, err = running.ReadAt(was, 0)
	require.NoError(t, err)
	assert.Equal(t, "old", string(was), "the file that is being executed stays as it is")
	if runtime.GOOS != "windows" {
		info, err := os.Stat(path)
		require.NoError(t, err)
		assert.Equal(t, os.FileMode(0o755), info.Mode(), "every user of the pod may run it")
	}
}

func TestInstallLeavesNothingBehindIfItFails(t *testing.T) {
	dir := t.TempDir()
	self := filepath.Join(dir, "self")
	require.NoError(t, os.WriteFile(self, []byte("new"), 0o600))
	require.NoError(t, os.Mkdir(filepath.Join(dir, programName()), 0o755)) // a file can't replace a directory
	_, err := install(self, dir)
	require.Error(t, err)
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	assert.Len(t, entries, 2)
}
