package check

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	core "k8s.io/api/core/v1"
)

var binary = filepath.Join(os.TempDir(), fmt.Sprint("spindle-check-", os.Getpid()))

func TestMain(m *testing.M) {
	code := m.Run()
	_ = os.Remove(binary)
	os.Exit(code)
}

var build = sync.OnceValues(func() ([]byte, error) {
	c := exec.Command("go", "build", "-o", binary, "./cmd/spindle")
	c.Dir = "../.."
	return c.CombinedOutput()
})

// spindle returns the path of the command, which the first test that needs it builds.
func spindle(t *testing.T) string {
	t.Helper()
	out, err := build()
	require.NoError(t, err, "%s", out)
	return binary
}

// run runs the command with these variables alone, and returns what it printed and its exit code.
func run(t *testing.T, path string, env []string, args ...string) (string, int) {
	t.Helper()
	c := exec.Command(path, args...)
	c.Env = env
	out, err := c.CombinedOutput()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return string(out), exit.ExitCode()
	}
	require.NoError(t, err)
	return string(out), 0
}

// environment returns the variables that a container gets, from its manifest and from ConfigMaps.
func environment(m manifest, c core.Container) []string {
	var env []string
	for _, from := range c.EnvFrom {
		for _, config := range of[*core.ConfigMap](m) {
			if from.ConfigMapRef != nil && from.ConfigMapRef.Name == config.Name {
				for name, value := range config.Data {
					env = append(env, name+"="+value)
				}
			}
		}
	}
	for _, e := range c.Env {
		env = append(env, e.Name+"="+e.Value)
	}
	return env
}

// Spindle accepts the flags and variables of every container, and refuses a database that is not a full path: the pod
// fails at once, and says why, instead of competing for a lock elsewhere.
func TestSpindleReadsTheManifestsAndRefusesAMalformedDatabase(t *testing.T) {
	path := spindle(t)
	database := regexp.MustCompile(`^SPINDLE_DB=projects/[^/]+/instances/[^/]+/databases/[^/]+$`)
	started := 0
	for w, c := range everyContainer(t) {
		args, is := spindleArgs(c)
		if !is || args[0] == "install" {
			continue
		}
		started++
		env := environment(w.in, c)
		databases := 0
		for i, e := range env {
			if strings.HasPrefix(e, "SPINDLE_DB=") {
				databases++
				assert.Regexp(t, database, e, w.name)
				env[i] = "SPINDLE_DB=instances/main/databases/orders"
			}
		}
		assert.Equal(t, 1, databases, "%s/%s", w.name, c.Name)
		out, code := run(t, path, env, args...)
		assert.Equal(t, 2, code, "%s/%s: %s", w.name, c.Name, out)
		assert.Contains(t, out, `"instances/main/databases/orders" is not a database path`, "%s/%s", w.name, c.Name)
	}
	assert.Equal(t, 8, started)
}

// Every SPINDLE_ variable of a container is a flag of the command that it runs, and every probe asks for a path that this
// command serves, at the address on which it listens.
func TestTheHelpOfTheCommandNamesTheVariablesAndPaths(t *testing.T) {
	path := spindle(t)
	for w, c := range everyContainer(t) {
		args, is := spindleArgs(c)
		if !is {
			continue
		}
		help, code := run(t, path, nil, args[0], "--help")
		require.Zero(t, code, help)
		for _, e := range c.Env {
			if name, is := strings.CutPrefix(e.Name, "SPINDLE_"); is { // help has an asterisk at flags without a variable
				flag := "--" + strings.ReplaceAll(strings.ToLower(name), "_", "-")
				assert.Regexp(t, `(?m)^ +(-\w, )?`+flag+`( \w+)? +[^* ]`, help, "%s/%s", w.name, c.Name)
			}
		}
		settings := strings.Join(append(environment(w.in, c), args...), " ") + " "
		for _, p := range []*core.Probe{c.StartupProbe, c.ReadinessProbe, c.LivenessProbe} {
			if p != nil {
				assert.Contains(t, help, p.HTTPGet.Path, "%s/%s", w.name, c.Name)
				assert.Contains(t, settings, listening(c, p)+" ", "%s/%s", w.name, c.Name)
			}
		}
	}
}

// listening returns how the address ends at which a probe asks, such as :8117.
func listening(c core.Container, p *core.Probe) string {
	for _, port := range c.Ports {
		if port.Name == p.HTTPGet.Port.StrVal {
			return fmt.Sprint(":", port.ContainerPort)
		}
	}
	return p.HTTPGet.Port.String()
}

// The commands in comments are those that spindle has, and preStop hooks are, too.
func TestSpindleHasTheCommandsThatTheManifestsName(t *testing.T) {
	path := spindle(t)
	commands := 0
	has := func(words []string) {
		commands++
		out, code := run(t, path, nil, append(words, "--help")...)
		assert.Zero(t, code, "%q: %s", words, out)
	}
	for _, m := range all(t) {
		for _, line := range regexp.MustCompile(`(?m)^# .*-- \S*/spindle (.*)$`).FindAllSubmatch(m.yaml, -1) {
			has(strings.Fields(string(line[1])))
		}
		for _, w := range workloads(t, m) {
			for _, c := range w.containers() {
				if c.Lifecycle != nil && c.Lifecycle.PreStop.Exec != nil {
					has(c.Lifecycle.PreStop.Exec.Command[1:])
				}
			}
		}
	}
	assert.Equal(t, 4, commands)
}

// An init container copies spindle into the pod: into the directory from which the program's container starts it.
func TestTheInitContainerInstallsTheCommandThatThePodRuns(t *testing.T) {
	path := spindle(t)
	installed := 0
	for w, c := range everyContainer(t) {
		args, is := spindleArgs(c)
		if !is || args[0] != "install" {
			continue
		}
		installed++
		require.Len(t, args, 2)
		assert.Equal(t, args[1], c.VolumeMounts[0].MountPath, w.name)
		assert.Equal(t, args[1]+"/spindle", w.pod.Spec.Containers[0].Command[0], w.name)
		assert.Equal(t, c.VolumeMounts[0].Name, w.pod.Spec.Containers[0].VolumeMounts[0].Name, w.name)
	}
	require.Equal(t, 2, installed)

	into := t.TempDir()
	for range 2 { // a restarted pod may run the init container again
		out, code := run(t, path, nil, "install", into)
		require.Zero(t, code, out)
	}
	want, err := os.ReadFile(path)
	require.NoError(t, err)
	got, err := os.ReadFile(filepath.Join(into, "spindle"))
	require.NoError(t, err)
	assert.True(t, bytes.Equal(want, got))
	_, code := run(t, filepath.Join(into, "spindle"), nil, "version")
	assert.Zero(t, code)
}
