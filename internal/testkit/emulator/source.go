package emulator

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// binaryVariable is the environment variable with the path of the emulator's binary. If it is set, no other place is
// searched.
const binaryVariable = "SPINDLE_EMULATOR"

const binaryName = "emulator_main"

// A source is something from which an emulator can be started.
type source interface {
	command(flags []string) command
}

// A command runs one emulator in the foreground.
type command struct {
	argv []string

	// stop is the argv of a command that stops the emulator. It is nil if killing the process that argv started is
	// enough.
	stop []string

	// patience is how long the emulator may take to answer.
	patience time.Duration

	// address returns the address at which this process can reach the emulator. Its argument is the address that the
	// emulator has announced.
	address func(ctx context.Context, announced string) (string, error)
}

// binary is the path of an emulator_main.
type binary string

func (b binary) command(flags []string) command {
	return command{
		// With port 0, the emulator picks a free port. This process must not pick one, because the emulator listens
		// with SO_REUSEPORT. If two emulators got the same port, both would start without an error, and each would get
		// about half of the connections.
		argv:     append([]string{string(b), "--host_port", "127.0.0.1:0"}, flags...),
		patience: 30 * time.Second,
		address:  func(_ context.Context, announced string) (string, error) { return announced, nil },
	}
}

// find returns the source from which to start an emulator. It prefers a binary to the Docker image, because the binary
// starts much faster.
func find(ctx context.Context) (source, error) {
	if path := os.Getenv(binaryVariable); path != "" {
		if _, err := exec.LookPath(path); err != nil {
			return nil, fmt.Errorf("emulator: %s=%q is not an executable program (%w); set it to the path of %s, or unset it to search for the emulator", binaryVariable, path, err, binaryName)
		}
		return binary(path), nil
	}
	if path, err := exec.LookPath(binaryName); err == nil {
		return binary(path), nil
	}
	if path, err := besideGcloud(); err == nil {
		return binary(path), nil
	}
	image, err := findDocker(ctx)
	if err != nil {
		return nil, notFound(err)
	}
	return image, nil
}

// besideGcloud returns the path at which "gcloud components install" installs the emulator.
func besideGcloud() (string, error) {
	gcloud, err := exec.LookPath("gcloud")
	if err != nil {
		return "", err
	}
	if gcloud, err = filepath.EvalSymlinks(gcloud); err != nil {
		return "", err
	}
	return exec.LookPath(filepath.Join(filepath.Dir(gcloud), "cloud_spanner_emulator", binaryName))
}

func notFound(docker error) error {
	return errors.New(strings.Join([]string{
		"emulator: no Cloud Spanner emulator found: " + binaryName + " is neither in PATH nor next to gcloud, and " + docker.Error() + ". Do one of the following:",
		"  gcloud components install cloud-spanner-emulator",
		"  start a Docker engine, which will run the image " + imageName,
		"  set " + hostVariable + " to the host:port of an emulator that is already running",
		"  set " + binaryVariable + " to the path of " + binaryName,
	}, "\n"))
}
