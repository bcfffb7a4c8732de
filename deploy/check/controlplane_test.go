//go:build controlplane

package check

import (
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"flag"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

var binaries = flag.String("binaries", "", "the `directory` of etcd and kube-apiserver (default: they are built, which takes minutes)")

// A cluster is an API server on loopback. It has no nodes and no controllers.
type cluster struct {
	*kubernetes.Clientset
	dynamic dynamic.Interface
}

// start starts an API server for the test.
func start(t *testing.T) cluster {
	t.Helper()
	from, dir := programs(t), t.TempDir()
	write := func(name string, text []byte) string {
		path := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(path, text, 0o600))
		return path
	}
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	require.NoError(t, err)
	accounts := write("accounts.pem", pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(key)}))
	token := rand.Text()
	tokens := write("tokens.csv", []byte(token+`,admin,admin,"system:masters"`))

	etcd, peers, server := free(t), free(t), free(t)
	launch(t, filepath.Join(from, "etcd"), "--data-dir", filepath.Join(dir, "etcd"), "--unsafe-no-fsync",
		"--listen-client-urls", "http://"+etcd, "--advertise-client-urls", "http://"+etcd,
		"--listen-peer-urls", "http://"+peers, "--initial-advertise-peer-urls", "http://"+peers, "--initial-cluster", "default=http://"+peers)
	host, port, err := net.SplitHostPort(server)
	require.NoError(t, err)
	launch(t, filepath.Join(from, "kube-apiserver"), "--etcd-servers=http://"+etcd, "--bind-address="+host, "--secure-port="+port,
		"--cert-dir="+dir, "--token-auth-file="+tokens, "--authorization-mode=RBAC", "--service-cluster-ip-range=10.0.0.0/24",
		"--service-account-issuer=https://kubernetes.default.svc", "--service-account-key-file="+accounts, "--service-account-signing-key-file="+accounts)

	config := &rest.Config{Host: "https://" + server, BearerToken: token, QPS: 1000, Burst: 1000,
		TLSClientConfig: rest.TLSClientConfig{CAFile: filepath.Join(dir, "apiserver.crt")}}
	require.Eventually(t, func() bool { return ready(config) }, time.Minute, 100*time.Millisecond, "the API server is not ready")
	client, err := kubernetes.NewForConfig(config)
	require.NoError(t, err)
	dynamic, err := dynamic.NewForConfig(config)
	require.NoError(t, err)
	return cluster{client, dynamic}
}

// programs returns a directory with the programs, built from the versions in controlplane/go.mod.
func programs(t *testing.T) string {
	t.Helper()
	if *binaries != "" {
		return *binaries
	}
	cache, err := os.UserCacheDir()
	require.NoError(t, err)
	dir := filepath.Join(cache, "spindle-controlplane")
	require.NoError(t, os.MkdirAll(dir, 0o755))
	for name, path := range map[string]string{
		"etcd":           "go.etcd.io/etcd/server/v3",
		"kube-apiserver": "k8s.io/kubernetes/cmd/kube-apiserver",
	} {
		build := exec.Command("go", "build", "-trimpath", "-ldflags=-s -w", "-o", filepath.Join(dir, name), path)
		build.Dir = "controlplane"
		build.Env = append(os.Environ(), "CGO_ENABLED=0")
		out, err := build.CombinedOutput()
		require.NoError(t, err, "%s", out)
	}
	return dir
}

// launch runs a program until the test ends. If the test fails, it shows the end of the program's output.
func launch(t *testing.T, path string, args ...string) {
	t.Helper()
	log, err := os.Create(filepath.Join(t.TempDir(), filepath.Base(path)+".log"))
	require.NoError(t, err)
	c := exec.Command(path, args...)
	c.Stdout, c.Stderr = log, log
	require.NoError(t, c.Start())
	t.Cleanup(func() {
		_ = c.Process.Kill()
		_ = c.Wait()
		_ = log.Close()
		if text, err := os.ReadFile(log.Name()); t.Failed() && err == nil {
			t.Logf("%s:\n%s", filepath.Base(path), text[max(0, len(text)-3000):])
		}
	})
}

// free returns an address on loopback that no process listens on.
func free(t *testing.T) string {
	t.Helper()
	on, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer on.Close()
	return on.Addr().String()
}

// ready reports whether the API server has started.
func ready(config *rest.Config) bool {
	transport, err := rest.TransportFor(config) // fails until the server has written its certificate
	if err != nil {
		return false
	}
	response, err := (&http.Client{Transport: transport}).Get(fmt.Sprint(config.Host, "/readyz"))
	if err != nil {
		return false
	}
	defer response.Body.Close()
	return response.StatusCode == http.StatusOK
}
