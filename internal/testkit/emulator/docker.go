package emulator

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"time"

	"github.com/google/uuid"
)

const imageName = "gcr.io/cloud-spanner-emulator/emulator"

// containerPort is the port of the emulator inside its container.
const containerPort = "9010"

// docker is the path of a Docker client whose engine answers.
type docker string

// findDocker returns the Docker client in PATH. It fails if there is none, or if its engine does not answer.
func findDocker(ctx context.Context) (docker, error) {
	path, err := exec.LookPath("docker")
	if err != nil {
		return "", errors.New("there is no docker in PATH")
	}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	if out, err := exec.CommandContext(ctx, path, "version", "--format", "{{.Server.Version}}").CombinedOutput(); err != nil {
		return "", fmt.Errorf("docker has no running engine (%s)", lastLine(out, err))
	}
	return docker(path), nil
}

func (d docker) command(flags []string) command {
	name := "spindle-emulator-" + uuid.NewString()
	argv := []string{
		string(d), "run", "--rm", "--name", name,
		"--publish", "127.0.0.1::" + containerPort,
		imageName, "./" + binaryName, "--host_port", "0.0.0.0:" + containerPort,
	}
	return command{
		argv: append(argv, flags...),
		// A killed docker client leaves its container running.
		stop: []string{string(d), "rm", "--force", name},
		// The image may have to be pulled first.
		patience: 5 * time.Minute,
		address: func(ctx context.Context, _ string) (string, error) {
			return d.publishedAddress(ctx, name)
		},
	}
}

// publishedAddress returns the loopback address at which the engine publishes the container's port.
func (d docker) publishedAddress(ctx context.Context, container string) (string, error) {
	out, err := exec.CommandContext(ctx, string(d), "port", container, containerPort+"/tcp").CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("emulator: cannot find the port that docker published for container %s: %s", container, lastLine(out, err))
	}
	addr, _, _ := strings.Cut(strings.TrimSpace(string(out)), "\n")
	return addr, nil
}

// lastLine returns the last line that a failed command printed, or its error if it printed nothing.
func lastLine(out []byte, err error) string {
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	if last := lines[len(lines)-1]; last != "" {
		return last
	}
	return err.Error()
}
