//go:build controlplane

package check

import (
	"context"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	core "k8s.io/api/core/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/spindle-lock/spindle/internal/testkit/emulator"
)

// A node runs the pods of the manifest try as processes. Each pod has an address of its own on loopback. The emulator runs
// already; its pod stands for it.
type node struct {
	*kubelet
	m       manifest
	program string // spindle
	address string // the emulator's

	mu sync.Mutex
	up map[string]pod
}

// A pod is one that has been created and not deleted.
type pod struct {
	name, ip string
	stop     context.CancelFunc
}

// TestTryLeadsFromNothingToALeader: with one kubectl command, three pods compete, one leads, and spindle serve shows it.
// If the leader is drained, another pod leads.
func TestTryLeadsFromNothingToALeader(t *testing.T) {
	e, err := emulator.Start(t.Context())
	require.NoError(t, err)
	t.Cleanup(func() { _ = e.Close() })
	c := start(t)
	const namespace = "spindle-try"
	m := named(t, "try")
	n := &node{kubelet: &kubelet{cluster: c, namespace: namespace, ready: everyPod}, m: m, program: spindle(t), address: e.Addr(), up: map[string]pod{}}
	began := time.Now()
	c.kubectl(t, "apply", "-k", manifests+"/try")
	n.run(t)
	c.kubectl(t, "-n", namespace, "rollout", "status", "deployment/leader", "--timeout", limit.String())
	n.available(t, "spindle-serve", 1)
	leader := n.leader(t, "")
	t.Logf("from nothing to a leader: %v", time.Since(began).Round(100*time.Millisecond))
	assert.Contains(t, n.metrics(t), `spindle_lock_held{lock="leader",table="locktable"} 1`)

	n.evict(t, core.Pod{ObjectMeta: meta.ObjectMeta{Name: leader}})
	next := n.leader(t, leader)
	assert.NotEqual(t, leader, next)
	n.available(t, "leader", 3)
}

func named(t *testing.T, name string) manifest {
	manifests := all(t)
	i := slices.IndexFunc(manifests, func(m manifest) bool { return m.name == name })
	require.GreaterOrEqual(t, i, 0)
	return manifests[i]
}

// run starts a process for each pod that is created, and stops it when the pod is deleted.
func (n *node) run(t *testing.T) {
	ctx, stop := context.WithCancel(t.Context())
	var running sync.WaitGroup
	t.Cleanup(func() { stop(); running.Wait() })
	changes, err := n.CoreV1().Pods(n.namespace).Watch(ctx, meta.ListOptions{})
	require.NoError(t, err)
	running.Go(func() {
		last := 0
		for e := range changes.ResultChan() {
			p, is := e.Object.(*core.Pod)
			switch {
			case is && e.Type == watch.Added:
				last++
				ctx, stop := context.WithCancel(ctx)
				started := pod{p.Name, fmt.Sprint("127.0.1.", last), stop}
				n.change(func() { n.up[p.Name] = started })
				running.Go(func() { n.runs(ctx, *p, started.ip) })
				running.Go(func() { n.probes(ctx, *p, started.ip) })
			case is && e.Type == watch.Deleted:
				n.change(func() {
					n.up[p.Name].stop()
					delete(n.up, p.Name)
				})
			}
		}
	})
}

func (n *node) change(f func()) {
	n.mu.Lock()
	defer n.mu.Unlock()
	f()
}

// runs runs a pod's containers until ctx ends: each init container until it succeeds, and then the only other one. A
// container that exits is started again.
func (n *node) runs(ctx context.Context, p core.Pod, ip string) {
	if p.Labels["app"] == "emulator" {
		return
	}
	for _, c := range p.Spec.InitContainers {
		for ctx.Err() == nil && n.command(ctx, c, ip).Run() != nil {
			time.Sleep(pause) // the back-off of a container
		}
	}
	for ctx.Err() == nil {
		_ = n.command(ctx, p.Spec.Containers[0], ip).Run()
		time.Sleep(pause)
	}
}

// probes reports the pod as ready once its readiness probe has succeeded.
func (n *node) probes(ctx context.Context, p core.Pod, ip string) {
	c := p.Spec.Containers[0]
	for ctx.Err() == nil {
		probe := c.ReadinessProbe
		if probe.HTTPGet == nil || status("http://"+ip+listening(c, probe)+probe.HTTPGet.Path) == http.StatusOK {
			n.report(ctx, p)
			return
		}
		time.Sleep(pause)
	}
}

// command returns the process that stands for a container: spindle in place of its image, with an address on loopback in
// place of the pod's. When ctx ends, the process gets SIGTERM, and is killed at the end of the grace period.
func (n *node) command(ctx context.Context, c core.Container, ip string) *exec.Cmd {
	here := strings.NewReplacer(":8118", ip+":8118", ":8117", ip+":8117", "/spindle", n.program, "emulator:9010", n.address)
	var args []string
	for _, a := range c.Args {
		args = append(args, here.Replace(a))
	}
	process := exec.CommandContext(ctx, n.program, args...)
	process.Cancel = func() error { return process.Process.Signal(syscall.SIGTERM) }
	process.WaitDelay = 30 * time.Second
	process.Stderr = os.Stderr
	for _, e := range environment(n.m, c) {
		process.Env = append(process.Env, here.Replace(e))
	}
	return process
}

// leader waits until a pod leads, other than one of a given name, and returns its name.
func (n *node) leader(t *testing.T, other string) (name string) {
	t.Helper()
	require.Eventually(t, func() bool {
		for _, p := range n.processes() {
			if p.name != other && strings.HasPrefix(p.name, "leader-") && status("http://"+p.ip+":8118/readyz") == http.StatusOK {
				name = p.name
				return true
			}
		}
		return false
	}, limit, pause)
	return name
}

// metrics returns what spindle serve exports, once it has seen the lock's holder.
func (n *node) metrics(t *testing.T) (text string) {
	t.Helper()
	for _, p := range n.processes() {
		if strings.HasPrefix(p.name, "spindle-serve-") {
			require.EventuallyWithT(t, func(c *assert.CollectT) {
				text = body("http://" + p.ip + ":8117/metrics")
				require.Contains(c, text, `spindle_lock_holder{`)
			}, limit, pause)
		}
	}
	return text
}

func (n *node) processes() (pods []pod) {
	n.change(func() { pods = slices.Collect(maps.Values(n.up)) })
	return pods
}

func status(url string) int {
	response, err := http.Get(url)
	if err != nil {
		return 0
	}
	defer response.Body.Close()
	return response.StatusCode
}

func body(url string) string {
	response, err := http.Get(url)
	if err != nil {
		return err.Error()
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	return fmt.Sprint(string(text), err)
}
