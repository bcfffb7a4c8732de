//go:build controlplane

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
	up map[string]*pod
}

// A pod is one whose container runs.
type pod struct {
	name, ip string
	process  *exec.Cmd
	ended    chan struct{} // closed when the process has exited
}

// TestTryLeadsFromNothingToALeader: with one command, three pods compete, one leads, and spindle serve shows it. If the
// leader is drained, another pod leads.
func TestTryLeadsFromNothingToALeader(t *testing.T) {
	e, err := emulator.Start(t.Context())
	require.NoError(t, err)
	t.Cleanup(func() { _ = e.Close() })
	c := start(t)
	const namespace = "spindle-try"
	m := named(t, "try")
	n := &node{kubelet: &kubelet{cluster: c, namespace: namespace, ready: everyPod}, m: m, program: spindle(t), address: e.Addr(), up: map[string]*pod{}}
	began := time.Now()
	c.apply(t, m, namespace)
	n.run(t)

	n.available(t, "leader", 3)
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
				running.Go(func() { n.runs(ctx, t, *p, fmt.Sprint("127.0.1.", last)) })
			case is && e.Type == watch.Deleted:
				running.Go(func() { n.stops(p.Name) })
			}
		}
	})
}

// runs runs a pod: its init containers one after the other, and then its only container, until ctx ends.
func (n *node) runs(ctx context.Context, t *testing.T, p core.Pod, ip string) {
	defer func() { <-ctx.Done(); n.stops(p.Name) }()
	if strings.HasPrefix(p.Name, "emulator-") {
		n.report(ctx, p)
		return
	}
	for _, c := range p.Spec.InitContainers {
		for ctx.Err() == nil {
			out, err := n.command(c, ip).CombinedOutput()
			if err == nil {
				break
			}
			t.Logf("%s: %s", c.Name, out)
		}
	}
	c := p.Spec.Containers[0]
	started := &pod{name: p.Name, ip: ip, process: n.command(c, ip), ended: make(chan struct{})}
	started.process.Stderr = os.Stderr
	if !assert.NoError(t, started.process.Start()) {
		return
	}
	go func() { _ = started.process.Wait(); close(started.ended) }()
	n.mu.Lock()
	n.up[p.Name] = started
	n.mu.Unlock()
	for probe := c.ReadinessProbe.HTTPGet; ctx.Err() == nil; time.Sleep(pause) {
		if status(fmt.Sprint("http://", ip, listening(c, c.ReadinessProbe), probe.Path)) == http.StatusOK {
			n.report(ctx, p)
			return
		}
	}
}

// command returns the process that stands for a container: spindle in place of its image, with an address on loopback in
// place of the pod's.
func (n *node) command(c core.Container, ip string) *exec.Cmd {
	here := strings.NewReplacer(":8118", ip+":8118", ":8117", ip+":8117", "/spindle", n.program, "emulator:9010", n.address)
	var args []string
	for _, a := range c.Args {
		args = append(args, here.Replace(a))
	}
	process := exec.Command(n.program, args...)
	for _, e := range environment(n.m, c) {
		process.Env = append(process.Env, here.Replace(e))
	}
	return process
}

// stops ends a pod's process as Kubernetes does, and waits for its end.
func (n *node) stops(name string) {
	n.mu.Lock()
	p := n.up[name]
	delete(n.up, name)
	n.mu.Unlock()
	if p == nil {
		return
	}
	_ = p.process.Process.Signal(syscall.SIGTERM)
	select {
	case <-p.ended:
	case <-time.After(30 * time.Second):
		_ = p.process.Process.Kill()
	}
}

// available waits until so many pods of a deployment are available.
func (n *node) available(t *testing.T, deployment string, pods int) {
	t.Helper()
	require.EventuallyWithT(t, func(c *assert.CollectT) {
		d, err := n.AppsV1().Deployments(n.namespace).Get(t.Context(), deployment, meta.GetOptions{})
		require.NoError(c, err)
		require.EqualValues(c, pods, d.Status.AvailableReplicas)
	}, limit, pause, deployment)
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

func (n *node) processes() (pods []*pod) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, p := range n.up {
		pods = append(pods, p)
	}
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
