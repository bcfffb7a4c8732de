package main

import (
	"archive/tar"
	"debug/buildinfo"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"syscall"
	"testing"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spindle-lock/spindle/spindletest"
)

// TestSpindleRunsInItsImage runs the real program with nothing else than the image's files, if the test may change the
// root directory, and as the image's user.
func TestSpindleRunsInItsImage(t *testing.T) {
	spindle := filepath.Join(t.TempDir(), "spindle")
	build := exec.Command("go", "build", "-trimpath", "-o", spindle, "./cmd/spindle")
	build.Dir = "../.."
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	out, err := build.CombinedOutput()
	require.NoError(t, err, "%s", out)
	info, err := buildinfo.ReadFile(spindle)
	require.NoError(t, err)
	// Not read from the program, because go build records no commit in a linked worktree.
	p := program{release{info.Main.Version, "a commit", time.Unix(0, 0)}, spindle, v1.Platform{OS: "linux", Architecture: runtime.GOARCH}}
	index, err := newIndex([]program{p})
	require.NoError(t, err)
	root := t.TempDir()
	unpack(t, images(t, index)["linux/"+runtime.GOARCH], root)

	// Container runtimes mount /proc. Install needs only this link of it.
	require.NoError(t, os.MkdirAll(filepath.Join(root, "proc", "self"), 0o755))
	require.NoError(t, os.Symlink("/spindle", filepath.Join(root, "proc", "self", "exe")))

	db := spindletest.New(t)
	in := container{t, root, append(db.Env(), "SPINDLE_DB="+db.Path)}
	assert.Contains(t, in.run("version"), "spindle "+info.Main.Version+"\n")
	assert.Contains(t, in.run("doctor"), "18 ok")
	assert.Contains(t, in.run("install", "/tmp"), "/tmp/spindle")
	assert.FileExists(t, filepath.Join(root, "tmp", "spindle"))
}

// A container runs programs in the file system of an image.
type container struct {
	t    *testing.T
	root string
	env  []string
}

func (c container) run(args ...string) string {
	c.t.Helper()
	cmd := exec.Command(filepath.Join(c.root, "spindle"), args...)
	if os.Geteuid() == 0 {
		cmd.Path, cmd.Dir = "/spindle", "/"
		cmd.SysProcAttr = &syscall.SysProcAttr{Chroot: c.root, Credential: &syscall.Credential{Uid: 65532, Gid: 65532}}
	} else if args[0] == "install" {
		args[1] = filepath.Join(c.root, args[1])
	}
	cmd.Env = append(c.env, "PATH=/")
	out, err := cmd.CombinedOutput()
	require.NoError(c.t, err, "spindle %q: %s", args, out)
	return string(out)
}

func unpack(t *testing.T, image v1.Image, root string) {
	t.Helper()
	require.NoError(t, os.Chmod(root, 0o755))
	headers, texts := filesOf(t, image)
	for _, name := range slices.Sorted(maps.Keys(headers)) { // a directory comes before what is in it
		path := filepath.Join(root, name)
		if headers[name].Typeflag == tar.TypeDir {
			require.NoError(t, os.Mkdir(path, 0o755))
		} else {
			require.NoError(t, os.WriteFile(path, texts[name], 0o600))
		}
		require.NoError(t, os.Chmod(path, headers[name].FileInfo().Mode()))
	}
}
