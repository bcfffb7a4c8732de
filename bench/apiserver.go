package main

import (
	"context"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

const apiserverToken = "bench"

// startAPIServer starts etcd and a kube-apiserver that accepts any request with apiserverToken.
func startAPIServer(g *ground) (p place, err error) {
	etcd, err := startEtcd(g)
	if err != nil {
		return p, err
	}
	dir, err := g.newDir()
	if err != nil {
		return p, err
	}
	key, tokens := filepath.Join(dir, "key.pem"), filepath.Join(dir, "tokens.csv")
	if err := writeKey(key); err != nil {
		return p, err
	}
	if err := os.WriteFile(tokens, []byte(apiserverToken+",bench,bench,system:masters\n"), 0o600); err != nil {
		return p, err
	}
	port, err := freePort()
	if err != nil {
		return p, err
	}
	server, err := g.run(task{Kind: "exec", Argv: []string{
		g.apiserver, "--etcd-servers=http://" + etcd.Addr, "--bind-address=127.0.0.1", fmt.Sprint("--secure-port=", port),
		"--cert-dir=" + dir, "--token-auth-file=" + tokens, "--authorization-mode=RBAC", "--service-cluster-ip-range=10.0.0.0/24",
		"--service-account-issuer=https://kubernetes.default.svc", "--service-account-key-file=" + key, "--service-account-signing-key-file=" + key,
	}})
	if err != nil {
		return p, err
	}
	p = place{Addr: fmt.Sprint("https://127.0.0.1:", port), Token: apiserverToken}
	client, err := kubernetes.NewForConfig(p.kubeconfig())
	if err != nil {
		return p, err
	}
	return p, until(server, 2*time.Minute, func() error {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		if err := client.Discovery().RESTClient().Get().AbsPath("/readyz").Do(ctx).Error(); err != nil {
			return err
		}
		_, err := client.CoreV1().Namespaces().Get(ctx, metav1.NamespaceDefault, metav1.GetOptions{})
		return err
	})
}

// writeKey writes a new private key, with which the API server signs the tokens of service accounts.
func writeKey(path string) error {
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		return err
	}
	return os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(key)}), 0o600)
}

// freePort returns a port that is free at the moment. A kube-apiserver cannot choose one itself.
func freePort() (int, error) {
	on, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	return on.Addr().(*net.TCPAddr).Port, on.Close()
}
