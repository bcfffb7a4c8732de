package cli

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
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

	for _, unreadable := range []string{dir, filepath.Join(dir, "missing")} {
		_, err = install(unreadable, dir)
		assert.Error(t, err)
	}
	text, err = os.ReadFile(path)
	require.NoError(t, err)
	assert.Equal(t, "new", string(text), "what can't be copied replaces nothing")
	require.NoError(t, os.Remove(old))
	require.NoError(t, os.Mkdir(old, 0o755)) // a file can't replace a directory
	_, err = install(self, dir)
	require.Error(t, err)
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	assert.Len(t, entries, 2, "nothing is left behind if it fails")
}

func TestTheVersionSaysWhatWasBuilt(t *testing.T) {
	on := "\n  go1.26.0 for " + runtime.GOOS + "/" + runtime.GOARCH + "\n"
	info := &debug.BuildInfo{GoVersion: "go1.26.0"}
	assert.Equal(t, "spindle (unknown)"+on, versionOf(info).String())

	info.Main.Version = "v1.2.3"
	assert.Equal(t, "spindle v1.2.3"+on, versionOf(info).String(), "go install of a release knows no revision")

	info.Settings = []debug.BuildSetting{{Key: "vcs.revision", Value: "1c2e69b"}, {Key: "vcs.modified", Value: "true"}}
	assert.Equal(t, "spindle v1.2.3\n  revision 1c2e69b, with uncommitted changes"+on, versionOf(info).String())

	info.Settings = []debug.BuildSetting{{Key: "vcs.revision", Value: "1c2e69b"}, {Key: "vcs.time", Value: "2026-11-21T13:55:42Z"}, {Key: "vcs.modified", Value: "false"}}
	assert.Equal(t, "spindle v1.2.3\n  revision 1c2e69b of 2026-11-21T13:55:42Z"+on, versionOf(info).String())

	text, err := json.Marshal(versionOf(info))
	require.NoError(t, err)
	assert.JSONEq(t, fmt.Sprintf(`{"version":"v1.2.3","revision":"1c2e69b","revision_time":"2026-11-21T13:55:42Z","modified":false,"go":"go1.26.0","os":%q,"arch":%q,"schema":%q}`,
		runtime.GOOS, runtime.GOARCH, schemaVersion), string(text))
	assert.False(t, versionOf(&debug.BuildInfo{}).Modified, "go install of a release does not say")

	info.Settings[2].Value = "true"
	assert.True(t, versionOf(info).Modified)
	assert.Contains(t, versionOf(info).String(), "2026-11-21T13:55:42Z, with uncommitted changes\n")
}

// The flag says the same as the command, so that a script that reads one can read the other.
func TestTheFlagVersionSaysWhatTheCommandSays(t *testing.T) {
	root := newRoot()
	var out bytes.Buffer
	root.SetOut(&out)
	root.SetArgs([]string{"--version"})
	require.NoError(t, root.Execute())
	assert.Equal(t, versionOf(buildInfo()).String(), out.String())
}
