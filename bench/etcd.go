package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
	"go.uber.org/zap"
)

func startEtcd(g *ground, n int) ([]place, error) {
	endpoint, err := g.etcd()
	if err != nil {
		return nil, err
	}
	places := make([]place, n)
	for i := range places {
		if places[i].Addr, err = g.via(i, endpoint); err != nil {
			return nil, err
		}
	}
	return places, nil
}

// etcd starts an etcd server, and returns its endpoint.
func (g *ground) etcd() (string, error) {
	dir, err := g.newDir()
	if err != nil {
		return "", err
	}
	p, err := g.run(task{Kind: "etcd", Dir: dir})
	if err != nil {
		return "", err
	}
	r, err := p.await(time.Minute)
	return r.Addr, err
}

// session returns a session whose lease has the same length as spindle's.
func (p place) session() (*concurrency.Session, error) {
	c, err := clientv3.New(clientv3.Config{Endpoints: []string{p.Addr}, Logger: zap.NewNop()})
	if err != nil {
		return nil, err
	}
	return concurrency.NewSession(c, concurrency.WithTTL(int(lease.Seconds())))
}

func campaign(ctx context.Context, p place, name string, say say) error {
	s, err := p.session()
	if err != nil {
		return err
	}
	e := concurrency.NewElection(s, name)
	if err := e.Campaign(ctx, fmt.Sprint(os.Getpid())); err != nil {
		return errors.Join(err, s.Close())
	}
	say(held, name)
	select {
	case <-ctx.Done():
	case <-s.Done():
		return errors.New("the session has expired")
	}
	say(left, name)
	return errors.Join(e.Resign(context.Background()), s.Close())
}

// etcdMutexes creates a session for each mutex, because mutexes in the same session do not exclude each other.
func etcdMutexes(p place) (func(name string) (locker, error), error) {
	return func(name string) (locker, error) {
		s, err := p.session()
		if err != nil {
			return nil, err
		}
		return concurrency.NewMutex(s, name), nil
	}, nil
}

func holdEtcdMutex(ctx context.Context, p place, name string, say say) error {
	mutexes, err := etcdMutexes(p)
	if err != nil {
		return err
	}
	return hold(ctx, mutexes, name, say)
}
