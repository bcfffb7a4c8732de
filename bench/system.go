package main

import (
	"context"

	"github.com/spindle-lock/spindle"
)

// A place tells a process how to reach the servers of its system.
type place struct {
	Addr     string // the emulator's host:port, etcd's endpoint, or the API server's URL
	Database string // spindle
	Token    string // the API server
}

// A system is one row of the table.
type system struct {
	name         string
	onKubernetes bool // whether it needs a kube-apiserver

	start func(*ground) (place, error) // starts the servers

	compete   compete
	parts     int  // how many parts the lock has; only a group has more than one
	stopsOnly bool // whether only graceful stops are measured, because the system is a variant that improves these

	mutex func(p place, name string) (locker, error) // nil if the system has no mutex
}

// A compete function competes for the lock with the given name until ctx ends, and then gives it up. It reports when it
// starts and when it stops holding each part of the lock. A part is the lock itself, or a partition of a group.
type compete func(ctx context.Context, p place, name string, say say) error

// A locker is a mutex, or an election that is used like one.
type locker interface {
	Lock(context.Context) error
	Unlock(context.Context) error
}

// holding returns a function that acquires a lock and holds it until ctx ends.
func holding(open func(place, string) (locker, error)) compete {
	return func(ctx context.Context, p place, name string, say say) error {
		m, err := open(p, name)
		if err != nil {
			return err
		}
		if err := m.Lock(ctx); err != nil {
			return err
		}
		say.during(ctx, name)
		return m.Unlock(context.Background())
	}
}

// systems are the rows of the table, in order.
var systems = []system{
	{name: "spindle: elector", start: startSpindle, compete: electing(alone), parts: 1},
	{name: "spindle: elector with notifications", start: startSpindle, compete: electing(notified), parts: 1},
	{name: "spindle: elector with a handover", start: startSpindle, compete: electing(alone, spindle.WithHandover()), parts: 1, stopsOnly: true},
	{name: "spindle: member of a group", start: startSpindle, compete: join, parts: partitions},
	{name: "spindle: mutex", start: startSpindle, compete: holding(newMutex(alone)), parts: 1, mutex: newMutex(alone)},
	{name: "spindle: mutex with notifications", start: startSpindle, compete: holding(newMutex(notified)), parts: 1, mutex: newMutex(notified)},
	{name: "etcd: election", start: startEtcd, compete: holding(newEtcdElection), parts: 1},
	{name: "etcd: mutex", start: startEtcd, compete: holding(newEtcdMutex), parts: 1, mutex: newEtcdMutex},
	{name: "client-go: leader election", onKubernetes: true, start: startAPIServer, compete: runLeaderElection, parts: 1},
}

func systemNamed(name string) system {
	for _, s := range systems {
		if s.name == name {
			return s
		}
	}
	panic("no system is named " + name)
}

// places starts the servers, and returns a place for each of n processes.
func (s system) places(g *ground, n int) ([]place, error) {
	server, err := s.start(g)
	if err != nil {
		return nil, err
	}
	all := make([]place, n)
	for i := range all {
		all[i] = server
		if all[i].Addr, err = g.via(i, server.Addr); err != nil {
			return nil, err
		}
	}
	return all, nil
}
