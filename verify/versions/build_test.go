//go:build versions && unix

package versions

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

var previous = flag.String("previous", "", "the tag or commit of the version before this one, which must be in the repository")

// dir contains the programs of the versions.
var dir string

// The programs that tests run.
func program(version string) string { return filepath.Join(dir, version) }
func spindle() string               { return filepath.Join(dir, "spindle") }

func TestMain(m *testing.M) {
	flag.Parse()
	code, err := testWithPrograms(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

func testWithPrograms(m *testing.M) (code int, err error) {
	if *previous == "" {
		return 0, errors.New("-previous is missing: .ci/run versions knows which version to test with")
	}
	if dir, err = os.MkdirTemp("", "spindle-versions"); err != nil {
		return 0, err
	}
	defer os.RemoveAll(dir)
	for _, build := range []func() error{
		func() error { return build(".", program("this"), "./testdata/program") },
		func() error { return build(".", program("notifying"), "-tags=notifications", "./testdata/program") },
		func() error { return build(".", spindle(), "../../cmd/spindle") },
		buildPrevious,
	} {
		if err := build(); err != nil {
			return 0, err
		}
	}
	return m.Run(), nil
}

// buildPrevious builds the program inside a copy of the previous version, so that it gets the dependencies of that
// version.
func buildPrevious() error {
	source := filepath.Join(dir, "source")
	inside := filepath.Join(source, "versionsprogram")
	if err := os.Mkdir(source, 0o700); err != nil {
		return err
	}
	const unpack = `set -e; top=$(git rev-parse --show-toplevel); git -C "$top" archive -o "$1/archive" --format=tar "$2"; tar -xf "$1/archive" -C "$1"`
	if err := run(exec.Command("sh", "-c", unpack, "sh", source, *previous)); err != nil {
		return fmt.Errorf("%s, the version before this one, can't be unpacked; in a shallow clone: git fetch --unshallow --tags: %w", *previous, err)
	}
	if err := os.CopyFS(inside, os.DirFS("testdata/program")); err != nil {
		return err
	}
	return build(source, program("previous"), "./versionsprogram")
}

func build(in, binary string, args ...string) error {
	c := exec.Command("go", append([]string{"build", "-ldflags=-w", "-o", binary}, args...)...)
	c.Dir = in
	return run(c)
}

func run(c *exec.Cmd) error {
	if out, err := c.CombinedOutput(); err != nil {
		return fmt.Errorf("%v: %w\n%s", c.Args, err, out)
	}
	return nil
}
