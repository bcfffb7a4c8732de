// Package clientgo decides the leader election of client-go and controller-runtime by a lock in Spanner instead of a Lease
// in one Kubernetes cluster: controllers run in several clusters, and one of them is active.
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
// Spindle decides which process leads; see the package spindle for why two processes never hold its lock at once. But
// client-go has its own clock. After an Update that succeeds, it waits for a RetryPeriod, and calls Update again. If Update
// keeps failing, client-go leads on for a RenewDeadline. So Update succeeds only if the spindle lock is held, by its local
// deadline, for longer than
//
//	RetryPeriod + RenewDeadline + a twentieth of the lease
//
// and only for the term that the elector began with. The twentieth is for the time that a busy machine takes to run what is
// due. An elector that is refused from then on has stopped before the lease ends. [Lock.Config] has settings with which
// Update succeeds as long as heartbeats do, and [Lock.Accept] checks yours.
//
// Conversely, the spindle lock is not released while client-go may lead: not for a request to hand over
// (spindle.WithHandover), and not when client-go gives up. It is released at once if the elector's ctx was canceled,
// ReleaseOnCancel is set, as Config does, and Config's OnStartedLeading has returned. It is also released if no elector has
// taken it for a lease, or if the leading elector is a lease late to renew it.
//
// A process that is suspended for longer than that twentieth is late by as much, and then client-go leads on for another
// RenewDeadline. The ctx that Config hands to OnStartedLeading ends with the spindle lock, so it ends within a RetryPeriod
// of the resume, and so does a ctx of [Lock.Context]. But nothing can stop a process before it runs again. So fence its
// writes to the database with the token of its term: [TokenOf], [Lock.Token], and Lock.Spindle().Apply.
package clientgo
