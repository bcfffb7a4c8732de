package cli

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"

	"github.com/spf13/cobra"

	"github.com/spindle-lock/spindle/cmd/spindle/internal/terminal"
)

func newInstall() *cobra.Command {
	return &cobra.Command{
		Use:   "install DIR",
		Short: "Copy this program to a directory",
		Long: `Install copies the running spindle program to the directory DIR, under the name
spindle (spindle.exe on Windows). DIR must exist. Install replaces an existing
file of that name in one step. Except on Windows, it can do so even while the
file is being executed. Install does not require a database.

In Kubernetes, an init container can run this command in Spindle's own image, to
give spindle to a program whose image does not contain it. No shell is needed.
` + terminal.CommonCodes,
		Example: "  spindle install /opt/spindle",
		Args:    terminal.Exactly(1, "the name of one directory"),
		RunE: func(_ *cobra.Command, args []string) error {
			self, err := os.Executable()
			if err != nil {
				return err
			}
			path, err := install(self, args[0])
			if err != nil {
				return fmt.Errorf("can't install spindle: %w", err)
			}
			_, err = fmt.Printf("installed spindle %s at %s\n", versionOf(buildInfo()).Version, path)
			return err
		},
	}
}

// install copies the program self to dir. It writes a temporary file in dir and renames that file, because on Unix, a
// file that is being executed can be replaced but not written to.
func install(self, dir string) (path string, err error) {
	from, err := os.Open(self)
	if err != nil {
		return "", err
	}
	defer func() { _ = from.Close() }()
	to, err := os.CreateTemp(dir, ".spindle-*")
	if err != nil {
		return "", err
	}
	defer func() {
		if err != nil {
			_ = to.Close()
			_ = os.Remove(to.Name())
		}
	}()
	if _, err := io.Copy(to, from); err != nil {
		return "", err
	}
	if err := to.Chmod(0o755); err != nil { // CreateTemp creates files that only their owner can use
		return "", err
	}
	if err := to.Close(); err != nil {
		return "", err
	}
	path = filepath.Join(dir, programName())
	return path, os.Rename(to.Name(), path)
}

func programName() string {
	if runtime.GOOS == "windows" {
		return "spindle.exe"
	}
	return "spindle"
}
