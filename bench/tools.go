package main

import (
	"debug/buildinfo"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"strings"
)

// tools are the programs that the systems need.
type tools struct {
	dir       string
	spindle   string // the command
	apiserver string // a kube-apiserver; empty if there is none
}

// findTools builds spindle's command, and finds or builds a kube-apiserver.
func findTools(apiserver string, compile bool) (t tools, err error) {
	if t.dir, err = os.MkdirTemp("", "bench"); err != nil {
		return t, err
	}
	t.spindle = filepath.Join(t.dir, "spindle")
	if err := build("..", t.spindle, "./cmd/spindle"); err != nil {
		return t, fmt.Errorf("cannot build spindle's command: %w: run bench in its own directory", err)
	}
	if apiserver != "" {
		t.apiserver, err = filepath.Abs(apiserver)
		return t, err
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return t, err
	}
	cached := filepath.Join(cache, "spindle-bench", "kube-apiserver")
	_, missing := os.Stat(cached)
	if missing != nil && compile {
		fmt.Fprintln(os.Stderr, "compiling a kube-apiserver, which takes several minutes")
		missing = build(controlPlane, cached, "k8s.io/kubernetes/cmd/kube-apiserver")
		err = missing
	}
	if missing == nil {
		t.apiserver = cached
	}
	return t, err
}

// controlPlane is the directory of the module that pins the version of Kubernetes.
const controlPlane = "../deploy/check/controlplane"

// build compiles the package of a module.
func build(module, to, pkg string) error {
	c := exec.Command("go", "-C", module, "build", "-o", to, pkg)
	c.Stderr = os.Stderr
	return c.Run()
}

func (t tools) remove() { _ = os.RemoveAll(t.dir) }

// ownVersion returns the commit that is measured.
func ownVersion() string {
	commit, err := exec.Command("git", "describe", "--always", "--dirty").Output()
	if err != nil {
		return unknown
	}
	return strings.TrimSpace(string(commit))
}

const unknown = "of an unknown version"

// versions returns the versions of the systems that spindle is compared with.
func (t tools) versions() (versions []string) {
	if info, ok := debug.ReadBuildInfo(); ok {
		versions = append(versions, "etcd "+versionOf("go.etcd.io/etcd/server/v3", info), "client-go "+versionOf("k8s.io/client-go", info))
	}
	// A kube-apiserver that was built from its module does not know its version itself.
	if info, err := buildinfo.ReadFile(t.apiserver); err == nil {
		versions = append(versions, "kube-apiserver "+versionOf("k8s.io/kubernetes", info))
	}
	return versions
}

func versionOf(module string, info *debug.BuildInfo) string {
	for _, m := range append(info.Deps, &info.Main) {
		if m.Path == module {
			return m.Version
		}
	}
	return unknown
}
