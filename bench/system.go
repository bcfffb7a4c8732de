package main

import (
	"context"

	"github.com/spindle-lock/spindle"
)

// A place tells a process how to reach the servers of its system.
type place struct {
	Addr     string // the emulator's host:port, etcd's endpoint, or the API server's URL
	Database string // spindle
	Socket   string // the agent's Unix socket
	Token    string // the API server
}

// A system is one row of the table.
type system struct {
	name string
	kind string // election, mutex, or another one; only systems of the same kind are compared
	peer bool   // whether it is one of those that spindle is compared with

	onKubernetes bool // whether it needs a kube-apiserver

	start  func(*ground) (place, error)        // starts servers
	beside func(*ground, place) (place, error) // starts what each process has to itself, if it needs that

	compete   compete
	parts     int  // how many parts the lock has; only a group has more than one
	stopsOnly bool // nothing but a graceful stop is measured, because only that differs from the row above

	mutex func(p place, name string) (locker, error) // nil if the system has no mutex
}

// compete competes for the lock with the given name until ctx ends, and then gives it up. It reports when it begins and
// ends to hold each part.
type compete func(ctx context.Context, p place, name string, say say) error

// A locker is a mutex, or an election that is used like one.
type locker interface {
	Lock(context.Context) error
	Unlock(context.Context) error
}

// holding returns how a process competes that holds a lock until ctx ends.
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
	{name: "spindle: elector", kind: "election", start: startSpindle, compete: electing(), parts: 1},
	{name: "spindle: elector with a handover", kind: "election", start: startSpindle, compete: electing(spindle.WithHandover()), parts: 1, stopsOnly: true},
	{name: "spindle: member of a group", kind: "group", start: startSpindle, compete: join, parts: partitions},
	{name: "spindle: mutex", kind: "mutex", start: startSpindle, compete: holding(newMutex), parts: 1, mutex: newMutex},
	{name: "spindle: program of an agent", kind: "program", start: startSpindle, beside: startAgent, compete: holding(agentLocks("elections")), parts: 1, mutex: agentLocks("locks")},
	{name: "etcd: election", kind: "election", peer: true, start: startEtcd, compete: holding(newEtcdElection), parts: 1},
	{name: "etcd: mutex", kind: "mutex", peer: true, start: startEtcd, compete: holding(newEtcdMutex), parts: 1, mutex: newEtcdMutex},
	{name: "client-go: leader election", kind: "election", peer: true, onKubernetes: true, start: startAPIServer, compete: runLeaderElection, parts: 1},
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
		if all[i].Addr, err = g.via(i, server.Addr); err == nil && s.beside != nil {
			all[i], err = s.beside(g, all[i])
		}
		if err != nil {
			return nil, err
		}
	}
	return all, nil
}
