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

// binaryVariable names the emulator's binary when it is not where gcloud
// installs it.
const binaryVariable = "SPINDLE_EMULATOR"

const binaryName = "emulator_main"

// A source is something an emulator can be started from.
type source interface {
	command(flags []string) command
}

// A command runs one emulator in the foreground.
type command struct {
	argv []string

	// stop is the argv that ends the emulator when killing the process of
	// argv does not. It may be nil.
	stop []string

	// patience is how long the emulator may take until it answers.
	patience time.Duration

	// address finds where the emulator can be reached from this process,
	// given the address it says it listens on.
	address func(ctx context.Context, announced string) (string, error)
}

// binary is the path of an emulator_main.
type binary string

func (b binary) command(flags []string) command {
	return command{
		// With port 0 the emulator picks the port itself. Picking one for it
		// would be unsafe, not only a race: it listens with SO_REUSEPORT, so
		// a second emulator on the same port starts without complaint and
		// takes half of the connections.
		argv:     append([]string{string(b), "--host_port", "127.0.0.1:0"}, flags...),
		patience: 30 * time.Second,
		address:  func(_ context.Context, announced string) (string, error) { return announced, nil },
	}
}

// find returns what to start an emulator from: a binary if there is one, as it
// starts in a fraction of the time, and otherwise the image.
func find(ctx context.Context) (source, error) {
	if path := os.Getenv(binaryVariable); path != "" {
		if _, err := exec.LookPath(path); err != nil {
			return nil, fmt.Errorf("emulator: %s=%q is not a program that can be run (%w): set it to the path of %s, or unset it to have the emulator looked for", binaryVariable, path, err, binaryName)
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

// besideGcloud is where "gcloud components install" puts the emulator.
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
		"emulator: no Cloud Spanner emulator found: " + binaryName + " is neither in PATH nor beside gcloud, and " + docker.Error() + "; do one of these:",
		"  gcloud components install cloud-spanner-emulator",
		"  start a Docker engine, which will run the image " + imageName,
		"  set " + hostVariable + " to the host:port of an emulator that runs already",
		"  set " + binaryVariable + " to the path of " + binaryName,
	}, "\n"))
}
