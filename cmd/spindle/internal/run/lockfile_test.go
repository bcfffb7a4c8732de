//go:build unix

package run

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// folderOf makes a folder with a mode, whatever the umask is.
func folderOf(t *testing.T, mode os.FileMode) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "folder")
	require.NoError(t, os.Mkdir(path, mode))
	require.NoError(t, os.Chmod(path, mode))
	return path
}

// A lock file in a folder that another user can write to could be that user's, and keep guard from its work.
func TestNoOtherUserHasAHandInTheFolderOfTheLockFile(t *testing.T) {
	me := os.Geteuid()
	mine := folderOf(t, 0o700)
	link := filepath.Join(t.TempDir(), "link")
	require.NoError(t, os.Symlink(mine, link))
	file := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	for name, c := range map[string]struct {
		path string
		uid  int
		want string
	}{
		"one of its own":                    {mine, me, ""},
		"others may look":                   {folderOf(t, 0o755), me, ""},
		"the group may write":               {folderOf(t, 0o770), me, "is writable by other users (mode 0770)"},
		"all may write, as to /tmp":         {folderOf(t, 0o777|os.ModeSticky), me, "is writable by other users (mode 0777)"},
		"another user's":                    {mine, me + 1, "belongs to user"},
		"a link, which may lead anywhere":   {link, me, "is a symbolic link"},
		"a file":                            {file, me, "is not a directory"},
		"nothing":                           {filepath.Join(mine, "none"), me, "no such file"},
		"relative, so not the same for all": {"run", me, "is not an absolute path"},
	} {
		err := account{uid: c.uid}.serves(c.path, false)
		if c.want == "" {
			assert.NoError(t, err, name)
		} else {
			assert.ErrorContains(t, err, c.want, name)
		}
	}
}

// All guards of a user must find the same folder, or two of them would not know of each other. Root's is the same in a log-in
// and in a service.
func TestTheFolderOfTheLockFileIsTheFirstThatServes(t *testing.T) {
	me := os.Geteuid()
	service, login, temp, root := folderOf(t, 0o755), folderOf(t, 0o700), folderOf(t, 0o777), filepath.Join(folderOf(t, 0o755), "spindle")
	a := account{uid: me, service: service + ":" + login, root: root, login: login, temp: temp}
	finds := func(want string, mode os.FileMode) {
		path, err := a.folder()
		require.NoError(t, err)
		assert.Equal(t, want, path)
		info, err := os.Stat(path)
		require.NoError(t, err)
		assert.Equal(t, mode, info.Mode().Perm())
	}
	finds(service, 0o755)
	a.service = ""
	if me == 0 {
		finds(root, 0o700)
	} else {
		finds(login, 0o700)
	}
	a.root, a.login = filepath.Join(root, "a", "b"), ""
	last := filepath.Join(temp, fmt.Sprintf("spindle-%d", me))
	finds(last, 0o700)
	require.NoError(t, os.Chmod(last, 0o777))
	_, err := a.folder()
	assert.ErrorContains(t, err, "set RUNTIME_DIRECTORY")
	assert.ErrorContains(t, err, last)
}
