package main

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
	"go.etcd.io/etcd/server/v3/embed"
	"go.uber.org/zap"
)

func startEtcd(g *ground) (place, error) {
	dir, err := g.newDir()
	if err != nil {
		return place{}, err
	}
	p, err := g.run(task{Kind: "etcd", Dir: dir})
	if err != nil {
		return place{}, err
	}
	r, err := p.await(time.Minute)
	return place{Addr: r.Addr}, err
}

// serveEtcd runs a single etcd server with default settings on free loopback ports. It calls ready with the endpoint
// for clients, and returns only if the server fails.
func serveEtcd(dir string, ready func(endpoint string)) error {
	anywhere := []url.URL{{Scheme: "http", Host: "127.0.0.1:0"}}
	c := embed.NewConfig()
	c.Dir, c.LogLevel = dir, "error"
	c.ListenClientUrls, c.AdvertiseClientUrls = anywhere, anywhere
	c.ListenPeerUrls, c.AdvertisePeerUrls = anywhere, anywhere
	c.InitialCluster = c.InitialClusterFromName(c.Name)
	server, err := embed.StartEtcd(c)
	if err != nil {
		return err
	}
	<-server.Server.ReadyNotify()
	ready(server.Clients[0].Addr().String())
	return <-server.Err()
}

// session returns a session whose lease has the same length as spindle's.
func (p place) session() (*concurrency.Session, error) {
	c, err := clientv3.New(clientv3.Config{Endpoints: []string{p.Addr}, Logger: zap.NewNop()})
	if err != nil {
		return nil, err
	}
	return concurrency.NewSession(c, concurrency.WithTTL(int(lease.Seconds())))
}

type etcdElection struct{ *concurrency.Election }

func newEtcdElection(p place, name string) (locker, error) {
	s, err := p.session()
	if err != nil {
		return nil, err
	}
	return etcdElection{concurrency.NewElection(s, name)}, nil
}

func (e etcdElection) Lock(ctx context.Context) error {
	return e.Campaign(ctx, fmt.Sprint(os.Getpid()))
}
func (e etcdElection) Unlock(ctx context.Context) error { return e.Resign(ctx) }

// newEtcdMutex creates a session for each mutex, because mutexes in the same session do not exclude each other.
func newEtcdMutex(p place, name string) (locker, error) {
	s, err := p.session()
	if err != nil {
		return nil, err
	}
	return concurrency.NewMutex(s, name), nil
}
