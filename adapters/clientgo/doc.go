// Package clientgo lets client-go's leader election, and controller-runtime's, be decided by a lock in Spanner
// instead of a Lease in one Kubernetes cluster: controllers in several clusters, one of which is active.
//
//	lock, err := clientgo.New(db, "locktable", "my-controller")
//	...
//	elector, err := leaderelection.NewLeaderElector(lock.Config(leaderelection.LeaderCallbacks{
//		OnStartedLeading: func(ctx context.Context) { ... },
//		OnStoppedLeading: func() { ... },
//	}))
//	...
//	elector.Run(ctx)
//
// # Why two can't lead
//
// Spindle decides who leads; see the package spindle for why two processes never hold its lock at once. But
// client-go has a clock of its own. Once Update has succeeded, it waits for a RetryPeriod, calls Update again, and if
// that fails from now on, goes on leading for a RenewDeadline. So Update succeeds only if the spindle lock is held, by
// its local deadline, for longer than
//
//	RetryPeriod + RenewDeadline + a twentieth of the lease
//
// and never for another term than the one that the elector began with. The twentieth is for the time that a busy
// machine takes to run what is due. If the elector is refused from then on, it has stopped before the lease ends.
// [Lock.Config] has settings with which Update succeeds as long as heartbeats do, and [Lock.Accept] checks yours.
//
// The other way round, the spindle lock is not given back while client-go may lead: not for a request to hand over
// (spindle.WithHandover), and not when client-go gives up. It is given back at once if the elector's ctx was cancelled
// and ReleaseOnCancel is set, as Config does, and the function OnStartedLeading of Config has returned. It is
// given back too if no elector has taken it for a lease, or if one that leads is a lease late to renew it.
//
// A process that is suspended for longer than that twentieth is late by as much, and then client-go goes on for
// another RenewDeadline. The ctx that Config hands to OnStartedLeading ends with the spindle lock, so it ends within a
// RetryPeriod of the resume, and so does one that [Lock.Context] made. But nothing can stop a process before it runs
// again. So fence what it writes to the database, with the token of its term: [TokenOf], [Lock.Token], and
// Lock.Spindle().Apply.
package clientgo
