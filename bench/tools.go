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

// controlPlane is the directory of the module that pins the version of Kubernetes.
const controlPlane = "../deploy/check/controlplane"

// findAPIServer returns the path of the kube-apiserver in the cache. If the cache has none, findAPIServer
// compiles one or, if compile is false, returns "".
func findAPIServer(compile bool) (string, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	path := filepath.Join(cache, "spindle-bench", "kube-apiserver")
	if _, missing := os.Stat(path); missing == nil {
		return path, nil
	}
	if !compile {
		return "", nil
	}
	fmt.Fprintln(os.Stderr, "compiling a kube-apiserver, which takes several minutes")
	c := exec.Command("go", "-C", controlPlane, "build", "-o", path, "k8s.io/kubernetes/cmd/kube-apiserver")
	c.Stderr = os.Stderr
	return path, c.Run()
}

// ownVersion describes the commit that is measured.
func ownVersion() string {
	commit, err := exec.Command("git", "describe", "--always", "--dirty").Output()
	if err != nil {
		return unknown
	}
	return strings.TrimSpace(string(commit))
}

const unknown = "(unknown version)"

// versionsWith returns the versions of the systems that spindle is compared with.
func versionsWith(apiserver string) (versions []string) {
	if info, ok := debug.ReadBuildInfo(); ok {
		versions = append(versions, "etcd "+versionOf("go.etcd.io/etcd/server/v3", info), "client-go "+versionOf("k8s.io/client-go", info))
	}
	// A kube-apiserver that was built from its module does not know its own version.
	if info, err := buildinfo.ReadFile(apiserver); err == nil {
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
