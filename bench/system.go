package main

import "context"

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

	// start starts servers, and returns one place for each of n processes.
	start func(g *ground, n int) ([]place, error)

	// compete competes for the lock with the given name until ctx ends, and then gives it up. It reports when it
	// begins and ends to hold each part.
	compete func(ctx context.Context, p place, name string, say say) error

	parts     int  // how many parts the lock has; only a group has more than one
	stopsOnly bool // nothing but a graceful stop is measured, because only that differs from the row above

	// mutex connects a process, and returns a function that creates mutexes. It is nil if the system has no mutex.
	mutex func(p place) (func(name string) (locker, error), error)
}

// A locker is a mutex.
type locker interface {
	Lock(context.Context) error
	Unlock(context.Context) error
}

// systems are the rows of the table, in order.
var systems []system

// The initialization is a function because compete and systems would otherwise refer to each other.
func init() {
	systems = []system{
		{name: "spindle: elector", kind: "election", start: startSpindle, compete: elect, parts: 1},
		{name: "spindle: elector with a handover", kind: "election", start: startSpindle, compete: electWithHandover, parts: 1, stopsOnly: true},
		{name: "spindle: member of a group", kind: "group", start: startSpindle, compete: join, parts: partitions},
		{name: "spindle: mutex", kind: "mutex", start: startSpindle, compete: holdMutex, parts: 1, mutex: spindleMutexes},
		{name: "spindle: program of an agent", kind: "program", start: startAgents, compete: askAgent, parts: 1, mutex: agentMutexes},
		{name: "etcd: election", kind: "election", peer: true, start: startEtcd, compete: campaign, parts: 1},
		{name: "etcd: mutex", kind: "mutex", peer: true, start: startEtcd, compete: holdEtcdMutex, parts: 1, mutex: etcdMutexes},
		{name: "client-go: leader election", kind: "election", peer: true, onKubernetes: true, start: startAPIServer, compete: runLeaderElection, parts: 1},
	}
}

func systemNamed(name string) system {
	for _, s := range systems {
		if s.name == name {
			return s
		}
	}
	panic("no system is named " + name)
}
