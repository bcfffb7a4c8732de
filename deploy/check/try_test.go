package check

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	core "k8s.io/api/core/v1"

	"github.com/spindle-lock/spindle/internal/testkit/emulator"
)

const (
	limit = time.Minute // for what should take seconds
	pause = 50 * time.Millisecond
)

// A pod runs as processes, with an address of its own on loopback.
type pod struct {
	workload
	ip   string
	stop context.CancelFunc
}

// The pods of the manifest try start in any order: three compete, one leads, and spindle serve shows it. If the leader
// stops, another pod leads.
func TestTryLeadsFromNothingToALeader(t *testing.T) {
	e, err := emulator.Start(t.Context())
	require.NoError(t, err)
	t.Cleanup(func() { _ = e.Close() })
	manifests := all(t)
	m := manifests[slices.IndexFunc(manifests, func(m manifest) bool { return m.name == "try" })]
	var pods []*pod
	for _, w := range workloads(t, m) {
		for range w.replicas {
			if !emulates(w) { // the emulator runs already
				p := &pod{workload: w, ip: fmt.Sprint("127.0.1.", 1+len(pods))}
				p.run(t, spindle(t), e.Addr())
				pods = append(pods, p)
			}
		}
	}
	first := leader(t, pods, nil)
	serve := pods[slices.IndexFunc(pods, func(p *pod) bool { return strings.HasSuffix(p.name, "/spindle-serve") })]
	require.EventuallyWithT(t, func(c *assert.CollectT) {
		_, text := get("http://" + serve.ip + ":8117/metrics")
		assert.Contains(c, text, `spindle_lock_held{lock="leader",table="locktable"} 1`)
		assert.Contains(c, text, `spindle_lock_holder{`)
	}, limit, pause)
	first.stop()
	leader(t, pods, first)
}

// run runs a pod's containers until it is stopped: each init container until it succeeds, and then the only other one. A
// container that exits is started again.
func (p *pod) run(t *testing.T, program, emulator string) {
	ctx, stop := context.WithCancel(context.Background())
	p.stop = stop
	done := make(chan struct{})
	t.Cleanup(func() { stop(); <-done })
	go func() {
		defer close(done)
		for _, c := range p.pod.Spec.InitContainers {
			for ctx.Err() == nil && p.command(ctx, c, program, emulator).Run() != nil {
				time.Sleep(pause) // the back-off of a container
			}
		}
		for ctx.Err() == nil {
			_ = p.command(ctx, p.pod.Spec.Containers[0], program, emulator).Run()
			time.Sleep(pause)
		}
	}()
}

// command returns the process that stands for a container: spindle in place of its image, with an address on loopback in
// place of the pod's. When ctx ends, the process gets SIGTERM, and is killed at the end of the grace period.
func (p *pod) command(ctx context.Context, c core.Container, program, emulator string) *exec.Cmd {
	here := strings.NewReplacer(":8118", p.ip+":8118", ":8117", p.ip+":8117", "/spindle", program, "emulator:9010", emulator)
	var args []string
	for _, a := range c.Args {
		args = append(args, here.Replace(a))
	}
	process := exec.CommandContext(ctx, program, args...)
	process.Cancel = func() error { return process.Process.Signal(syscall.SIGTERM) }
	process.WaitDelay = 30 * time.Second
	process.Stderr = os.Stderr
	for _, e := range environment(p.in, c) {
		process.Env = append(process.Env, here.Replace(e))
	}
	return process
}

// leader waits until a pod leads that is not the given one.
func leader(t *testing.T, pods []*pod, not *pod) (found *pod) {
	t.Helper()
	require.Eventually(t, func() bool {
		for _, p := range pods {
			if code, _ := get("http://" + p.ip + ":8118/readyz"); code == http.StatusOK && p != not {
				found = p
				return true
			}
		}
		return false
	}, limit, pause)
	return found
}

func get(url string) (code int, text string) {
	response, err := http.Get(url)
	if err != nil {
		return 0, err.Error()
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	return response.StatusCode, fmt.Sprint(string(body), err)
}
